#include "bridge/routed/routed_batch.h"

#include "bridge/routed/prepared_call.h"
#include "bridge/routed/routed_types.h"
#include "core/checked.h"
#include "core/memory.h"

static mimo_status fill(mimo_routed_batch *batch, const mimo_bridge *bridge)
{
    const mimo_routed *own = mimo_routed_of(bridge);
    batch->batch = batch->tile_rows[MIMO_SRC] = batch->tile_rows[MIMO_DST] = -1;
    for (int at = 0; at < MIMO_ENDPOINTS; at++)
        batch->layouts[at] = own->layouts[at];
    batch->splits =
        (mimo_batch_splits){{own->roles[MIMO_SRC], own->roles[MIMO_DST]}, bridge->rank, {NULL}};
    return mimo_plan_cache_create(&batch->plans, batch->layouts, bridge->rank);
}

mimo_status mimo_routed_batches_create(mimo_routed_batch **out, const mimo_bridge *bridge,
                                       int count)
{
    mimo_routed_batch *batches;
    mimo_status status = mimo_reserve(&batches, count, sizeof *batches);
    if (status != MIMO_OK)
        return status;
    for (int i = 0; i < count && status == MIMO_OK; i++)
        status = fill(&batches[i], bridge);
    if (status == MIMO_OK)
        *out = batches;
    else
        mimo_routed_batches_destroy(NULL, batches, count);
    return status;
}

void mimo_routed_batches_destroy(mimo_bridge *bridge, mimo_routed_batch *batches, int count)
{
    for (int i = 0; batches && i < count; i++) {
        mimo_prepared_calls_release(bridge, &batches[i].prepared);
        mimo_plan_cache_destroy(batches[i].plans);
        mimo_batch_splits_release(&batches[i].splits);
        mimo_release(batches[i].spans);
        for (int side = MIMO_SRC; side <= MIMO_DST; side++) {
            mimo_release(batches[i].items[side]);
            mimo_release(batches[i].first_item[side]);
        }
    }
    mimo_release(batches);
}

/* Rows of this rank's src tile. The samples are split evenly. */
static int64_t rows_of_samples(const mimo_routed_batch *batch)
{
    mimo_layout layout = *batch->splits.roles[MIMO_SRC];
    mimo_cell cell;
    int64_t rows = 0;
    layout.batch = batch->batch;
    if (!mimo_layout_cell(&cell, &layout, batch->splits.rank))
        return 0;
    mimo_range samples = mimo_layout_samples(&layout, cell.dp);
    for (int64_t i = 0; i < batch->layouts[MIMO_AT_SRC].span_count; i++)
        if (batch->spans[i].sample >= samples.first &&
            batch->spans[i].sample < samples.first + samples.count &&
            mimo_add(&rows, rows, batch->spans[i].length) != MIMO_OK)
            return INT64_MAX; /* no tile has that many */
    return rows;
}

void mimo_routed_batch_set_spans(mimo_routed_batch *batch, mimo_span *spans, int64_t count)
{
    batch->ragged = true;
    batch->spans = spans;
    for (int side = MIMO_AT_SRC; side <= MIMO_AT_DST; side++) {
        mimo_layout_desc *layout = &batch->layouts[side];
        layout->ragged = side == MIMO_AT_SRC ? MIMO_RAGGED_PACKED : MIMO_RAGGED_PLACED;
        layout->spans = spans;
        layout->span_count = count;
    }
    batch->tile_rows[MIMO_SRC] = rows_of_samples(batch);
    mimo_plan_cache_renew(batch->plans, batch->layouts);
}

mimo_status mimo_routed_batch_set_rows(mimo_routed_batch *batch, const int64_t *all, int64_t ranks)
{
    const mimo_batch_split *split;
    MIMO_TRY(mimo_batch_splits_resolve(&split, &batch->splits, all, ranks, "rows"));
    mimo_batch_splits_find(&batch->splits, split->hash)->users++; /* it is never forgotten */
    batch->rows = split;
    return MIMO_OK;
}
