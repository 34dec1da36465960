/* What a bridge keeps in an operation. */
#ifndef MIMO_BRIDGE_BRIDGE_OP_TYPES_H
#define MIMO_BRIDGE_BRIDGE_OP_TYPES_H

#include "bridge/bridge_types.h"
#include "move/op_types.h"

typedef struct mimo_bridge_op {
    mimo_op op;
    const mimo_executor_table *executor; /* of its pass */
    int batch;                           /* the micro-batch that it moves */
    /* The executor's `prepare` sets it where this rank cannot guess. Then the ranks resolve the
     * guess, whatever the others guessed. */
    bool lacks_guess;

    void *own[MIMO_EXECUTORS]; /* of each executor, by mimo_algorithm: see op_bytes of its table */
    struct mimo_replica_hashes *hashes; /* of the replica check; NULL: it is off */
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
