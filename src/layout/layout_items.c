/* Layouts of items: a dp coordinate has the items that it lists, one after the other, of any
 * samples. All lists are known everywhere, so every question has a local answer. */
#include <inttypes.h>
#include <stdlib.h>

#include "layout/layout_types.h"
#include "core/checked.h"
#include "core/memory.h"
#include "core/mutation.h"
#include "core/search.h"

/* ------------------------------------------ checks ------------------------------------------ */

static mimo_status check_lists(const mimo_layout_desc *desc, int64_t dp)
{
    const int64_t *first = desc->first_item;
    MIMO_CHECK(first, MIMO_ERR_ARGUMENT, "layout: first_item is NULL");
    MIMO_CHECK(first[0] == 0, MIMO_ERR_ARGUMENT, "layout: first_item[0] is %" PRId64, first[0]);
    for (int64_t d = 0; d < dp; d++)
        MIMO_CHECK(first[d + 1] >= first[d], MIMO_ERR_ARGUMENT,
                   "layout: items of lane %" PRId64 " are %" PRId64 " to %" PRId64, d, first[d],
                   first[d + 1] - 1);
    MIMO_CHECK(first[dp] == 0 || desc->items, MIMO_ERR_ARGUMENT, "layout: %" PRId64 " items, NULL",
               first[dp]);
    return MIMO_OK;
}

static mimo_status check_item(const mimo_layout_desc *desc, const mimo_placed_item *placed)
{
    const mimo_item *item = &placed->item;
    int64_t end;
    bool exists = item->sample >= 0 && item->sample < desc->batch;
    bool has_rows = item->row >= 0 && item->rows > 0;
    MIMO_CHECK(exists && has_rows && !__builtin_add_overflow(item->row, item->rows, &end),
               MIMO_ERR_SHAPE,
               "item %" PRId64 " of lane %" PRId64 " has %" PRId64 " rows from row %" PRId64
               " of sample %" PRId64 ", one of %" PRId64,
               placed->index, placed->dp, item->rows, item->row, item->sample, desc->batch);
    return MIMO_OK;
}

/* The items of a sample follow each other from row 0 on. */
static mimo_status check_rows(const mimo_placed_item *before, const mimo_placed_item *placed)
{
    const mimo_item *item = &placed->item;
    bool follows = before && before->item.sample == item->sample;
    int64_t next = follows ? before->item.row + before->item.rows : 0;
    MIMO_CHECK(item->row >= next || MIMO_MUTATED("item-twice-allowed"), MIMO_ERR_SHAPE,
               "row %" PRId64 " of sample %" PRId64 " is in items of lanes %" PRId64
               " and %" PRId64,
               item->row, item->sample, follows ? before->dp : -1, placed->dp);
    MIMO_CHECK(item->row <= next, MIMO_ERR_SHAPE,
               "row %" PRId64 " of sample %" PRId64 " is in no item", next, item->sample);
    return MIMO_OK;
}

/* ------------------------------------------ filling ----------------------------------------- */

static int compare_items(const void *left, const void *right)
{
    const mimo_placed_item *a = left, *b = right;
    const int64_t keys[][2] = {{a->item.sample, b->item.sample},
                               {a->item.row, b->item.row},
                               {a->dp, b->dp},
                               {a->index, b->index}};
    for (int i = 0; i < 4; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

/* The items of a dp coordinate, where its tile has them. */
static mimo_status place_items(mimo_layout *layout, const mimo_layout_desc *desc, int64_t dp)
{
    int64_t first = desc->first_item[dp], count = desc->first_item[dp + 1] - first, row = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t index = MIMO_MUTATED("item-order-ignored") ? count - 1 - i : i;
        mimo_placed_item *placed = &layout->ragged.items[first + index];
        *placed = (mimo_placed_item){desc->items[first + index], dp, index, row};
        MIMO_TRY(check_item(desc, placed));
        MIMO_TRY(mimo_add(&row, row, placed->item.rows));
    }
    layout->ragged.first_item[dp + 1] = first + count;
    return MIMO_OK;
}

/* Sort the items, and count what each sample has. */
static mimo_status sort_items(mimo_layout *layout, int64_t count)
{
    mimo_ragged_rows *rows = &layout->ragged;
    if (count > 1)
        qsort(rows->items, (size_t)count, sizeof *rows->items, compare_items);
    for (int64_t i = 0; i < count; i++) {
        const mimo_placed_item *placed = &rows->items[i];
        int64_t after = placed->item.sample + 1;
        MIMO_TRY(check_rows(i > 0 ? placed - 1 : NULL, placed));
        MIMO_TRY(mimo_add(&rows->first_row[after], rows->first_row[after], placed->item.rows));
        rows->first_span[after]++;
        rows->in_tile[rows->first_item[placed->dp] + placed->index] = i;
    }
    return MIMO_OK;
}

/* With this check every number of rows in a plan fits 64 bits. */
static mimo_status sum_samples(mimo_layout *layout)
{
    mimo_ragged_rows *rows = &layout->ragged;
    int64_t everywhere;
    for (int64_t b = 0; b < layout->batch; b++) {
        MIMO_TRY(mimo_add(&rows->first_row[b + 1], rows->first_row[b + 1], rows->first_row[b]));
        rows->first_span[b + 1] += rows->first_span[b];
    }
    return mimo_mul(&everywhere, rows->first_row[layout->batch], layout->ranks);
}

mimo_status mimo_items_fill(mimo_layout *layout, const mimo_layout_desc *desc)
{
    mimo_ragged_rows *rows = &layout->ragged;
    int64_t dp = layout->dims.dp.size;
    MIMO_TRY(check_lists(desc, dp));
    int64_t count = desc->first_item[dp];
    MIMO_TRY(mimo_reserve(&rows->items, count, sizeof *rows->items));
    MIMO_TRY(mimo_reserve(&rows->in_tile, count, sizeof *rows->in_tile));
    MIMO_TRY(mimo_reserve(&rows->first_item, dp + 1, sizeof *rows->first_item));
    for (int64_t d = 0; d < dp; d++)
        MIMO_TRY(place_items(layout, desc, d));
    MIMO_TRY(sort_items(layout, count));
    return sum_samples(layout);
}

/* ----------------------------------------- questions ---------------------------------------- */

const mimo_placed_item *mimo_items_find(const mimo_layout *layout, int64_t sample, int64_t row)
{
    const mimo_ragged_rows *rows = &layout->ragged;
    int64_t first = rows->first_span[sample], count = rows->first_span[sample + 1] - first;
    const mimo_placed_item *items = rows->items + first;
    return items + mimo_last_at_most(&items->item.row, sizeof *items / sizeof(int64_t), count, row);
}

int64_t mimo_items_count(const mimo_layout *layout, int64_t dp)
{
    return layout->ragged.first_item[dp + 1] - layout->ragged.first_item[dp];
}

const mimo_placed_item *mimo_items_at(const mimo_layout *layout, int64_t dp, int64_t index)
{
    const mimo_ragged_rows *rows = &layout->ragged;
    return &rows->items[rows->in_tile[rows->first_item[dp] + index]];
}

mimo_box mimo_items_box(const mimo_placed_item *placed)
{
    const mimo_item *item = &placed->item;
    return (mimo_box){.b0 = item->sample,
                      .nb = 1,
                      .s0 = item->row,
                      .ns = item->rows,
                      .row0 = placed->first,
                      .row_b = item->rows,
                      .row_s = 1};
}
