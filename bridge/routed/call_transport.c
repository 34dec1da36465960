/* How the rows of a routed operation travel: pushed into buffers, staged, or neither. */
#include "bridge/routed/call_maker.h"

bool mimo_call_pushes(const mimo_op *op)
{
    const mimo_bridge *bridge = mimo_bridge_of(op);
    return mimo_routed_of(bridge)->can_push &&
           mimo_executor_pushes(bridge->executor[op->call.backward]);
}

mimo_buffer *mimo_call_fifos(const mimo_op *op)
{
    const mimo_bridge *bridge = mimo_bridge_of(op);
    return mimo_executor_stages(bridge->executor[op->call.backward]) ? mimo_fifos_of(&bridge->fifos)
                                                                     : NULL;
}

mimo_buffer *mimo_call_target(const mimo_op *op, int i)
{
    const mimo_tile *tile = mimo_tile_of(&op->tensors.pairs[i], mimo_op_to(op));
    if (!mimo_call_pushes(op))
        return NULL;
    return mimo_buffer_holding(op->mover->parent, tile->view.data, mimo_tile_bytes(tile));
}

/* A buffer made anew may take the place of one that ended, in memory of this rank and not of its
 * peers. So a call remembers the serial. */
uint64_t mimo_call_serial(const mimo_buffer *buffer)
{
    return buffer ? buffer->serial : 0;
}
