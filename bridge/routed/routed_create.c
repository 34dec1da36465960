/* Creation and release of the routed executor: the layouts of both sides. */
#include <inttypes.h>
#include <string.h>

#include "bridge/routed/routed_types.h"
#include "core/check.h"
#include "core/memory.h"

enum { TOLD_BYTES = 512 }; /* at first: some twenty spans of a rank */

static mimo_status check_ranks(const mimo_bridge *bridge, const mimo_grid *grid, const char *side)
{
    int64_t first = mimo_grid_rank_offset(grid), size = mimo_grid_size(grid);
    MIMO_CHECK(first + size <= bridge->size, MIMO_ERR_GRID,
               "bridge: the %s grid has ranks [%" PRId64 ", %" PRId64
               "), the communicator has %" PRId64 " ranks",
               side, first, first + size, bridge->size);
    return MIMO_OK;
}

/* The lengths of a thd rule that drive its split, in memory of our own. */
static mimo_status keep_lengths(mimo_routed *own, mimo_side side)
{
    mimo_partition_rule *rule = &own->rules[side];
    if (!mimo_rule_is_packed(rule))
        return MIMO_OK; /* or wrong, which the layout reports */
    const int32_t *lengths = mimo_rule_lengths(rule);
    int64_t count = rule->sequences + 1;
    MIMO_TRY(mimo_reserve(&own->packed[side], count, sizeof *own->packed[side]));
    memcpy(own->packed[side], lengths, (size_t)count * sizeof *lengths);
    rule->cu = own->packed[side];
    rule->cu_padded = NULL;
    return MIMO_OK;
}

/* A layout of no samples, which also checks the rule. */
static mimo_status set_role(mimo_routed *own, mimo_side side)
{
    mimo_layout_desc desc = own->layouts[side];
    if (mimo_rule_is_packed(desc.partition))
        desc.seq = mimo_rule_positions(desc.partition);
    return mimo_layout_create(&own->roles[side], &desc);
}

/* A partition that cuts nothing counts as none; a packed one is kept, as it gives T. */
static mimo_status set_side(mimo_routed *own, mimo_side side, const mimo_grid *grid,
                            const mimo_partition_rule *rule)
{
    int64_t cp = mimo_grid_dim_size(grid, "cp"), tp = mimo_grid_dim_size(grid, "tp");
    mimo_layout_desc *desc = &own->layouts[side];
    *desc = (mimo_layout_desc)MIMO_LAYOUT_DESC_INIT;
    desc->grid = grid;
    desc->cp_copies = side == MIMO_DST ? MIMO_COPIES_PARTIAL : MIMO_COPIES_EQUAL;
    own->sequence_ranks[side] = 1;
    if (rule && (cp > 1 || (rule->sp && tp > 1) || rule->format == MIMO_THD)) {
        own->rules[side] = *rule;
        own->sequence_ranks[side] = cp * (rule->sp ? tp : 1);
        desc->partition = &own->rules[side];
        MIMO_TRY(keep_lengths(own, side));
    }
    return MIMO_OK;
}

/* The shards that a partition over cp would cut full dst tiles into. Only ranks of the first
 * pipeline stage have one. */
static void set_shards(mimo_routed *own, const mimo_grid *dst)
{
    mimo_layout_desc *desc = &own->layouts[MIMO_AT_SHARDS];
    *desc = (mimo_layout_desc)MIMO_LAYOUT_DESC_INIT;
    own->rules[MIMO_AT_SHARDS] = (mimo_partition_rule)MIMO_PARTITION_RULE_INIT;
    desc->grid = dst;
    desc->partition = &own->rules[MIMO_AT_SHARDS];
    own->shards = own->layouts[MIMO_DST].partition ? 1 : mimo_grid_dim_size(dst, "cp");
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
    MIMO_TRY(check_ranks(bridge, desc->src, "src"));
    MIMO_TRY(check_ranks(bridge, desc->dst, "dst"));
    mimo_routed *own;
    MIMO_TRY(mimo_reserve(&own, 1, sizeof *own));
    bridge->state[MIMO_ALGORITHM_ROUTED] = own;
    own->first_batch = desc->batch;
    own->given_bytes = TOLD_BYTES;
    MIMO_TRY(set_side(own, MIMO_SRC, desc->src, desc->src_partition));
    MIMO_TRY(set_side(own, MIMO_DST, desc->dst, desc->partition));
    own->push_rule = (mimo_push_rule){.idle = desc->destinations_idle, .ctas = desc->ctas};
    own->layouts[MIMO_DST].all_stages = desc->all_stages;
    set_shards(own, desc->dst);
    MIMO_TRY(set_role(own, MIMO_SRC));
    MIMO_TRY(set_role(own, MIMO_DST));
    MIMO_TRY(show_pairing(bridge));
    MIMO_TRY(mimo_routed_batches_create(&own->batches, bridge, 1));
    own->batches[0].batch = desc->batch;
    return MIMO_OK;
}

/* The bridge has flags of its own; buffer_state.h says why. Where ranks share no memory there are
 * no buffers, so nothing is pushed. */
mimo_status mimo_routed_connect(mimo_bridge *bridge)
{
    mimo_routed *own = mimo_routed_of(bridge);
    bool wanted = mimo_bridge_pushes(bridge, false) || mimo_bridge_pushes(bridge, true);
    own->can_push = true;
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
    mimo_routed_batches_destroy(bridge, own->batches, bridge->batch_count);
    mimo_buffer_destroy(own->push_rule.flags);
    for (int side = 0; side < 2; side++) {
        mimo_layout_destroy(own->roles[side]);
        mimo_release(own->packed[side]);
    }
    mimo_release(own);
    bridge->state[MIMO_ALGORITHM_ROUTED] = NULL;
}
