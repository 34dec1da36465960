/* Batches whose tiles hold items. Every rank is given all of them, so all checks are local, and
 * come to the same result everywhere. */
#include <inttypes.h>
#include <string.h>

#include "bridge/batch/bridge_batch.h"
#include "core/checked.h"
#include "core/descriptor.h"
#include "core/memory.h"

MIMO_DEFINE_INIT(mimo_batch_items, MIMO_BATCH_ITEMS_INIT)

/* A batch in making. */
typedef struct items_maker {
    mimo_bridge_batch *batch;
    const mimo_batch_desc *desc;
    mimo_batch_items items;
    int64_t *rows; /* rows[samples], by the src items */
} items_maker;

static mimo_status check_desc(const items_maker *it)
{
    const mimo_batch_items *items = &it->items;
    bool placed = !items->dst_first && !items->dst_packed;
    MIMO_CHECK(items->src_first, MIMO_ERR_ARGUMENT, "items: src_first is NULL");
    MIMO_CHECK(!items->dst_first || !items->dst_packed, MIMO_ERR_ARGUMENT,
               "dst tiles hold items, or all rows of their samples");
    MIMO_CHECK(placed || it->desc->span_count == 0, MIMO_ERR_ARGUMENT,
               "%" PRId64 " spans, and dst tiles have no positions", it->desc->span_count);
    MIMO_CHECK(placed || !it->batch->layouts[MIMO_DST].partition, MIMO_ERR_UNSUPPORTED,
               "dst tiles %s, and the bridge has a partition",
               items->dst_packed ? "hold all rows of their samples" : "hold items");
    return MIMO_OK;
}

/* ------------------------------------------- items ------------------------------------------ */

/* The layout of a side, for questions that do not depend on S. */
static mimo_status layout_of(mimo_layout **out, const mimo_bridge_batch *batch, mimo_side side)
{
    mimo_layout_desc desc = batch->layouts[side];
    desc.batch = batch->batch;
    desc.seq = batch->flat_seq;
    return mimo_layout_create(out, &desc);
}

static mimo_status copy_items(const items_maker *it, mimo_side side, const mimo_item *items,
                              const int64_t *first)
{
    mimo_bridge_batch *batch = it->batch;
    mimo_layout_desc *layout = &batch->layouts[side];
    int64_t dp = mimo_grid_dim_size(layout->grid, "dp"), count = first[dp];
    MIMO_CHECK(count >= 0 && (items || count == 0), MIMO_ERR_ARGUMENT, "%" PRId64 " %s items%s",
               count, mimo_side_names[side], items ? "" : ", NULL");
    MIMO_TRY(mimo_duplicate(&batch->first_item[side], first, dp + 1, sizeof *first));
    MIMO_TRY(mimo_duplicate(&batch->items[side], items, count, sizeof *items));
    layout->ragged = MIMO_RAGGED_ITEMS;
    layout->items = batch->items[side];
    layout->first_item = batch->first_item[side];
    return MIMO_OK;
}

/* Read the items of a side: the layout checks them. */
static mimo_status take_items(const items_maker *it, mimo_side side)
{
    mimo_layout *layout;
    mimo_bridge_batch *batch = it->batch;
    bool src = side == MIMO_SRC;
    MIMO_TRY(copy_items(it, side, src ? it->items.src : it->items.dst,
                        src ? it->items.src_first : it->items.dst_first));
    mimo_status status = layout_of(&layout, batch, side);
    if (status != MIMO_OK)
        return mimo_fail_prefix(status, "%s items: ", mimo_side_names[side]);
    status = mimo_layout_rows(&batch->tile_rows[side], layout, batch->splits.rank);
    for (int64_t b = 0; status == MIMO_OK && b < batch->batch; b++) {
        int64_t rows = mimo_ragged_sample_rows(layout, b);
        if (src)
            it->rows[b] = rows;
        else if (it->rows[b] != rows)
            status = mimo_fail(MIMO_ERR_SHAPE,
                               "sample %" PRId64 " has %" PRId64 " rows in src items and %" PRId64
                               " in dst items",
                               b, it->rows[b], rows);
    }
    mimo_layout_destroy(layout);
    return status;
}

