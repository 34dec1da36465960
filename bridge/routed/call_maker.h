/* How a prepared call is made: its phases are planned, its tensors placed, and then compiled. */
#ifndef MIMO_BRIDGE_CALL_MAKER_H
#define MIMO_BRIDGE_CALL_MAKER_H

#include "bridge/routed/call_types.h"

/* A call for the tensors of an operation. NULL can be destroyed. */
mimo_status mimo_call_make(mimo_prepared_call **out, mimo_op *op, const mimo_batch_split *split);
void mimo_call_destroy(mimo_bridge *bridge, mimo_prepared_call *call);

#endif
