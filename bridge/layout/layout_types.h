/*
 * What a layout is made of: the arithmetic that turns ranks into the rows they hold, and back, in
 * closed form. Planning asks nothing else, so its cost does not grow with the grids. Pure.
 */
#ifndef MIMO_BRIDGE_LAYOUT_TYPES_H
#define MIMO_BRIDGE_LAYOUT_TYPES_H

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

/* The dimensions that decide which rows a rank holds. Where one does not apply, its size is 1. */
typedef struct mimo_cell_axes {
    mimo_axis dp;    /* cuts the batch */
    mimo_axis cp;    /* cuts the sequence, where there is a partition */
    mimo_axis tp;    /* cuts a cp shard, under sp */
    mimo_axes klass; /* contribution classes, where copies are partial */
} mimo_cell_axes;

/* The rows of a ragged layout. */
typedef struct mimo_ragged_rows {
    mimo_ragged kind;
    mimo_span *spans;    /* by sample and row */
    int64_t *first_span; /* [batch + 1]: where a sample's spans begin */
    int64_t *first_row;  /* [batch + 1]: rows of the samples before */
} mimo_ragged_rows;

struct mimo_layout {
    mimo_row_order order;
    int64_t batch, seq;
    int64_t *first_sample; /* [dp + 1], running sums of the given samples; NULL: cut evenly */
    int64_t offset, ranks; /* the span */
    mimo_axis pp;          /* only coordinate 0 holds rows; size 1 where all stages do */
    mimo_cell_axes cut;
    mimo_axes copies;  /* every other dimension: the ranks along these hold equal rows */
    mimo_axes readers; /* every dimension but dp and that pp: the ranks that read one sample */
    int64_t shard;     /* positions of one rank */
    int64_t segments;  /* sequences that the partition splits one by one: thd has several */
    int64_t *first_position; /* [segments + 1], where there are several */
    mimo_ragged_rows ragged;
};

/* A rank's place along the cutting dimensions. The ranks of one cell are copies of each other. */
typedef struct mimo_cell {
    int64_t dp, cp, tp, klass;
} mimo_cell;

/* A range of samples or positions: [first, first + count). */
typedef struct mimo_range {
    int64_t first, count;
} mimo_range;

/* The most boxes of a cell in one segment: the two chunks of zigzag. */
enum { MIMO_LAYOUT_BOXES = 2 };

/* The cell of a rank; false where it is outside the span, or at pp > 0. */
bool mimo_layout_cell(mimo_cell *out, const mimo_layout *layout, int64_t rank);

/* The samples of a dp coordinate, and the dp coordinate of a sample (0 <= sample < batch). */
mimo_range mimo_layout_samples(const mimo_layout *layout, int64_t dp);
int64_t mimo_layout_dp_of(const mimo_layout *layout, int64_t sample);

/* The parts that a cell's boxes are listed in: segments; ragged, samples or spans. */
int64_t mimo_layout_parts(const mimo_layout *layout, const mimo_cell *cell);

/* The boxes of a cell in a part, in ascending local row, into boxes[MIMO_LAYOUT_BOXES]; returns how
 * many. Segments ascend in local rows too. */
int mimo_layout_cell_boxes(const mimo_layout *layout, const mimo_cell *cell, int64_t part,
                           mimo_box *boxes);

/* The box that holds row (sample, position), which the layout must have, and its cell in class 0.
 */
void mimo_layout_find(const mimo_layout *layout, int64_t sample, int64_t position, mimo_cell *cell,
                      mimo_box *box);

/* The runs of a cell's cp shard in a segment, as tp cuts them, into runs[MIMO_LAYOUT_BOXES]; local
 * rows count positions of one sample. */
int mimo_layout_cell_runs(const mimo_layout *layout, const mimo_cell *cell, int64_t segment,
                          mimo_run *runs);

/* The cp and tp coordinates of a position. */
void mimo_layout_place(const mimo_layout *layout, int64_t position, mimo_cell *cell);

/* The last i in [0, count) with first[i] <= value; first[0] <= value. */
int64_t mimo_last_at_most(const int64_t *first, int64_t count, int64_t value);

/* Ragged layouts (layout_ragged.c): the spans of a description into a layout whose other fields are
 * set, and what layout.c does for the others. */
mimo_status mimo_ragged_fill(mimo_layout *layout, const mimo_layout_desc *desc);
void mimo_ragged_release(mimo_ragged_rows *rows);
int64_t mimo_ragged_parts(const mimo_layout *layout, const mimo_cell *cell);
int mimo_ragged_boxes(const mimo_layout *layout, const mimo_cell *cell, int64_t part,
                      mimo_box *boxes);
void mimo_ragged_find(const mimo_layout *layout, int64_t sample, int64_t row, mimo_cell *cell,
                      mimo_box *box);

/* Rows that a dp coordinate's samples have in all. */
int64_t mimo_ragged_rows_of(const mimo_layout *layout, int64_t dp);

/* Whether two layouts are of the same rows: all positions, or the same spans' rows. */
bool mimo_ragged_alike(const mimo_layout *a, const mimo_layout *b);

/* The lowest rank of a cell, copy 0; copy i lies mimo_axes_offset(&layout->copies, i) above it. */
int64_t mimo_layout_first_rank(const mimo_layout *layout, const mimo_cell *cell);

/* Distance in ranks of the place with this index (0 <= index < axes->size), the first axis
 * fastest. */
int64_t mimo_axes_offset(const mimo_axes *axes, int64_t index);

/* A reader's number: dp slowest, then its place along the other dimensions in grid order. False
 * where the rank holds no rows. */
bool mimo_layout_reader(int64_t *out, const mimo_layout *layout, int64_t rank);

#endif
