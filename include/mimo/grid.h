/*
 * Grids: named dimensions over a range of ranks, and the process groups along them.
 *
 *   rank = offset + sum_i coord_i * stride_i,  stride_0 = 1,  stride_i = size_0 * ... * size_(i-1)
 *
 * The first dimension varies fastest; the usual order is tp, cp, pp, dp. A group over a set of
 * dimensions D holds the ranks that agree on every dimension outside D, in ascending grid order of
 * D (fastest first). Groups are listed with the first remaining dimension fastest, so by ascending
 * first rank. A set of dimensions is written "tp,cp"; the order in which it is written does not
 * matter. (docs/concepts.md: "Grid"; after Megatron-LM's HyperCommGrid.)
 *
 * tp, cp, pp and dp have a meaning of their own. Bridges, layouts and gradient objects refuse a
 * grid in which another dimension is larger than 1 (MIMO_ERR_GRID), unless the grid says that ranks
 * along it hold copies: mimo_grid_set_copies, or "x=2:copies" as text. These then hold the same
 * rows, the same parameters and the same gradients. A dimension of size 1 means nothing. Groups can
 * be made along all dimensions.
 *
 * A grid is a pure value until mimo_grid_connect: every function before it in this file is local,
 * needs no communicator and is thread-safe on a grid that no thread changes. Use a rank's
 * coordinates, never the index of its group in a list: with cp or pp > 1 the index of a tp group is
 * not the dp index.
 */
#ifndef MIMO_GRID_H
#define MIMO_GRID_H

#include <stdbool.h>

#include <mimo/comm.h>

MIMO_BEGIN_DECLS

typedef struct mimo_grid mimo_grid;

typedef struct mimo_dim {
    const char *name; /* letters, digits, '_' and '-'; copied on creation */
    int64_t size;     /* ranks along the dimension, >= 1 */
} mimo_dim;

/** Which of the two grids of a pair. */
typedef enum mimo_side {
    MIMO_SRC = 0, /* the encoder's */
    MIMO_DST = 1, /* the LLM's */
} mimo_side;

/**
 * A grid of `ndims` dimensions, fastest first, over the ranks [offset, offset + product of sizes).
 * The caller owns *out. Local.
 *
 * Errors (MIMO_ERR_GRID unless said): no dims, empty or duplicate name, another character in one,
 * size < 1, offset < 0, last rank past INT32_MAX; a product that overflows is MIMO_ERR_OVERFLOW;
 * NULL is MIMO_ERR_ARGUMENT.
 */
MIMO_API mimo_status mimo_grid_create(mimo_grid **out, const mimo_dim *dims, int ndims,
                                      int64_t offset);

/** The same from one string, "tp=2,cp=2,pp=1,dp=2" (grids are printed in this form). "x=2:copies"
 *  also says that ranks along x hold copies (experimental, as mimo_grid_set_copies). Errors: as
 *  above; MIMO_ERR_ARGUMENT names the part that does not parse; MIMO_ERR_GRID where tp, cp, pp or
 *  dp is said to mean copies. */
MIMO_API mimo_status mimo_grid_create_text(mimo_grid **out, const char *spec, int64_t offset);

/**
 * Release a grid, its views and its groups. NULL is fine. Collective in effect once groups were
 * created. A view is released with its base: do not pass it.
 *
 * Where a bridge or a gradient object uses the grid or a view of it, the groups go at once, and the
 * last such object releases the rest; mimo_last_error() says how many there are. The caller must
 * not use the grid any more.
 */
MIMO_API void mimo_grid_destroy(mimo_grid *grid);

/** Check that the grid fits a world of `world` ranks: MIMO_ERR_GRID with both numbers where
 *  offset + size > world. mimo_grid_connect checks the same. Local. */
MIMO_API mimo_status mimo_grid_check_world(const mimo_grid *grid, int64_t world);

/** Number of ranks of the grid, and its first rank. */
MIMO_API int64_t mimo_grid_size(const mimo_grid *grid);
MIMO_API int64_t mimo_grid_rank_offset(const mimo_grid *grid);

/** True where `rank` lies in [offset, offset + size). */
MIMO_API bool mimo_grid_contains(const mimo_grid *grid, int64_t rank);

/** Number of dimensions, and dimension i (fastest first; the name is owned by the grid). An index
 *  outside [0, ndims) gives {NULL, 0}. */
MIMO_API int mimo_grid_ndims(const mimo_grid *grid);
MIMO_API mimo_dim mimo_grid_dim(const mimo_grid *grid, int index);

/** Index of a dimension by name; -1 where the grid has none of that name. */
MIMO_API int mimo_grid_find(const mimo_grid *grid, const char *name);

/** Size of a dimension by name; 1 where the grid has none of that name: an absent dimension splits
 *  nothing, as one of size 1. (Sets of dimensions and gradient buckets may name only dimensions
 *  that the grid has. Grids that pair have tp and dp: <mimo/pairing.h>.) */
MIMO_API int64_t mimo_grid_dim_size(const mimo_grid *grid, const char *name);

/** Write the grid as "tp=2,cp=2,dp=2" into `text` (always terminated) and return `text`. */
MIMO_API char *mimo_grid_text(char *text, size_t capacity, const mimo_grid *grid);

/** Coordinates of `rank`: coords[ndims], in dimension order. MIMO_ERR_GRID outside the grid. */
MIMO_API mimo_status mimo_grid_coords(int64_t *coords, const mimo_grid *grid, int64_t rank);

