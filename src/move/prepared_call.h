/*
 * Prepared calls: operations made ready for tensors of fixed shapes. An executor makes one for the
 * first such operation, and this keeps it for the next ones, wherever their tensors lie: only their
 * keys are the same (address_key.h). A call serves one operation at a time.
 *
 *   mimo_prepared_call_get       find one that serves, or make it
 *   mimo_prepared_call_bind      staging, bases, and what the transport has to know of them
 *   mimo_prepared_call_put_back  the operation has ended: keep it, or release it after an error
 *
 * What an executor knows of a call lies behind the common part, which is the first member of its
 * own struct. Nothing here waits or communicates.
 */
#ifndef MIMO_MOVE_PREPARED_CALL_H
#define MIMO_MOVE_PREPARED_CALL_H

#include "core/recent.h"
#include "move/address_key.h"
#include "move/op_types.h"

enum { MIMO_STAGING_ALIGNMENT = 64 /* of what a call stages */ };

/* The bases of a call. Rows are placed behind them (mimo_place): so a call serves tensors at any
 * addresses. */
typedef struct mimo_bases {
    char **at;           /* at[count], of the operation that moves */
    int64_t *alignments; /* alignments[count], of all operations: see mimo_messages */
    int count;
} mimo_bases;

/* Their numbers: the staging, and for tensor i its src tile (TILES + 2 i) and its dst tile
 * (TILES + 2 i + 1). A fixed call has in place of the tiles one base that is NULL: offsets behind
 * it are addresses, those of the keys. */
enum { MIMO_BASE_STAGING, MIMO_BASE_TILES, MIMO_BASE_ANYWHERE = MIMO_BASE_TILES };

static inline int mimo_base_of_tile(int tensor, mimo_side side)
{
    return MIMO_BASE_TILES + 2 * tensor + (side == MIMO_DST);
}

/* What calls of all executors have. */
typedef struct mimo_prepared_call {
    mimo_recent_entry entry; /* while it is idle */
    const struct mimo_prepared_kind *kind;
    bool backward;
    bool recorded; /* a graph replays it */
    bool asked;    /* a prepare made it, for a call that may come in a capture */
    bool failed;   /* it can't be started again */
    bool fixed;    /* it has more tensors than the backend has bases: keys are exact */
    int count;
    mimo_address_key *keys; /* keys[count], of the tensors that it was made for */
    int64_t staging_bytes;
    mimo_bases bases; /* of the operation that it serves */
} mimo_prepared_call;

/* What differs between executors. */
typedef struct mimo_prepared_kind {
    size_t bytes; /* of a call, the common part included */
    int kept;     /* of the idle ones that nobody needs, the last ones; others stay as well: what a
                     graph or a prepare needs, until all are released */
    bool staged;  /* rows move through the staging, wherever a tensor lies, and a tile is a base
                     only where some tensor's rows are pushed. false: messages have its rows */

    /* The buffer that rows of tensor i are pushed into; NULL: none are. */
    mimo_buffer *(*target)(const mimo_op *op, int i);
    /* Whether a call of the same pass and number of tensors does what the operation asks, as far as
     * that is not in the keys. `wanted` is the executor's. */
    bool (*serves)(const mimo_prepared_call *call, const mimo_op *op, const void *wanted);
    /* Make it, with its keys and its bases: what it moves, and how much it stages. */
    mimo_status (*fill)(mimo_prepared_call *call, mimo_op *op, const void *wanted);
    /* Release what `fill` made, or began to make. */
    void (*empty)(mimo_prepared_call *call, mimo_comm *comm);
    /* The bases are those of this operation from now on. */
    mimo_status (*bind)(mimo_prepared_call *call, const mimo_op *op);
} mimo_prepared_kind;

/* A call for the operation's tensors, taken out of those that are idle, or made. Local.
 * MIMO_ERR_MEMORY, MIMO_ERR_OVERFLOW, errors of `fill`. */
mimo_status mimo_prepared_call_get(mimo_prepared_call **out, mimo_recent *idle,
                                   const mimo_prepared_kind *kind, mimo_op *op, const void *wanted);

/* Have it move the tensors of the operation, through staging of that. Local. MIMO_ERR_MEMORY,
 * errors of `bind`. */
mimo_status mimo_prepared_call_bind(mimo_prepared_call *call, mimo_op *op);

/* The operation has ended: keep its call for the next, or release it after an error. */
void mimo_prepared_call_put_back(mimo_prepared_call *call, mimo_recent *idle, const mimo_op *op);

/* Release all that are idle, of a mover's communicator. */
void mimo_prepared_calls_release(mimo_recent *idle, mimo_comm *comm);

/* Take room for `copies` times `bytes` bytes in the staging of a call, into its offset there. */
mimo_status mimo_prepared_call_stage(int64_t *offset, mimo_prepared_call *call, int64_t copies,
                                     int64_t bytes);

#endif
