/* Rows of a tile in two loops, with strides: plans, backends and device copies all describe rows
 * so. For i < n_outer and j < n_inner, row (i, j) is this row of the tile at `base`:
 *   first + i * outer + j * inner
 * Two descriptions match where n_outer, n_inner and row_bytes agree. Then row (i, j) of one is row
 * (i, j) of the other. */
#ifndef MIMO_CORE_ROWS_H
#define MIMO_CORE_ROWS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mimo_rows {
    void *base;        /* row 0 of the tile */
    int64_t row_bytes; /* bytes of one row */
    int64_t first;
    int64_t n_outer, outer; /* count and stride, in rows */
    int64_t n_inner, inner;
} mimo_rows;

/* A copy between matching rows. */
typedef struct mimo_row_copy {
    mimo_rows to, from;
} mimo_row_copy;

/* Where row (0, 0) begins. */
static inline char *mimo_rows_begin(const mimo_rows *rows)
{
    return (char *)rows->base + rows->first * rows->row_bytes;
}

/* Bytes of all rows. */
static inline int64_t mimo_rows_bytes(const mimo_rows *rows)
{
    return rows->n_outer * rows->n_inner * rows->row_bytes;
}

/* The rows follow one another without gaps, in the order of the two loops. */
static inline bool mimo_rows_are_one_run(const mimo_rows *rows)
{
    return (rows->n_inner == 1 || rows->inner == 1) &&
           (rows->n_outer == 1 || rows->outer == rows->n_inner);
}

#endif
