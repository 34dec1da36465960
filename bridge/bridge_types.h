/* The bridge: what its files share. */
#ifndef MIMO_BRIDGE_BRIDGE_TYPES_H
#define MIMO_BRIDGE_BRIDGE_TYPES_H

#include <stdarg.h>

#include "bridge/executor.h"
#include "bridge/op/op_types.h"
#include "comm/fifos.h"

enum { MIMO_BRIDGE_TITLE = 64 };

struct mimo_bridge {
    mimo_comm *comm;               /* own: agreements */
    mimo_comm *parent;             /* borrowed; NULL until the bridge is complete */
    mimo_fifo_user fifos;          /* of the parent, where a pass stages its messages */
    char title[MIMO_BRIDGE_TITLE]; /* "bridge 'images'" or "bridge 2": begins its sentences */
    uint64_t id;                   /* a hash of name and number: begins its signatures */
    mimo_progress_callback callback;
    const mimo_grid *src, *dst;
    int64_t rank, size; /* of the communicator */
    mimo_memory memory; /* where its tiles lie */

    mimo_pairing pairing; /* scale 0 where the grids do not pair */
    int64_t slot;         /* this rank's index in its gather group */

    /* By pass: forward, backward. */
    mimo_executor executor[2]; /* its algorithm is never AUTO */
    bool measured[2];          /* chosen by measurement, and keeps the rules of both executors */
    struct mimo_collective *collective; /* NULL where neither pass is collective */
    struct mimo_routed *routed;         /* NULL where neither pass is routed */

    int64_t batch;       /* of the calls to come, as the caller gave it; -1: not given */
    int batch_count;     /* micro-batches that the last update told; 1 where it told one or none */
    int selected;        /* which of them the next calls move */
    bool names_tensors;  /* words of calls name tensors: not where calls only enqueue, and nobody
                            compares them */
    bool compares_calls; /* with all other calls of the parent (MIMO_CHECK=calls) */
    bool check_samples;  /* MIMO_CHECK=samples */
    char *replicated; /* MIMO_CHECK=replicas: the dimensions along which sources are copies, "tp,x";
                         NULL where there are none, or they are not checked */
    mimo_comm *copies; /* this rank's group along these; NULL outside the src grid as well */

    mimo_op *queue;        /* operations in flight: only the first moves, so that all ranks start
                             their communication in the same order */
    mimo_free_item *spare; /* ended ones, kept for the next */
    int unwaited;          /* operations that were begun, and not waited for */
    bool destroyed;        /* the wait for the last of these releases the bridge */
    mimo_staging staging;  /* of all operations on a device, by stream */
};

/* The buffer that tensor i of an operation is written into, and the offset there, as the target of
 * mimo_executor_table says. */
static inline const mimo_buffer *mimo_op_target(int64_t *offset, const mimo_op *op, int i)
{
    *offset = -1;
    return op->executor->target ? op->executor->target(offset, op, i) : NULL;
}

/* Whether a destination must lie in a buffer of the parent, in either pass. */
static inline bool mimo_bridge_wants_buffers(const mimo_bridge *bridge)
{
    return bridge->executor[0].transport == MIMO_TRANSPORT_ZERO_COPY ||
           bridge->executor[1].transport == MIMO_TRANSPORT_ZERO_COPY;
}

/* ---------------------------------- its state (bridge.c) ------------------------------------ */

/* MIMO_ERR_STATE where an operation was not waited for. That is the same on all ranks; whether one
 * still moves is not, so nothing depends on that. */
mimo_status mimo_bridge_check_idle(const mimo_bridge *bridge, const char *call);

/* ---------------------------------- sizes (bridge_tile.c) ----------------------------------- */

/* Sizes in this version's form, with the batch and S that hold: those of the sizes, or those that
 * the bridge knows. MIMO_ERR_SHAPE where these differ. Local. */
mimo_status mimo_bridge_read_sizes(mimo_bridge_sizes *out, const mimo_bridge *bridge,
                                   const mimo_bridge_sizes *given);

/* What all ranks told of their rows, where a call of tiles of these letters counts rows; otherwise
 * NULL. `batch` of the sizes are then these rows, and S is 1. */
const struct mimo_batch_split *mimo_bridge_told_rows(const mimo_bridge *bridge,
                                                     const mimo_bridge_sizes *sizes);

/* ----------------------------- its sentences (bridge_sentences.c) --------------------------- */

/* The title of a bridge of that name, or of that number where it has no name. */
void mimo_bridge_write_title(char title[MIMO_BRIDGE_TITLE], const char *name, int64_t number);

/* Put the bridge's title in front of the sentence of an error, unless it is there or the family has
 * ended. Returns the status. */
mimo_status mimo_bridge_prefix_error(const mimo_bridge *bridge, mimo_status status);

/* Append to a call in words, as far as there is space. */
MIMO_PRINTF(2, 3) void mimo_call_append(char call[MIMO_CALL_TEXT], const char *format, ...);
MIMO_PRINTF(2, 0)
void mimo_call_append_list(char call[MIMO_CALL_TEXT], const char *format, va_list arguments);

/* ------------------------ its calls, between all ranks (op/op_claim.c) ---------------------- */

/* Where bridge->compares_calls: agree on a call over the parent, where it is compared with those of
 * all other objects. */
mimo_status mimo_bridge_compare_call(const mimo_bridge *bridge, const mimo_claim *claim);

#endif
