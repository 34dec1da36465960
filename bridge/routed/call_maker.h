/* How a prepared call is made: its phases are planned, its tensors placed, and then compiled. */
#ifndef MIMO_BRIDGE_CALL_MAKER_H
#define MIMO_BRIDGE_CALL_MAKER_H

#include "bridge/routed/call_types.h"

/* For the tensors of an operation and a mimo_batch_split; and what releases it: `fill` and `empty`
 * of mimo_prepared_kind. */
mimo_status mimo_call_fill(mimo_prepared_call *call, mimo_op *op, const void *split);
void mimo_call_empty(mimo_prepared_call *call, mimo_comm *comm);

#endif
