/* mimo-plan bridge: checks every rule of a request, and makes its grids and layouts. */
#include <inttypes.h>
#include <stdio.h>

#include "layout/layout_types.h"
#include "core/checked.h"
#include "core/memory.h"
#include "grid/grid_types.h"
#include "plan_bridge.h"

static mimo_status make_grids(plan_bridge *bridge)
{
    const plan_bridge_request *request = bridge->request;
    const char *const specs[] = {request->src, request->dst};
    for (int side = MIMO_SRC; side <= MIMO_DST; side++) {
        int64_t own = request->offsets[side];
        MIMO_TRY(mimo_grid_create_text(&bridge->grids[side], specs[side],
                                       own >= 0 ? own : request->offset));
    }
    return MIMO_OK;
}

/* The rules of collective: the grids pair, and both dp sizes divide the batch. */
static mimo_status pair_up(plan_bridge *bridge)
{
    int64_t first, count;
    mimo_pairing pairing = MIMO_PAIRING_INIT;
    MIMO_TRY(mimo_pairing_of(&pairing, bridge->grids[MIMO_SRC], bridge->grids[MIMO_DST]));
    for (int side = MIMO_SRC; side <= MIMO_DST; side++)
        MIMO_TRY(mimo_pairing_samples(&first, &count, bridge->grids[side],
                                      mimo_grid_rank_offset(bridge->grids[side]),
                                      bridge->request->batch));
    bridge->pairing = pairing;
    return MIMO_OK;
}

/* The default algorithm of a bridge, routed, takes grids that break these rules: then the rule is
 * printed, and is no error. */
static mimo_status set_pairing(plan_bridge *bridge)
{
    mimo_status status = pair_up(bridge);
    if (status != MIMO_ERR_GRID && status != MIMO_ERR_SHAPE)
        return status;
    snprintf(bridge->broken, sizeof bridge->broken, "%s", mimo_last_error());
    return MIMO_OK;
}

static mimo_status set_ranks(plan_bridge *bridge)
{
    int64_t end = 0;
    bridge->first = INT64_MAX;
    for (int side = MIMO_SRC; side <= MIMO_DST; side++) {
        int64_t first = mimo_grid_rank_offset(bridge->grids[side]);
        int64_t after = first + mimo_grid_size(bridge->grids[side]);
        bridge->first = first < bridge->first ? first : bridge->first;
        end = after > end ? after : end;
    }
    bridge->ranks = end - bridge->first;
    bridge->first_shown = bridge->first;
    bridge->shown = bridge->ranks;
    int64_t rank = bridge->request->rank;
    if (rank < 0)
        return MIMO_OK;
    MIMO_CHECK(rank >= bridge->first && rank < end, MIMO_ERR_ARGUMENT,
               "rank %" PRId64 " is outside the grids, which have ranks %" PRId64 " to %" PRId64,
               rank, bridge->first, end - 1);
    bridge->first_shown = rank;
    bridge->shown = 1;
    return MIMO_OK;
}

/* The largest sum of bytes is an all-reduce and an all-gather of the whole batch on every rank: 4
 * batches for each rank. Where that fits, no later arithmetic on bytes overflows. */
static mimo_status multiply_bytes(plan_bridge *bridge, mimo_dtype dtype)
{
    const plan_bridge_request *request = bridge->request;
    int64_t bytes;
    MIMO_TRY(mimo_mul(&bridge->row_bytes, request->hidden, (int64_t)mimo_dtype_size(dtype)));
    MIMO_TRY(mimo_mul(&bytes, bridge->row_bytes, request->batch));
    MIMO_TRY(mimo_mul(&bytes, bytes, request->seq));
    return mimo_mul(&bytes, bytes, 4 * bridge->ranks);
}

static mimo_status set_row_bytes(plan_bridge *bridge)
{
    const plan_bridge_request *request = bridge->request;
    mimo_dtype dtype;
    MIMO_TRY(mimo_dtype_parse(&dtype, request->dtype));
    mimo_status status = multiply_bytes(bridge, dtype);
    if (status == MIMO_OK)
        return status;
    return mimo_fail_prefix(
        status,
        "bytes of batch %" PRId64 ", seq %" PRId64 ", hidden %" PRId64 " %s on %" PRId64 " ranks: ",
        request->batch, request->seq, request->hidden, request->dtype, bridge->ranks);
}

/* A partition splits the LLM's sequences, and the encoder's where its cp is larger than 1. */
static mimo_status make_layouts(plan_bridge *bridge)
{
    const plan_bridge_request *request = bridge->request;
    mimo_partition_rule rules[] = {MIMO_PARTITION_RULE_INIT, MIMO_PARTITION_RULE_INIT};
    rules[MIMO_DST].sp = request->sp;
    for (int side = MIMO_SRC; side <= MIMO_DST; side++) {
        mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
        bool cut = side == MIMO_DST || mimo_grid_dim_size(bridge->grids[side], "cp") > 1;
        desc.grid = bridge->grids[side];
        desc.order = request->order;
        desc.batch = request->batch;
        desc.seq = request->seq;
        desc.partition = cut ? &rules[side] : NULL;
        MIMO_TRY(mimo_layout_create(&bridge->layouts[side], &desc));
    }
    return MIMO_OK;
}

mimo_status plan_bridge_make(plan_bridge *bridge)
{
    MIMO_TRY(make_grids(bridge));
    MIMO_TRY(set_pairing(bridge));
    MIMO_TRY(set_ranks(bridge));
    MIMO_TRY(set_row_bytes(bridge));
    return make_layouts(bridge);
}

void plan_bridge_release(plan_bridge *bridge)
{
    for (int i = 0; i < 2; i++) {
        mimo_release(bridge->traffic[i]);
        mimo_layout_destroy(bridge->layouts[i]);
        mimo_grid_destroy(bridge->grids[i]);
    }
    mimo_release(bridge->flows);
    mimo_release(bridge->group);
}

bool plan_bridge_samples(const plan_bridge *bridge, mimo_side side, int64_t rank, int64_t *first,
                         int64_t *count)
{
    mimo_cell cell;
    if (!mimo_layout_cell(&cell, bridge->layouts[side], rank))
        return false;
    mimo_range samples = mimo_layout_samples(bridge->layouts[side], cell.dp);
    *first = samples.first;
    *count = samples.count;
    return true;
}
