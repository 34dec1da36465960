/* What a bridge keeps in an operation. */
#ifndef MIMO_BRIDGE_BRIDGE_OP_TYPES_H
#define MIMO_BRIDGE_BRIDGE_OP_TYPES_H

#include "bridge/bridge_types.h"
#include "move/op_types.h"

typedef struct mimo_bridge_op {
    mimo_op op;
    const mimo_executor_table *executor; /* of its pass */
    int batch;                           /* the micro-batch that it moves */

    /* Of the executor. */
    int64_t seq;                         /* routed: S of the full sequences; 1 where all tiles are
                                            flat */
    struct mimo_prepared_call *prepared; /* routed: NULL until the batch split is known */
    int64_t *samples; /* routed: this rank's samples of either side, then those of all ranks */

    uint64_t *hashes; /* replica check: the own hash, then those of all ranks with copies */
} mimo_bridge_op;

static inline mimo_bridge *mimo_bridge_of(const mimo_op *op)
{
    return op->mover->owner;
}

static inline mimo_bridge_op *mimo_bridge_op_of(const mimo_op *op)
{
    return op->own;
}

#endif