/* ------------------------------------------- spans ------------------------------------------ */

/* Spans that the caller gave: where they lie is checked by calls, which know S. */
static mimo_status take_spans(const items_maker *it)
{
    const mimo_batch_desc *desc = it->desc;
    int64_t *left = it->rows;
    for (int64_t i = 0; i < desc->span_count; i++) {
        const mimo_span *span = &desc->spans[i];
        MIMO_CHECK(span->sample >= 0 && span->sample < desc->batch && span->length > 0,
                   MIMO_ERR_SHAPE,
                   "span %" PRId64 " has %" PRId64 " rows of sample %" PRId64 " of %" PRId64, i,
                   span->length, span->sample, desc->batch);
        MIMO_TRY(mimo_add(&left[span->sample], left[span->sample], -span->length));
    }
    return mimo_duplicate(&it->batch->spans, desc->spans, desc->span_count, sizeof *desc->spans);
}

static int64_t rows_in_spans(const mimo_batch_desc *desc, int64_t sample)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < desc->span_count; i++)
        rows += desc->spans[i].sample == sample ? desc->spans[i].length : 0;
    return rows;
}

static mimo_status place_rows(const items_maker *it)
{
    mimo_layout_desc *layout = &it->batch->layouts[MIMO_DST];
    MIMO_TRY(take_spans(it));
    for (int64_t b = 0; b < it->desc->batch; b++) {
        int64_t rows = it->rows[b] == 0 ? 0 : rows_in_spans(it->desc, b);
        MIMO_CHECK(it->rows[b] == 0, MIMO_ERR_SHAPE,
                   "sample %" PRId64 " has %" PRId64 " rows in items and %" PRId64 " in spans", b,
                   it->rows[b] + rows, rows);
    }
    layout->ragged = MIMO_RAGGED_PLACED;
    layout->spans = it->batch->spans;
    layout->span_count = it->desc->span_count;
    return MIMO_OK;
}

/* All rows of each sample, as one span. */
static mimo_status pack_rows(const items_maker *it)
{
    mimo_layout *made;
    mimo_bridge_batch *batch = it->batch;
    mimo_layout_desc *layout = &batch->layouts[MIMO_DST];
    MIMO_TRY(mimo_reserve(&batch->spans, batch->batch, sizeof *batch->spans));
    layout->ragged = MIMO_RAGGED_PACKED;
    layout->spans = batch->spans;
    layout->span_count = 0;
    for (int64_t b = 0; b < batch->batch; b++)
        if (it->rows[b] > 0)
            batch->spans[layout->span_count++] = (mimo_span){b, 0, 0, it->rows[b]};
    MIMO_TRY(layout_of(&made, batch, MIMO_DST));
    mimo_status status = mimo_layout_rows(&batch->tile_rows[MIMO_DST], made, batch->splits.rank);
    mimo_layout_destroy(made);
    return status;
}

/* -------------------------------------------- all ------------------------------------------- */

static mimo_status set_sides(const items_maker *it)
{
    mimo_bridge_batch *batch = it->batch;
    MIMO_TRY(take_items(it, MIMO_SRC));
    for (int64_t b = 0; b < batch->batch; b++)
        batch->flat_seq = it->rows[b] > batch->flat_seq ? it->rows[b] : batch->flat_seq;
    if (it->items.dst_first)
        return take_items(it, MIMO_DST);
    return it->items.dst_packed ? pack_rows(it) : place_rows(it);
}

mimo_status mimo_bridge_batch_set_items(mimo_bridge_batch *batch, const mimo_batch_desc *desc)
{
    items_maker it = {.batch = batch, .desc = desc, .items = MIMO_BATCH_ITEMS_INIT};
    MIMO_TRY(mimo_read_descriptor(&it.items, sizeof it.items, desc->items, "items"));
    MIMO_TRY(check_desc(&it));
    MIMO_TRY(mimo_reserve(&it.rows, desc->batch, sizeof *it.rows));
    batch->ragged = true;
    mimo_status status = set_sides(&it);
    mimo_release(it.rows);
    return status;
}
