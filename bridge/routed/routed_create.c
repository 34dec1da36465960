/* Creation and release of the routed executor: shards, flags of its own, and the layouts that its
 * plans know. */
#include "bridge/routed/routed_types.h"
#include "core/check.h"
#include "core/memory.h"

/* The shards that a partition over cp would cut full dst tiles into. Only ranks of the first
 * pipeline stage have one. */
static void set_shards(mimo_routed *own, const mimo_bridge *bridge)
{
    own->shard_rule = (mimo_partition_rule)MIMO_PARTITION_RULE_INIT;
    own->shard_layout = (mimo_layout_desc)MIMO_LAYOUT_DESC_INIT;
    own->shard_layout.grid = bridge->dst;
    own->shard_layout.partition = &own->shard_rule;
    own->shards =
        bridge->sides->layouts[MIMO_DST].partition ? 1 : mimo_grid_dim_size(bridge->dst, "cp");
}

/* The routed executor needs no pairing. Where there is one, the accessors show it. */
static mimo_status show_pairing(mimo_bridge *bridge)
{
    if (mimo_pairing_of(&bridge->pairing, bridge->src, bridge->dst) != MIMO_OK ||
        !mimo_grid_contains(bridge->src, bridge->rank))
        return MIMO_OK;
    return mimo_pairing_slot(NULL, &bridge->slot, bridge->src, bridge->dst, bridge->rank);
}

mimo_status mimo_routed_create(mimo_bridge *bridge, const mimo_bridge_desc *desc)
{
    mimo_routed *own;
    MIMO_TRY(mimo_reserve(&own, 1, sizeof *own));
    bridge->state[MIMO_ALGORITHM_ROUTED] = own;
    own->push_rule = (mimo_push_rule){.idle = desc->destinations_idle, .ctas = desc->ctas};
    set_shards(own, bridge);
    return show_pairing(bridge);
}

/* The bridge has flags of its own; buffer_state.h says why. Where ranks share no memory there are
 * no buffers, so nothing is pushed. */
mimo_status mimo_routed_connect(mimo_bridge *bridge)
{
    mimo_routed *own = mimo_routed_of(bridge);
    bool wanted = mimo_bridge_pushes(bridge, false) || mimo_bridge_pushes(bridge, true);
    own->can_push = true;
    own->push_rule.reserved = bridge->mover.lane.blocks;
    if (!wanted || bridge->mover.comm->device->enqueues)
        return MIMO_OK;
    mimo_status status = mimo_buffer_create_internal(&own->push_rule.flags, bridge->mover.comm, 0);
    if (status != MIMO_ERR_UNSUPPORTED || mimo_bridge_wants_buffers(bridge))
        return status;
    own->can_push = false;
    return MIMO_OK;
}

void mimo_routed_destroy(mimo_bridge *bridge)
{
    mimo_routed *own = mimo_routed_of(bridge);
    mimo_buffer_destroy(own->push_rule.flags);
    mimo_release(own);
    bridge->state[MIMO_ALGORITHM_ROUTED] = NULL;
}

void mimo_routed_layouts(mimo_layout_desc out[MIMO_ENDPOINTS], const mimo_bridge *bridge,
                         const mimo_bridge_batch *batch)
{
    out[MIMO_AT_SRC] = batch->layouts[MIMO_SRC];
    out[MIMO_AT_DST] = batch->layouts[MIMO_DST];
    out[MIMO_AT_SHARDS] = mimo_routed_of(bridge)->shard_layout;
}
