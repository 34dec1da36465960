/* The bridge and its operations, shared by bridge.c, bridge_op.c and the executors. */
#ifndef MIMO_BRIDGE_BRIDGE_TYPES_H
#define MIMO_BRIDGE_BRIDGE_TYPES_H

#include <mimo/bridge.h>
#include <mimo/plan.h>

#include "bridge/layout/tile.h"
#include "comm/agreement.h"
#include "comm/comm_backend.h"

enum { MIMO_BRIDGE_TITLE = 64 };

struct mimo_op {
    mimo_bridge *bridge;
    const struct mimo_executor_table *executor; /* of its direction */
    mimo_op *next; /* in the bridge's queue, or in its list of spare operations */
    bool backward;
    bool guarded; /* a deadline was in force when it began: see comm_backend.h */
    mimo_stream stream;
    mimo_tile_pair *pairs; /* one per tensor: `count` in use, room for `capacity` */
    int count;
    int64_t capacity;
    int64_t seq;          /* routed: S of the full sequences; 1 where all tiles are flat */
    bool tagged;          /* the last pair is the samples check's */
    bool chunked;         /* begun so: its chunks can be waited for */
    int chunks;           /* 1 where it was not */
    mimo_event **events;  /* events[event_count]: on a device, where each chunk is here */
    int64_t event_count;  /* at least as many as an operation had chunks */
    mimo_staging staging; /* its staging on the host (mimo_op_stage), kept for the next one */

    mimo_status local;         /* this rank's own checks, to be agreed on */
    uint64_t signature, guess; /* see mimo_claim */
    uint64_t head;             /* the signature without the tensors */
    bool unsure;               /* how the batch is cut is a guess: the ranks agree on devices too */
    char call[MIMO_CALL_TEXT];
    int64_t named; /* what `call` says where it names no tensors: 2 n + backward */
    mimo_agreement agreement;
    mimo_wait_clock clock; /* how long the host has waited for it */
    bool torn;        /* given up with a request in flight: staging may still be written to */
    enum {
        MIMO_OP_QUEUED,
        MIMO_OP_AGREEING,
        MIMO_OP_ASKING,    /* the ranks guessed differently: finding out */
        MIMO_OP_COMPARING, /* replica check: hashes of the source over src tp */
        MIMO_OP_COMPARED,  /* replica check: agreeing on its outcome */
        MIMO_OP_MOVING,
        MIMO_OP_TRACED, /* samples check: agreeing on its outcome */
        MIMO_OP_ENDED,
    } state;
    int turn, step;       /* where MOVING has got to: the steps of a tensor, or of a chunk of all */
    struct mimo_job *job; /* routed: what was prepared for these tensors; NULL where no guess is */
    int64_t *sizes;       /* routed: this rank's samples on either side, then those of all ranks */
    mimo_request *request;
    uint64_t *hashes; /* replica check: own hash, then those of all src tp ranks */
    mimo_status status;
    char sentence[MIMO_SENTENCE_TEXT]; /* of `status`, for the wait that may come much later */
};

/* One step of an executor, for one tensor or for all op->count at once: local work, or a request
 * (op->request) to be waited for before the next step. A list ends with NULL. */
typedef mimo_status (*mimo_step)(mimo_op *op, const mimo_tile_pair *tiles);

