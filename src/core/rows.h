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

/* `bytes` contiguous bytes as one row. */
static inline mimo_rows mimo_one_row(const void *base, int64_t bytes)
{
    mimo_rows row = {(void *)base, bytes, 0, 1, 1, 1, 1};
    return row;
}

/* Rows that match `rows`, one after the other without gaps from `base` on. */
static inline mimo_rows mimo_rows_packed(void *base, const mimo_rows *rows)
{
    mimo_rows packed = {base, rows->row_bytes, 0, rows->n_outer, rows->n_inner, rows->n_inner, 1};
    return packed;
}

/* A copy between matching rows. */
typedef struct mimo_row_copy {
    mimo_rows to, from;
} mimo_row_copy;

/* A place in memory whose address is known later: this number of bytes behind the base of this
 * number. Each use brings an array of bases. */
typedef struct mimo_place {
    int base;
    int64_t offset;
} mimo_place;

/* Rows whose tile begins at a place; `rows.base` is not read. */
typedef struct mimo_placed_rows {
    mimo_rows rows;
    mimo_place at;
} mimo_placed_rows;

typedef struct mimo_placed_copy {
    mimo_placed_rows to, from;
} mimo_placed_copy;

/* The address of a place. The offset may lead to memory of a peer, so this is no arithmetic of C's
 * pointers. */
static inline char *mimo_address_of(const mimo_place *place, char *const *bases)
{
    return (char *)((uintptr_t)bases[place->base] + (uintptr_t)place->offset);
}

static inline mimo_rows mimo_rows_at(const mimo_placed_rows *placed, char *const *bases)
{
    mimo_rows rows = placed->rows;
    rows.base = mimo_address_of(&placed->at, bases);
    return rows;
}

enum { MIMO_LEAST_ALIGNMENT = 1, MIMO_MOST_ALIGNMENT = 16 };

/* How a base is aligned: the largest power of two that divides the address, up to the most. */
static inline int64_t mimo_alignment_of(const void *base)
{
    uintptr_t bits = (uintptr_t)base | MIMO_MOST_ALIGNMENT;
    return (int64_t)(bits & (~bits + 1));
}

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
