/* Prepared calls: operations of the routed executor, made ready for their tensors. */
#ifndef MIMO_BRIDGE_PREPARED_CALL_H
#define MIMO_BRIDGE_PREPARED_CALL_H

#include "bridge/routed/call_types.h"

/* The call that an operation moves by; NULL until its batch split is known. */
static inline mimo_prepared_call *mimo_prepared_of(const mimo_op *op)
{
    return mimo_routed_op_of(op)->prepared;
}

/* A call for the operation's tensors and this split, kept or new, into mimo_routed_op.prepared.
 * Local. MIMO_ERR_MEMORY, MIMO_ERR_UNSUPPORTED (a sum of f8), errors of the layouts. */
mimo_status mimo_prepared_call_get(mimo_op *op, const mimo_batch_split *split);

/* The operation has ended: keep its call for the next, or release it after an error. */
void mimo_prepared_call_put_back(mimo_op *op);

/* Release all that are idle. */
void mimo_prepared_calls_release(mimo_bridge *bridge, mimo_recent *prepared);

#endif