typedef struct mimo_executor_table {
    /* Creation: what this rank can know by itself, then the groups (collective over bridge->comm).
     */
    mimo_status (*create)(mimo_bridge *bridge, const mimo_bridge_desc *desc);
    mimo_status (*connect)(mimo_bridge *bridge);
    /* Release all that creation made, or began to; nothing where there was none. */
    void (*destroy)(mimo_bridge *bridge);
    /* How a side is cut and who holds it: all of a layout but order, batch and seq. */
    mimo_layout_desc (*side)(const mimo_bridge *bridge, mimo_side side);
    /* The same with the batch of an operation that has moved, and how it was cut. */
    mimo_status (*cut)(mimo_layout_desc *out, const mimo_op *op, mimo_side side);

    /* Look at the views of all tensors, for what they say together (op->seq). NULL: nothing. */
    mimo_status (*survey)(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from, int n);
    /* Read and check the views of one tensor. */
    mimo_status (*read)(mimo_tile_pair *out, const mimo_op *op, const mimo_tensor *src,
                        const mimo_tensor *dst);
    /* What all ranks must call alike, as a hash on top of `hash`. */
    uint64_t (*sign)(uint64_t hash, const mimo_tile_pair *tiles);
    /* The buffer, and the byte of it, where tensor i is written, if that is part of what all ranks
     * call alike; else NULL, and -1. No such function: never. */
    const mimo_buffer *(*target)(int64_t *place, const mimo_op *op, int i);
    /* Before the agreement, with all tensors read: get whatever the steps will ask for, so that a
     * rank without memory fails while the others can still hear of it. May set op->guess and
     * op->unsure. */
    mimo_status (*prepare)(mimo_op *op);
    /* Where the guesses of the ranks differ: start to find out (op->request), then prepare again by
     * what was found; another agreement follows. NULL: nothing is guessed. */
    mimo_status (*ask)(mimo_op *op);
    mimo_status (*learn)(mimo_op *op);
    const mimo_step *forward, *backward;
    bool at_once; /* the steps run for all tensors, for one chunk after the other; else for one
                     tensor after the other, and whole: op->chunks is nothing to them */
    /* The samples of a batch that this rank holds on a side. */
    mimo_status (*samples)(const mimo_bridge *bridge, mimo_side side, int64_t batch, int64_t *first,
                           int64_t *count);
    /* After the last step, or where the operation failed before. NULL: nothing to do. */
    void (*finish)(mimo_op *op);
} mimo_executor_table;

extern const mimo_executor_table mimo_collective_executor;
extern const mimo_executor_table mimo_routed_executor;

struct mimo_bridge {
    mimo_comm *comm;               /* own: agreements */
    mimo_comm *parent;             /* borrowed; NULL until the bridge is whole and rides on it */
    char title[MIMO_BRIDGE_TITLE]; /* "bridge 'images'" or "bridge 2": begins its sentences */
    uint64_t id;                   /* of name and number: begins the signatures of its calls */
    mimo_progress_callback callback;
    const mimo_grid *src, *dst;
    int64_t rank, size;   /* of the communicator */
    mimo_memory memory;   /* where its tiles lie */
    mimo_pairing pairing; /* scale 0 where the grids do not pair */
    int64_t slot;         /* place in the gather group */
    mimo_executor way[2]; /* forward, backward; AUTO is none of them */
    bool measured[2]; /* by way: it was chosen among both executors, and keeps the rules of both */
    int64_t batch;    /* of the calls to come, as the caller told; -1: unknown */
    struct mimo_collective *collective; /* an executor's own: NULL where neither way is this one */
    struct mimo_routed *routed;
    bool names_tensors;  /* in op->call: not where calls only enqueue, and nobody compares them */
    bool compares_calls; /* with all other calls of the parent, not with the bridge's own alone */
    bool check_replicas, check_samples;
    mimo_comm *src_tp; /* replica check; NULL where it is off, and outside the src grid */
    mimo_op *queue;    /* operations in flight: only the first moves, so that all ranks start their
                          communication in the same order */
    mimo_op *spare;    /* ended ones, kept for the next */
    int unwaited;      /* operations that were begun, and not waited for */
    bool destroyed;    /* the last of these releases it */
    mimo_staging staging; /* staging of all operations on a device, by stream */
};

/* What moves one way, and what the ways have in common: where one is collective, its rules are the
 * stricter ones. */
const mimo_executor_table *mimo_bridge_executor_of(const mimo_bridge *bridge, bool backward);
const mimo_executor_table *mimo_bridge_rules(const mimo_bridge *bridge);

