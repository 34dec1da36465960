/*
 * What a layout is made of: the arithmetic that turns ranks into the rows they hold, and back, in
 * closed form. Planning asks nothing else, so its cost does not grow with the grids. Pure.
 */
#ifndef MIMO_LAYOUT_LAYOUT_TYPES_H
#define MIMO_LAYOUT_LAYOUT_TYPES_H

#include <mimo/plan.h>

#include "partition/zigzag_runs.h"

/* "src", "dst": by mimo_side. */
extern const char *const mimo_side_names[2];

/* A grid dimension as arithmetic: coordinate = (rank - offset) / stride % size. An absent one has
 * size 1. */
typedef struct mimo_axis {
    int64_t size, stride;
} mimo_axis;

/* Several dimensions, in grid order, and the product of their sizes. */
typedef struct mimo_axes {
    mimo_axis *axis; /* axis[count] */
    int count;
    int64_t size;
} mimo_axes;

/* The dimensions that decide which rows a rank holds. One that does not apply has size 1. */
typedef struct mimo_cell_dims {
    mimo_axis dp;           /* cuts the batch */
    mimo_axis cp;           /* cuts the sequence, where there is a partition */
    mimo_axis tp;           /* cuts a cp shard, under sp */
    mimo_axes contribution; /* contribution classes, where copies are partial */
} mimo_cell_dims;

/* An item, and where it lies: the index-th one of its dp coordinate, from a local row on. */
typedef struct mimo_placed_item {
    mimo_item item;
    int64_t dp, index, first;
} mimo_placed_item;

/* The rows of a ragged layout. */
typedef struct mimo_ragged_rows {
    mimo_ragged kind;
    mimo_span *spans;    /* by sample and row; items have none */
    int64_t *first_span; /* [batch + 1]: where a sample's spans, or its items, begin */
    int64_t *first_row;  /* [batch + 1]: rows of the samples before */

    /* Of items alone. */
    mimo_placed_item *items; /* by sample and row */
    int64_t *in_tile;        /* their indices in items[], by dp coordinate and order in its tile */
    int64_t *first_item;     /* [dp + 1]: where those of a dp coordinate begin in in_tile[] */
} mimo_ragged_rows;

struct mimo_layout {
    mimo_row_order order;
    int64_t batch, seq;
    int64_t *first_sample; /* [dp + 1], running sums of the given samples; NULL: cut evenly */
    int64_t offset, ranks; /* ranks [offset, offset + ranks) */
    mimo_axis pp;          /* only coordinate 0 holds rows; size 1 where all stages do */
    mimo_cell_dims dims;
    mimo_axes copies;        /* every other dimension: the ranks along these hold equal rows */
    mimo_axes readers;       /* every dimension except dp and that pp: the ranks that read the rows
 of one dp coordinate */
    int64_t shard;           /* positions of one rank */
    int64_t segments;        /* sequences that the partition splits one by one: thd has several */
    int64_t *first_position; /* [segments + 1], where there are several */
    mimo_ragged_rows ragged;
};

/* Coordinates along the dimensions that decide which rows a rank holds. The ranks of one cell are
 * copies of each other. */
typedef struct mimo_cell {
    int64_t dp, cp, tp, contribution;
} mimo_cell;

/* A range of samples or positions: [first, first + count). */
typedef struct mimo_range {
    int64_t first, count;
} mimo_range;

/* The most boxes of a cell in one segment: the two chunks of zigzag. */
enum { MIMO_LAYOUT_BOXES = 2 };

/* Whether ranks along a dimension of this name hold equal rows, so that any of them may send. */
bool mimo_layout_replicates(const mimo_layout_desc *desc, const char *name);

/* ----- ranks, cells, samples (layout_ranks.c) ----- */

/* The cell of a rank; false where it is outside the layout's ranks, or at pp > 0. */
bool mimo_layout_cell(mimo_cell *out, const mimo_layout *layout, int64_t rank);

/* The same cell: ranks in it hold the same rows. */
static inline bool mimo_cell_is(const mimo_cell *a, const mimo_cell *b)
{
    return a->dp == b->dp && a->cp == b->cp && a->tp == b->tp && a->contribution == b->contribution;
}

/* The lowest rank of a cell, copy 0; copy i lies mimo_axes_offset(&layout->copies, i) above it. */
int64_t mimo_layout_first_rank(const mimo_layout *layout, const mimo_cell *cell);

/* Distance in ranks from index 0 to this index (0 <= index < axes->size), the first axis fastest.
 */
int64_t mimo_axes_offset(const mimo_axes *axes, int64_t index);

/* A reader's number: dp slowest, then its coordinates along the other dimensions in grid order.
 * False where the rank holds no rows. */
bool mimo_layout_reader(int64_t *out, const mimo_layout *layout, int64_t rank);

