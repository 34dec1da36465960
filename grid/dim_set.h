/*
 * Sets of dimensions of a grid, as the text that callers write, "tp,cp", and as bits. Pure.
 *
 * Only dimensions that are larger than 1 have a bit: along others there is one rank. All ranks of a
 * grid number less than 2^31, so at most 30 dimensions are larger than 1, however many there are.
 */
#ifndef MIMO_GRID_DIM_SET_H
#define MIMO_GRID_DIM_SET_H

#include "grid/grid_types.h"

/* ------------------------------------------ as text ----------------------------------------- */

/* The next name of "tp,cp" at *cursor, which moves past it; NULL after the last. The name ends
 * after `length` characters. An empty text has one name, which is empty. */
const char *mimo_dim_set_next(const char **cursor, size_t *length);

/* The index of a dimension; -1 where the grid has none of that name. */
int mimo_dim_index(const mimo_grid *grid, const char *name, size_t length);

/* Whether a text names a dimension before `end`, a pointer into it; NULL: anywhere. */
bool mimo_dim_set_has_before(const char *dims, const char *end, const char *name, size_t length);
bool mimo_dim_set_has(const char *dims, const char *name);

/* The key of a text that was read: its names, also those of size 1, in the order of the grid. The
 * caller releases *out with mimo_release. */
mimo_status mimo_dim_set_key(char **out, const mimo_grid *grid, const char *dims);

/* Read a text. MIMO_ERR_GRID where it is empty, repeats a name or names an unknown dimension. */
mimo_status mimo_dim_set_read(mimo_dim_set *out, const mimo_grid *grid, const char *dims);

/* ------------------------------------------ as bits ----------------------------------------- */

/* All dimensions of the grid, and those that a text names. A name that the grid does not have is a
 * dimension of size 1. */
mimo_dim_set mimo_dim_set_all(const mimo_grid *grid);
mimo_dim_set mimo_dim_set_of(const mimo_grid *grid, const char *dims);

/* Write the names of a set in the order of the grid, "tp,cp"; "" where it is empty. Returns
 * `text`. */
char *mimo_dim_set_text(char text[MIMO_GRID_TEXT], mimo_dim_set set, const mimo_grid *grid);

/* The number of ranks of a group along a set: the product of the sizes. */
int64_t mimo_dim_set_ranks(mimo_dim_set set, const mimo_grid *grid);

/* The first of the ranks that differ from `rank` only along dimensions of the set: it has
 * coordinate 0 along all of these. -1 outside the grid. */
int64_t mimo_dim_set_first(mimo_dim_set set, const mimo_grid *grid, int64_t rank);

/* The dimensions along which two ranks of the grid differ. */
mimo_dim_set mimo_dim_set_between(const mimo_grid *grid, int64_t a, int64_t b);

#endif
