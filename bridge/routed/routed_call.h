/* The prepared calls of the routed executor: of an operation, of its batch split. */
#ifndef MIMO_BRIDGE_ROUTED_CALL_H
#define MIMO_BRIDGE_ROUTED_CALL_H

#include "bridge/routed/call_types.h"

/* The call that an operation moves by; NULL until its batch split is known. */
static inline mimo_routed_call *mimo_routed_call_of(const mimo_op *op)
{
    return mimo_routed_op_of(op)->prepared;
}

/* A call for the operation's tensors and this split, kept or new, into mimo_routed_op.prepared.
 * Local. MIMO_ERR_MEMORY, MIMO_ERR_UNSUPPORTED (a sum of f8), errors of the layouts. */
mimo_status mimo_routed_call_get(mimo_op *op, const mimo_batch_split *split);

/* The operation has ended, or resolved another split: give its call back. */
void mimo_routed_call_put_back(mimo_op *op);

#endif
