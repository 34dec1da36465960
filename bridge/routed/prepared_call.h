/* Prepared calls: operations of the routed executor, made ready for their tensors. */
#ifndef MIMO_BRIDGE_PREPARED_CALL_H
#define MIMO_BRIDGE_PREPARED_CALL_H

#include "bridge/bridge_op.h"
#include "bridge/routed/routed_batch.h"
#include "bridge/routed/routed_phase.h"
#include "core/recent.h"
#include "move/address_key.h"

enum { MIMO_PHASES = 2, MIMO_STAGING_ALIGNMENT = 64 /* of what a call stages */ };

/* An operation made ready for tensors of fixed shapes, all of them together. It serves one
 * operation at a time, and is kept for the next one with tensors like these, wherever they lie:
 * only their keys are the same. What a graph or a prepare needs stays until an update or the end of
 * the bridge; of the others, the last ones. */
typedef struct mimo_prepared_call {
    mimo_recent_entry entry; /* while it is idle */
    bool backward;
    bool guarded;       /* it was made under a deadline: its messages are guarded */
    bool pushes;        /* rows whose destination lies in a buffer are pushed */
    mimo_buffer *fifos; /* that its messages are staged through; NULL: they are not */
    bool recorded;      /* a graph replays it */
    bool asked;         /* a prepare made it, for a call that may come in a capture */
    bool failed;        /* it can't be started again */
    bool fixed;         /* it has more tensors than the backend has bases: keys are exact */

    uint64_t split; /* the hash of the batch split */
    int count;
    mimo_tile_pair *pairs;  /* pairs[count], the tensors that this was made for */
    mimo_address_key *keys; /* keys[count]: of these */

    mimo_phase phases[MIMO_PHASES];
    int phase_count;
    int chunks;            /* of each phase, moved one after the other */
    int64_t staging_bytes; /* contributions, and sums between two phases */
    mimo_bases bases;      /* of the operation that it serves */
} mimo_prepared_call;

/* The call that an operation moves by; NULL until its batch split is known. */
static inline mimo_prepared_call *mimo_prepared_of(const mimo_op *op)
{
    return mimo_bridge_op_of(op)->prepared;
}

/* Whether a backward over sequences of this length takes two phases in this batch. */
bool mimo_routed_two_phases(const mimo_bridge *bridge, const mimo_routed_batch *batch, int64_t seq);

/* A call for the operation's tensors and this split, kept or new, into mimo_bridge_op.prepared.
 * Local. MIMO_ERR_MEMORY, MIMO_ERR_UNSUPPORTED (a sum of f8), errors of the layouts. */
mimo_status mimo_prepared_call_get(mimo_op *op, const mimo_batch_split *split);

/* The operation has ended: keep its call for the next, or release it after an error. */
void mimo_prepared_call_put_back(mimo_op *op);

/* Release all that are idle. */
void mimo_prepared_calls_release(mimo_bridge *bridge, mimo_recent *prepared);

#endif