static inline bool mimo_executor_pushes(mimo_executor executor)
{
    return executor == MIMO_EXECUTOR_ROUTED || executor == MIMO_EXECUTOR_ZERO_COPY;
}

/* Whether a destination must lie in a buffer of the parent, one way or the other. */
static inline bool mimo_bridge_wants_buffers(const mimo_bridge *bridge)
{
    return bridge->way[0] == MIMO_EXECUTOR_ZERO_COPY || bridge->way[1] == MIMO_EXECUTOR_ZERO_COPY;
}

/* Groups of a grid along one dimension, on the bridge's own communicator; NULL on a rank outside
 * the grid. Collective. */
mimo_status mimo_bridge_split(mimo_comm **out, mimo_bridge *bridge, const mimo_grid *grid,
                              const char *dim);

/* Move the operations of a bridge on, without blocking; and until all have ended. */
void mimo_bridge_progress(mimo_bridge *bridge);
void mimo_bridge_finish(mimo_bridge *bridge);

/* MIMO_ERR_STATE where an operation was not waited for. Not whether one is still moving: that may
 * differ between ranks, and from run to run. */
mimo_status mimo_bridge_check_idle(const mimo_bridge *bridge, const char *call);

/* The title of a bridge by that name, or that number where it has none. */
void mimo_bridge_entitle(char title[MIMO_BRIDGE_TITLE], const char *name, int64_t number);

/* Put the bridge in front of the sentence of an error, unless it is there or the family has ended.
 * Returns the status. */
mimo_status mimo_bridge_say(const mimo_bridge *bridge, mimo_status status);

/* Where bridge->compares_calls: agree on a call over the parent, where it is compared with those of
 * all other objects. */
mimo_status mimo_bridge_compare_call(const mimo_bridge *bridge, const mimo_claim *claim);

/* Of a destination, on top of `hash`: see mimo_executor_table's target. */
uint64_t mimo_target_sign(uint64_t hash, const mimo_buffer *buffer, int64_t place);

/* Append to a call in words, as far as there is room. */
MIMO_PRINTF(2, 3) void mimo_call_say(char call[MIMO_CALL_TEXT], const char *format, ...);

/* Say more of the operation's call, where tensors are named. */
MIMO_PRINTF(2, 3) void mimo_op_note(mimo_op *op, const char *format, ...);

/* Staging of at least `bytes` bytes for the steps of an operation. On the host it is the
 * operation's own, as several may be in flight. On a device it belongs to the stream, which runs
 * the operations one after the other: so its size depends on the largest, not on their number. */
mimo_status mimo_op_stage(void **out, mimo_op *op, mimo_staging_slot slot, int64_t bytes);

/* Whether `bytes` bytes at `room` are what mimo_op_stage would give. */
bool mimo_op_has_stage(mimo_op *op, mimo_staging_slot slot, const void *room, int64_t bytes);

/* Chunks of an operation that have been moved; on a device, enqueued. */
int mimo_op_chunks_here(const mimo_op *op);

/* The events of an operation in chunks, on a device (elsewhere, and of other operations, nothing
 * happens): have one for each, before the agreement; a turn is over; a stream is to wait for a
 * chunk; and their end. */
mimo_status mimo_op_reserve_events(mimo_op *op);
mimo_status mimo_op_record_turn(mimo_op *op);
mimo_status mimo_op_wait_event(const mimo_op *op, int chunk, mimo_stream stream);
void mimo_op_release_events(mimo_op *op);

/* MIMO_CHECK=samples: add a pair of tags to those of the call, and, when they have moved, look
 * where they came from. */
mimo_status mimo_samples_prepare(mimo_op *op);
mimo_status mimo_samples_outcome(const mimo_op *op);

/* MIMO_CHECK=replicas: start comparing this operation's sources, and the outcome. */
mimo_status mimo_replicas_start(mimo_op *op);
mimo_status mimo_replicas_outcome(const mimo_op *op);

#endif
