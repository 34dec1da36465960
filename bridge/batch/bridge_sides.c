#include "bridge/batch/bridge_sides.h"

#include <inttypes.h>
#include <string.h>

#include "core/check.h"
#include "core/memory.h"
#include "partition/packed_rule.h"

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
static mimo_status keep_lengths(mimo_bridge_sides *own, mimo_side side)
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
static mimo_status set_role(mimo_bridge_sides *own, mimo_side side)
{
    mimo_layout_desc desc = own->layouts[side];
    if (mimo_rule_is_packed(desc.partition))
        desc.seq = mimo_rule_positions(desc.partition);
    return mimo_layout_create(&own->roles[side], &desc);
}

/* A partition that cuts nothing counts as none; a packed one is kept, as it gives T. */
static mimo_status set_side(mimo_bridge_sides *own, mimo_side side, const mimo_grid *grid,
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

mimo_status mimo_bridge_sides_create(mimo_bridge *bridge, const mimo_bridge_desc *desc)
{
    mimo_bridge_sides *own;
    if (bridge->sides)
        return MIMO_OK;
    MIMO_TRY(check_ranks(bridge, desc->src, "src"));
    MIMO_TRY(check_ranks(bridge, desc->dst, "dst"));
    MIMO_TRY(mimo_reserve(&own, 1, sizeof *own));
    bridge->sides = own;
    MIMO_TRY(set_side(own, MIMO_SRC, desc->src, desc->src_partition));
    MIMO_TRY(set_side(own, MIMO_DST, desc->dst, desc->partition));
    own->layouts[MIMO_DST].all_stages = desc->all_stages;
    MIMO_TRY(set_role(own, MIMO_SRC));
    return set_role(own, MIMO_DST);
}

void mimo_bridge_sides_destroy(mimo_bridge *bridge)
{
    mimo_bridge_sides *own = bridge->sides;
    for (int side = 0; own && side < 2; side++) {
        mimo_layout_destroy(own->roles[side]);
        mimo_release(own->packed[side]);
    }
    mimo_release(own);
    bridge->sides = NULL;
}
