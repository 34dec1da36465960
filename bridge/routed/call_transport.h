/* How the rows of a routed operation travel. */
#ifndef MIMO_BRIDGE_CALL_TRANSPORT_H
#define MIMO_BRIDGE_CALL_TRANSPORT_H

#include "bridge/routed/call_types.h"

/* Whether rows that go to a buffer are pushed. */
bool mimo_call_pushes(const mimo_op *op);

/* The buffer that tensor i is pushed into, or NULL. */
mimo_buffer *mimo_call_target(const mimo_op *op, int i);

/* What messages are staged through, or NULL. */
mimo_buffer *mimo_call_fifos(const mimo_op *op);

#endif
