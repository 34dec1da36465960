/* How the rows of a routed operation travel: pushed into buffers, staged, or neither. */
#include "bridge/routed/call_transport.h"

bool mimo_call_pushes(const mimo_op *op)
{
    const mimo_bridge *bridge = mimo_bridge_of(op);
    return mimo_routed_of(bridge)->can_push && mimo_bridge_pushes(bridge, op->call.backward);
}

/* Bytes: the shortest row that AUTO stages; the unit of every row length. By docs/gpu.md such rows
 * move in bulk, and their copies are long enough. */
enum { STAGED_ROW = 128, STAGED_UNIT = 16 };

/* A rank's peers make the same choice, because rows are as long there. How tensors are aligned can
 * differ between ranks, so it does not count. */
static bool suits_staging(const mimo_op *op)
{
    bool suits = true;
    for (int i = 0; i < op->call.n; i++) {
        int64_t bytes = op->tensors.pairs[i].src.row_bytes;
        suits = suits && bytes >= STAGED_ROW && bytes % STAGED_UNIT == 0;
    }
    return suits;
}

mimo_buffer *mimo_call_fifos(const mimo_op *op)
{
    const mimo_bridge *bridge = mimo_bridge_of(op);
    bool backward = op->call.backward;
    bool chosen = bridge->executor[backward].transport == MIMO_TRANSPORT_AUTO;
    if (!mimo_bridge_stages(bridge, backward) || (chosen && !suits_staging(op)))
        return NULL;
    return mimo_fifos_of(&bridge->fifos);
}

mimo_buffer *mimo_call_target(const mimo_op *op, int i)
{
    const mimo_tile *tile = mimo_tile_of(&op->tensors.pairs[i], mimo_op_to(op));
    if (!mimo_call_pushes(op))
        return NULL;
    return mimo_buffer_holding(op->mover->parent, tile->view.data, mimo_tile_bytes(tile));
}