/** One coordinate by name, 0 for an absent dimension. MIMO_ERR_GRID outside the grid. */
MIMO_API mimo_status mimo_grid_coord(int64_t *out, const mimo_grid *grid, int64_t rank,
                                     const char *name);

/** The rank at coords[ndims]. MIMO_ERR_GRID where a coordinate is outside its dimension. */
MIMO_API mimo_status mimo_grid_rank(int64_t *out, const mimo_grid *grid, const int64_t *coords);

/**
 * The groups along a set of dimensions, without building them: how many groups there are and how
 * many ranks each has. Either output may be NULL.
 *
 * Errors: MIMO_ERR_GRID where the set is empty, repeats a name or names an unknown dimension.
 */
MIMO_API mimo_status mimo_grid_group_count(int64_t *groups, int64_t *group_size,
                                           const mimo_grid *grid, const char *dims);

/** The ranks of group `index` (0 <= index < groups), ascending in grid order of the set, into
 *  ranks[group_size]. Costs O(group_size + ndims), whatever the size of the grid. Errors: as
 *  mimo_grid_group_count; MIMO_ERR_ARGUMENT (index). */
MIMO_API mimo_status mimo_grid_group_at(int64_t *ranks, const mimo_grid *grid, const char *dims,
                                        int64_t index);

/** The index of the group along `dims` that holds `rank`, and the rank's index in it, *at.
 *  Either output may be NULL. Errors: as mimo_grid_group_count; MIMO_ERR_GRID outside the grid. */
MIMO_API mimo_status mimo_grid_group_of(int64_t *index, int64_t *at, const mimo_grid *grid,
                                        const char *dims, int64_t rank);

/**
 * Add a view: a second factorisation of the same ranks, such as experts [etp, ep, edp, pp] beside
 * attention [tp, cp, dp, pp]. *out is a grid in its own right, owned by `base` and gone with it.
 *
 * Errors: MIMO_ERR_EXISTS (name taken), MIMO_ERR_GRID (empty name, `base` is itself a view, another
 * product, or a dimension of the same name in both that does not enumerate identically, alone and
 * jointly with the other shared ones).
 */
MIMO_API mimo_status mimo_grid_create_view(mimo_grid **out, mimo_grid *base, const char *name,
                                           const mimo_dim *dims, int ndims);

/** A view by name. MIMO_ERR_NOT_FOUND. *out is owned by `base`. */
MIMO_API mimo_status mimo_grid_view(mimo_grid **out, mimo_grid *base, const char *name);

/* ------------------------------- from here on, a communicator ------------------------------- */

/**
 * Give the grid its ranks: grid rank r is rank r of `comm`. Collective over `comm`, blocking. The
 * communicator is borrowed. Once it is destroyed, the grid may only be destroyed, or used in calls
 * that need no communicator. Views are connected with their base.
 *
 * Errors: MIMO_ERR_GRID (the ranks do not fit), MIMO_ERR_STATE (connected already, or a view),
 * MIMO_ERR_MISMATCH (ranks brought different grids), MIMO_ERR_COMM.
 */
MIMO_API mimo_status mimo_grid_connect(mimo_grid *grid, mimo_comm *comm);

/**
 * Create the groups along `dims`. Collective over the communicator, blocking; ranks outside the
 * grid call it as well. On a view, a set that consists of dimensions shared with the base is the
 * base's group: it is created once and released once.
 *
 * Errors: MIMO_ERR_STATE (not connected), MIMO_ERR_EXISTS (created before), MIMO_ERR_GRID (the
 * set), MIMO_ERR_MISMATCH (ranks asked for different sets), MIMO_ERR_COMM.
 */
MIMO_API mimo_status mimo_grid_create_group(mimo_grid *grid, const char *dims);

/** This rank's group along `dims`, owned by the grid. Local. MIMO_ERR_NOT_FOUND where it was not
 *  created; MIMO_ERR_GRID on a rank outside the grid, or where the grid can have no such set;
 *  MIMO_ERR_STATE where not connected. */
MIMO_API mimo_status mimo_grid_group(mimo_comm **out, const mimo_grid *grid, const char *dims);

/** The communicator given to mimo_grid_connect, or NULL. Local. */
MIMO_API mimo_comm *mimo_grid_comm(const mimo_grid *grid);

/* ---------------------------------------- experimental ---------------------------------------- */
/* Only where MIMO_EXPERIMENTAL is defined: see <mimo/status.h>. */
#ifdef MIMO_EXPERIMENTAL

/**
 * Say along which dimensions ranks hold copies: a set such as "x" or "x,y", which replaces what was
 * said before; "" for none. It is part of what ranks compare. A view says it for its own
 * dimensions. Local; before mimo_grid_connect, and before a bridge or a gradient object uses the
 * grid.
 *
 * Errors, the grid as it was: MIMO_ERR_GRID (the set repeats a name or names an unknown dimension,
 * or one of tp, cp, pp and dp), MIMO_ERR_STATE (connected, or in use), MIMO_ERR_ARGUMENT (NULL).
 */
MIMO_API mimo_status mimo_grid_set_copies(mimo_grid *grid, const char *dims);

/** mimo_grid_create_view from one string, "etp=1,ep=4,edp=2", without ":copies". Local. Errors:
 *  those of both. */
MIMO_API mimo_status mimo_grid_create_view_text(mimo_grid **out, mimo_grid *base, const char *name,
                                                const char *spec);

#endif

MIMO_END_DECLS

#endif