/* The samples of a dp coordinate, and the dp coordinate of a sample (0 <= sample < batch). A layout
 * of items splits no samples. */
mimo_range mimo_layout_samples(const mimo_layout *layout, int64_t dp);
int64_t mimo_layout_dp_of(const mimo_layout *layout, int64_t sample);

/* ----- positions (layout_positions.c) ----- */

/* The runs of a cell's positions in a segment, into runs[MIMO_LAYOUT_BOXES]; returns their number.
 * Local rows count positions of one sample. */
int mimo_layout_cell_runs(const mimo_layout *layout, const mimo_cell *cell, int64_t segment,
                          mimo_run *runs);

/* The segment that has a position. */
int64_t mimo_layout_segment_of(const mimo_layout *layout, int64_t position);

/* Set the cp and tp coordinates of a cell to those that hold a position, and the class to 0. */
void mimo_layout_locate(const mimo_layout *layout, int64_t position, mimo_cell *cell);

/* ----- boxes (layout_boxes.c) ----- */

/* A cell's boxes are listed by piece: a segment, or, in a ragged layout, a sample, a span or an
 * item. */
int64_t mimo_layout_pieces(const mimo_layout *layout, const mimo_cell *cell);

/* The boxes of a cell in a piece, in ascending local row, into boxes[MIMO_LAYOUT_BOXES]; returns
 * their number. */
int mimo_layout_piece_boxes(const mimo_layout *layout, const mimo_cell *cell, int64_t piece,
                            mimo_box *boxes);

/* All boxes of a cell, one after the other:
 *
 *   mimo_box_walk walk;
 *   mimo_box_walk_begin(&walk, layout, &cell);
 *   for (const mimo_box *box; (box = mimo_next_box(&walk));)
 */
typedef struct mimo_box_walk {
    const mimo_layout *layout;
    mimo_cell cell;
    int64_t piece, pieces;
    mimo_box boxes[MIMO_LAYOUT_BOXES];
    int count, next; /* boxes of the piece, and of these the next one */
} mimo_box_walk;

void mimo_box_walk_begin(mimo_box_walk *walk, const mimo_layout *layout, const mimo_cell *cell);

/* The boxes of a rank's cell: none where it holds no rows. */
void mimo_box_walk_begin_rank(mimo_box_walk *walk, const mimo_layout *layout, int64_t rank);

/* Valid until the next call; NULL at the end. Boxes ascend in local row. */
const mimo_box *mimo_next_box(mimo_box_walk *walk);

/* The local row of (sample, position), which the box has. */
static inline int64_t mimo_box_row(const mimo_box *box, int64_t sample, int64_t position)
{
    return box->row0 + (sample - box->b0) * box->row_b + (position - box->s0) * box->row_s;
}

/* The box that has row (sample, position), and its cell in class 0. The layout must have the row.
 */
void mimo_layout_find(const mimo_layout *layout, int64_t sample, int64_t position, mimo_cell *cell,
                      mimo_box *box);

/* ----- ragged (layout_ragged.c) ----- */

/* Read the spans of a description into a layout whose other fields are set. */
mimo_status mimo_ragged_fill(mimo_layout *layout, const mimo_layout_desc *desc);
void mimo_ragged_release(mimo_ragged_rows *rows);

/* For a ragged layout: what the functions above do for the others. */
int64_t mimo_ragged_pieces(const mimo_layout *layout, const mimo_cell *cell);
int mimo_ragged_boxes(const mimo_layout *layout, const mimo_cell *cell, int64_t piece,
                      mimo_box *boxes);
void mimo_ragged_find(const mimo_layout *layout, int64_t sample, int64_t row, mimo_cell *cell,
                      mimo_box *box);

/* Rows of all samples of a dp coordinate. */
int64_t mimo_ragged_rows_of(const mimo_layout *layout, int64_t dp);

/* The first sample of which two ragged layouts of one batch have different numbers of rows; -1
 * where there is none. Then they have the same rows: the positions are each one's own. */
int64_t mimo_ragged_difference(const mimo_layout *a, const mimo_layout *b);

/* Rows of a sample. */
int64_t mimo_ragged_sample_rows(const mimo_layout *layout, int64_t sample);

/* ----- items (layout_items.c) ----- */

/* Read the items of a description into a layout whose other fields are set. */
mimo_status mimo_items_fill(mimo_layout *layout, const mimo_layout_desc *desc);

/* The item that has a row. The layout must have the row. */
const mimo_placed_item *mimo_items_find(const mimo_layout *layout, int64_t sample, int64_t row);

/* Items of a dp coordinate, and the item of an index there. */
int64_t mimo_items_count(const mimo_layout *layout, int64_t dp);
const mimo_placed_item *mimo_items_at(const mimo_layout *layout, int64_t dp, int64_t index);

/* The rows of an item, all in one box. */
mimo_box mimo_items_box(const mimo_placed_item *placed);

#endif
