/* Creation and release of the collective executor: the pairs of grids that it takes, its groups. */
#include <inttypes.h>

#include "bridge/collective/collective_types.h"
#include "core/check.h"
#include "core/memory.h"
#include "core/mutation.h"
#include "grid/grid_types.h"

static mimo_status check_desc(const mimo_bridge *bridge, const mimo_bridge_desc *desc)
{
    MIMO_CHECK(!desc->partition || desc->partition->format == MIMO_SBHD, MIMO_ERR_UNSUPPORTED,
               "bridge: packed (thd) partitions are not supported by the collective executor");
    int64_t src_dp = mimo_grid_dim_size(desc->src, "dp"), batch = desc->batch;
    int64_t dst_dp = mimo_grid_dim_size(desc->dst, "dp");
    MIMO_CHECK(batch < 0 || (batch % src_dp == 0 && batch % dst_dp == 0), MIMO_ERR_SHAPE,
               "bridge: dp=%" PRId64 " of src and dp=%" PRId64 " of dst do not both divide a batch "
               "of %" PRId64 ", which the collective executor asks for",
               src_dp, dst_dp, batch);
    MIMO_CHECK(!desc->src_partition, MIMO_ERR_UNSUPPORTED,
               "bridge: a partition of the src tile is not supported by the collective executor");
    int64_t first = mimo_grid_rank_offset(desc->src), size = mimo_grid_size(desc->src);
    MIMO_CHECK(first == 0 && size == bridge->size, MIMO_ERR_GRID,
               "bridge: the src grid has ranks [%" PRId64 ", %" PRId64
               "), the communicator has %" PRId64 " ranks",
               first, first + size, bridge->size);
    return MIMO_OK;
}

/* A partition that cuts nothing counts as none. */
static mimo_status attach_partition(mimo_collective *own, const mimo_bridge *bridge,
                                    const mimo_partition_rule *rule)
{
    int64_t tp = mimo_grid_dim_size(bridge->dst, "tp");
    own->rules.cuts = 1;
    if (!rule || (own->cp == 1 && !(rule->sp && tp > 1)))
        return MIMO_OK;
    mimo_partition_coords coords = {sizeof(mimo_partition_coords), 0, own->cp, 0, tp};
    MIMO_TRY(mimo_grid_coord(&coords.cp_rank, bridge->dst, bridge->rank, "cp"));
    MIMO_TRY(mimo_grid_coord(&coords.tp_rank, bridge->dst, bridge->rank, "tp"));
    MIMO_TRY(mimo_partition_create(&own->partition, rule, &coords));
    own->rule = *rule;
    own->sp = rule->sp && tp > 1;
    own->rules.partition = own->partition;
    own->rules.cuts = own->cp * (rule->sp ? tp : 1);
    return MIMO_OK;
}

mimo_status mimo_collective_create(mimo_bridge *bridge, const mimo_bridge_desc *desc)
{
    MIMO_TRY(check_desc(bridge, desc));
    mimo_collective *own;
    MIMO_TRY(mimo_reserve(&own, 1, sizeof *own));
    bridge->state[MIMO_ALGORITHM_COLLECTIVE] = own;
    own->cp = mimo_grid_dim_size(bridge->dst, "cp");
    own->rules.memory = bridge->memory;
    MIMO_TRY(mimo_pairing_of(&bridge->pairing, bridge->src, bridge->dst));
    MIMO_TRY(mimo_pairing_slot(NULL, &bridge->slot, bridge->src, bridge->dst, bridge->rank));
    own->rules.pairing = bridge->pairing;
    if (MIMO_MUTATED("no-slice"))
        own->rules.pairing.scale = 1;
    return attach_partition(own, bridge, desc->partition);
}

/* Ranks that hold contributions to the same gradients. */
static mimo_status connect_sum(mimo_bridge *bridge)
{
    mimo_comm **sum = &mimo_collective_of(bridge)->cp_sum;
    if (MIMO_MUTATED("sum-over-dp"))
        return mimo_grid_split(sum, bridge->mover.comm, bridge->dst, "cp,dp");
    return mimo_grid_split(sum, bridge->mover.comm, bridge->dst, "cp");
}

/* Ranks that hold one another's samples. */
static mimo_status connect_gather(mimo_bridge *bridge)
{
    int64_t index, slot;
    MIMO_TRY(mimo_pairing_slot(&index, &slot, bridge->src, bridge->dst, bridge->rank));
    if (MIMO_MUTATED("gather-reversed"))
        slot = -slot;
    return mimo_comm_split(&mimo_collective_of(bridge)->gather, bridge->mover.comm, (int)index,
                           (int)slot);
}

mimo_status mimo_collective_connect(mimo_bridge *bridge)
{
    mimo_collective *own = mimo_collective_of(bridge);
    if (own->cp > 1 && !MIMO_MUTATED("no-cp-sum"))
        MIMO_TRY(connect_sum(bridge));
    if (own->sp)
        MIMO_TRY(mimo_grid_split(&own->sp_join, bridge->mover.comm, bridge->dst, "tp"));
    return bridge->pairing.fan == MIMO_FAN_EQUAL ? MIMO_OK : connect_gather(bridge);
}

/* The groups. Its rules stay. */
void mimo_collective_disconnect(mimo_bridge *bridge)
{
    mimo_collective *own = mimo_collective_of(bridge);
    mimo_comm_destroy(own->gather);
    mimo_comm_destroy(own->sp_join);
    mimo_comm_destroy(own->cp_sum);
    own->gather = own->sp_join = own->cp_sum = NULL;
}

void mimo_collective_destroy(mimo_bridge *bridge)
{
    mimo_collective *own = mimo_collective_of(bridge);
    mimo_collective_disconnect(bridge);
    mimo_partition_destroy(own->partition);
    mimo_release(own);
    bridge->state[MIMO_ALGORITHM_COLLECTIVE] = NULL;
}

mimo_layout_desc mimo_collective_side_layout(const mimo_bridge *bridge, mimo_side side)
{
    const mimo_collective *own = mimo_collective_of(bridge);
    mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
    desc.grid = side == MIMO_SRC ? bridge->src : bridge->dst;
    if (side == MIMO_DST) {
        desc.partition = own->partition ? &own->rule : NULL;
        desc.cp_copies = MIMO_COPIES_PARTIAL;
    }
    return desc;
}
