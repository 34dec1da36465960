/* The staging of a routed pass: classes that are added to their target, and rows of messages. */
#include "bridge/routed/call_phases.h"
#include "core/checked.h"

enum { MESSAGE_ALIGNMENT = 16 }; /* the most of any backend that packs */

/* The rows that one exchange moves in messages. Rows of class 0 are pushed where they can be. */
static mimo_status add_messages(mimo_staging_bytes *out, const mimo_plan *plan, int64_t row_bytes,
                                bool pushes)
{
    int64_t *sums[] = {[MIMO_RECV] = &out->arriving, [MIMO_SEND] = &out->leaving};
    for (int kind = MIMO_RECV; kind <= MIMO_SEND; kind++) {
        int64_t count, bytes, all = 0;
        const mimo_block *blocks = mimo_plan_blocks(&count, plan, (mimo_block_kind)kind);
        for (int64_t i = 0; i < count; i++) {
            if (pushes && blocks[i].contribution == 0)
                continue;
            MIMO_TRY(mimo_mul(&bytes, blocks[i].nb * blocks[i].ns, row_bytes));
            MIMO_TRY(mimo_add(&all, all, bytes));
            MIMO_TRY(mimo_add(&all, all, MESSAGE_ALIGNMENT)); /* at most one message a block */
        }
        *sums[kind] = all > *sums[kind] ? all : *sums[kind];
    }
    return MIMO_OK;
}

static mimo_status add_area(int64_t *sum, int64_t bytes)
{
    MIMO_TRY(mimo_add(&bytes, bytes, MIMO_STAGING_ALIGNMENT - 1));
    return mimo_add(sum, *sum, bytes / MIMO_STAGING_ALIGNMENT * MIMO_STAGING_ALIGNMENT);
}

static const mimo_tile *tile_at(const mimo_staged_pass *it, mimo_endpoint end)
{
    return &it->tile[end == MIMO_AT_SRC ? MIMO_SRC : MIMO_DST];
}

static mimo_status make_plan(mimo_plan **out, const mimo_staged_pass *it, mimo_endpoints ends)
{
    const int64_t *src = it->rows ? it->rows->samples[MIMO_SRC] : NULL;
    const int64_t *dst = it->rows ? it->rows->samples[MIMO_DST] : NULL;
    const mimo_bridge_batch *batch = mimo_bridge_batch_now(it->bridge);
    const mimo_plan_key key = {
        .ends = ends,
        .order = {mimo_tile_order(tile_at(it, ends.from)), mimo_tile_order(tile_at(it, ends.to))},
        .batch = it->batch,
        .seq = mimo_bridge_batch_packs(batch, MIMO_DST) ? batch->flat_seq : it->seq,
        .samples = {src, dst, dst}};
    mimo_layout_desc layouts[MIMO_ENDPOINTS];
    mimo_routed_layouts(layouts, it->bridge, batch);
    return mimo_plan_of_key(out, layouts, &key, it->bridge->rank);
}

/* One exchange, and staging for the classes that are added to its target. */
static mimo_status add_route(mimo_staging_bytes *out, const mimo_staged_pass *it,
                             mimo_endpoint from, mimo_endpoint to)
{
    mimo_plan *plan;
    const mimo_bridge *bridge = it->bridge;
    const mimo_tile *tile = tile_at(it, to);
    int64_t bytes = mimo_routed_bytes_at(mimo_routed_of(bridge), to, tile), area;
    bool pushes = it->in_buffer && to != MIMO_AT_SHARDS && mimo_bridge_pushes(bridge, it->backward);
    MIMO_TRY(make_plan(&plan, it, (mimo_endpoints){from, to}));
    mimo_status status = mimo_mul(&area, mimo_plan_classes(plan) - 1, bytes);
    if (status == MIMO_OK)
        status = add_area(&out->contributions, area);
    if (status == MIMO_OK && to == MIMO_AT_SHARDS)
        status = add_area(&out->contributions, bytes); /* the sums themselves */
    if (status == MIMO_OK)
        status = add_messages(out, plan, tile->row_bytes, pushes);
    mimo_plan_destroy(plan);
    return status;
}

mimo_status mimo_routed_staging(mimo_staging_bytes *out, const mimo_staged_pass *pass)
{
    const mimo_bridge *bridge = pass->bridge;
    const mimo_bridge_batch *batch = mimo_bridge_batch_now(bridge);
    bool flat = mimo_tile_is_flat(&pass->tile[MIMO_SRC].view) &&
                mimo_tile_is_flat(&pass->tile[MIMO_DST].view);
    if (!pass->backward)
        return add_route(out, pass, MIMO_AT_SRC, MIMO_AT_DST);
    if (!mimo_routed_two_phases(bridge, batch, flat ? 1 : pass->seq))
        return add_route(out, pass, MIMO_AT_DST, MIMO_AT_SRC);
    MIMO_TRY(add_route(out, pass, MIMO_AT_DST, MIMO_AT_SHARDS));
    return add_route(out, pass, MIMO_AT_SHARDS, MIMO_AT_SRC);
}
