/* Boxes: the rows of a cell as rectangles, and the box that has a row. */
#include <inttypes.h>

#include "layout/layout_types.h"
#include "core/check.h"

static mimo_box box_of(const mimo_layout *layout, mimo_range samples, const mimo_run *run)
{
    mimo_box box = {.b0 = samples.first, .nb = samples.count, .s0 = run->global, .ns = run->length};
    bool sbh = layout->order == MIMO_ROWS_SBH;
    box.row_b = sbh ? 1 : layout->shard;
    box.row_s = sbh ? samples.count : 1;
    box.row0 = run->local * box.row_s;
    return box;
}

int64_t mimo_layout_pieces(const mimo_layout *layout, const mimo_cell *cell)
{
    return layout->ragged.kind ? mimo_ragged_pieces(layout, cell) : layout->segments;
}

int mimo_layout_piece_boxes(const mimo_layout *layout, const mimo_cell *cell, int64_t piece,
                            mimo_box *boxes)
{
    mimo_run runs[MIMO_LAYOUT_BOXES];
    if (layout->ragged.kind)
        return mimo_ragged_boxes(layout, cell, piece, boxes);
    mimo_range samples = mimo_layout_samples(layout, cell->dp);
    int count = samples.count > 0 ? mimo_layout_cell_runs(layout, cell, piece, runs) : 0;
    for (int i = 0; i < count; i++)
        boxes[i] = box_of(layout, samples, &runs[i]);
    return count;
}

/* The boxes are left as they are: to clear them takes a tenth of the time of a small plan. */
void mimo_box_walk_begin(mimo_box_walk *walk, const mimo_layout *layout, const mimo_cell *cell)
{
    walk->layout = layout;
    walk->cell = *cell;
    walk->piece = 0;
    walk->pieces = mimo_layout_pieces(layout, cell);
    walk->count = walk->next = 0;
}

void mimo_box_walk_begin_rank(mimo_box_walk *walk, const mimo_layout *layout, int64_t rank)
{
    mimo_cell cell = {0, 0, 0, 0};
    bool holds = mimo_layout_cell(&cell, layout, rank);
    mimo_box_walk_begin(walk, layout, &cell);
    if (!holds)
        walk->pieces = 0;
}

const mimo_box *mimo_next_box(mimo_box_walk *walk)
{
    while (walk->next == walk->count) {
        if (walk->piece == walk->pieces)
            return NULL;
        walk->next = 0;
        walk->count =
            mimo_layout_piece_boxes(walk->layout, &walk->cell, walk->piece++, walk->boxes);
    }
    return &walk->boxes[walk->next++];
}

void mimo_layout_find(const mimo_layout *layout, int64_t sample, int64_t position, mimo_cell *cell,
                      mimo_box *box)
{
    mimo_box boxes[MIMO_LAYOUT_BOXES];
    if (layout->ragged.kind) {
        mimo_ragged_find(layout, sample, position, cell, box);
        return;
    }
    cell->dp = mimo_layout_dp_of(layout, sample);
    mimo_layout_locate(layout, position, cell);
    int count =
        mimo_layout_piece_boxes(layout, cell, mimo_layout_segment_of(layout, position), boxes);
    bool last = count > 1 && position >= boxes[1].s0;
    *box = boxes[last];
}

/* ---------------------------------------- questions ----------------------------------------- */

mimo_status mimo_layout_boxes(int64_t *count, mimo_box *boxes, int64_t capacity,
                              const mimo_layout *layout, int64_t rank)
{
    int64_t held = 0;
    MIMO_CHECK(layout && count && (boxes || capacity == 0), MIMO_ERR_ARGUMENT,
               "mimo_layout_boxes: %s is NULL", !layout ? "layout" : (count ? "boxes" : "count"));
    MIMO_CHECK(capacity >= 0, MIMO_ERR_ARGUMENT, "mimo_layout_boxes: capacity is %" PRId64,
               capacity);
    mimo_box_walk walk;
    mimo_box_walk_begin_rank(&walk, layout, rank);
    for (const mimo_box *box; (box = mimo_next_box(&walk)); held++)
        if (held < capacity)
            boxes[held] = *box;
    *count = held;
    return MIMO_OK;
}

mimo_status mimo_layout_rows(int64_t *rows, const mimo_layout *layout, int64_t rank)
{
    mimo_cell cell;
    MIMO_CHECK(layout && rows, MIMO_ERR_ARGUMENT, "mimo_layout_rows: %s is NULL",
               layout ? "rows" : "layout");
    if (!mimo_layout_cell(&cell, layout, rank))
        *rows = 0;
    else if (layout->ragged.kind && layout->ragged.kind != MIMO_RAGGED_PLACED)
        *rows = mimo_ragged_rows_of(layout, cell.dp);
    else
        *rows = mimo_layout_samples(layout, cell.dp).count * layout->shard;
    return MIMO_OK;
}
