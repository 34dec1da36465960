#include "bridge/batch/bridge_batch.h"

#include "bridge/batch/bridge_sides.h"
#include "core/checked.h"
#include "core/memory.h"

static mimo_status fill(mimo_bridge_batch *batch, const mimo_bridge *bridge)
{
    const mimo_bridge_sides *sides = bridge->sides;
    batch->batch = batch->tile_rows[MIMO_SRC] = batch->tile_rows[MIMO_DST] = -1;
    for (int side = MIMO_SRC; side <= MIMO_DST; side++)
        batch->layouts[side] = sides->layouts[side];
    batch->splits =
        (mimo_batch_splits){{sides->roles[MIMO_SRC], sides->roles[MIMO_DST]}, bridge->rank, {NULL}};
    for (int i = 0; i < MIMO_EXECUTORS; i++)
        if (bridge->state[i] && bridge->executors[i]->batch_bytes > 0)
            MIMO_TRY(mimo_reserve(&batch->own[i], 1, bridge->executors[i]->batch_bytes));
    return MIMO_OK;
}

mimo_status mimo_bridge_batches_create(mimo_bridge_batch **out, mimo_bridge *bridge, int count)
{
    mimo_bridge_batch *batches;
    mimo_status status = mimo_reserve(&batches, count, sizeof *batches);
    if (status != MIMO_OK)
        return status;
    for (int i = 0; i < count && status == MIMO_OK; i++)
        status = fill(&batches[i], bridge);
    if (status == MIMO_OK)
        *out = batches;
    else
        mimo_bridge_batches_destroy(bridge, batches, count);
    return status;
}

static void release(mimo_bridge *bridge, mimo_bridge_batch *batch)
{
    for (int i = 0; i < MIMO_EXECUTORS; i++) {
        if (batch->own[i] && bridge->executors[i]->batch_release)
            bridge->executors[i]->batch_release(bridge, batch->own[i]);
        mimo_release(batch->own[i]);
    }
    mimo_batch_splits_release(&batch->splits);
    mimo_release(batch->spans);
    for (int side = MIMO_SRC; side <= MIMO_DST; side++) {
        mimo_release(batch->items[side]);
        mimo_release(batch->first_item[side]);
    }
}

void mimo_bridge_batches_destroy(mimo_bridge *bridge, mimo_bridge_batch *batches, int count)
{
    for (int i = 0; batches && i < count; i++)
        release(bridge, &batches[i]);
    mimo_release(batches);
}

/* Rows of this rank's src tile. The samples are split evenly. */
static int64_t rows_of_samples(const mimo_bridge_batch *batch)
{
    mimo_layout layout = *batch->splits.roles[MIMO_SRC];
    mimo_cell cell;
    int64_t rows = 0;
    layout.batch = batch->batch;
    if (!mimo_layout_cell(&cell, &layout, batch->splits.rank))
        return 0;
    mimo_range samples = mimo_layout_samples(&layout, cell.dp);
    for (int64_t i = 0; i < batch->layouts[MIMO_SRC].span_count; i++)
        if (batch->spans[i].sample >= samples.first &&
            batch->spans[i].sample < samples.first + samples.count &&
            mimo_add(&rows, rows, batch->spans[i].length) != MIMO_OK)
            return INT64_MAX; /* no tile has that many */
    return rows;
}

void mimo_bridge_batch_set_spans(mimo_bridge_batch *batch, mimo_span *spans, int64_t count)
{
    batch->ragged = true;
    batch->spans = spans;
    for (int side = MIMO_SRC; side <= MIMO_DST; side++) {
        mimo_layout_desc *layout = &batch->layouts[side];
        layout->ragged = side == MIMO_SRC ? MIMO_RAGGED_PACKED : MIMO_RAGGED_PLACED;
        layout->spans = spans;
        layout->span_count = count;
    }
    batch->tile_rows[MIMO_SRC] = rows_of_samples(batch);
}

mimo_status mimo_bridge_batch_set_rows(mimo_bridge_batch *batch, const int64_t *all, int64_t ranks)
{
    const mimo_batch_split *split;
    MIMO_TRY(mimo_batch_splits_resolve(&split, &batch->splits, all, ranks, "rows"));
    mimo_batch_splits_find(&batch->splits, split->hash)->users++; /* it is never forgotten */
    batch->rows = split;
    return MIMO_OK;
}
