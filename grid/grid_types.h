/*
 * What a grid is made of, for the files of this folder and for those that need strides (bridge/).
 * Pure: names no communication library.
 */
#ifndef MIMO_GRID_GRID_TYPES_H
#define MIMO_GRID_GRID_TYPES_H

#include <mimo/grid.h>

/* Space for a grid's text in a sentence. A longer text is truncated. */
enum { MIMO_GRID_TEXT = 256 };

/* In a grid's text it follows the size of a dimension whose ranks hold copies. */
#define MIMO_GRID_COPIES ":copies"

/* Groups that were created, newest first. All belong to the base. So every rank releases them in
 * the same order, also where ranks added their views in different orders. */
typedef struct mimo_group_entry mimo_group_entry;

/* A set of dimensions, as bits: those of the grid that are larger than 1 (grid/dim_set.h). */
typedef uint32_t mimo_dim_set;

/* Objects that keep pointers to grids. */
typedef enum mimo_grid_user {
    MIMO_GRID_BRIDGE = 0,
    MIMO_GRID_GRADIENT = 1,
    MIMO_GRID_USERS
} mimo_grid_user;

struct mimo_grid {
    mimo_dim *dims; /* dims[ndims], fastest first; names owned */
    int ndims;
    int64_t *strides;   /* strides[ndims] */
    bool *copies;       /* copies[ndims]: the caller said that ranks along it hold copies */
    mimo_dim_set *bits; /* bits[ndims]: each dimension as a set of its own; 0 where its size is 1 */
    int64_t offset, size;

    mimo_grid *base;      /* a view's base; NULL on a base */
    char *view_name;      /* NULL on a base */
    mimo_grid *next_view; /* on a base: its first view; on a view: the base's next view */

    mimo_comm *comm; /* borrowed; NULL until connected, and on a view (ask mimo_grid_comm) */
    mimo_group_entry *groups; /* NULL on a view */

    /* On a base. Both are read and written as atomics: users may be in different threads. */
    int users[MIMO_GRID_USERS]; /* objects of each kind that use it or a view of it */
    int holders;                /* all users, and the caller until mimo_grid_destroy */
};

/* The grid that a view belongs to; any other grid itself. */
static inline const mimo_grid *mimo_grid_base(const mimo_grid *grid)
{
    return grid->base ? grid->base : grid;
}

/* Split a communicator, whose rank r is rank r of the grid, into the groups along a set of
 * dimensions, or along a text that is known to be one. *out is NULL on a rank outside the grid.
 * Collective, blocking: every rank gets its group, or none does. */
mimo_status mimo_grid_split_set(mimo_comm **out, mimo_comm *comm, const mimo_grid *grid,
                                mimo_dim_set set);
mimo_status mimo_grid_split(mimo_comm **out, mimo_comm *comm, const mimo_grid *grid,
                            const char *dims);

/* The group of a rank of the grid along a set: its index and the rank's index in it. */
void mimo_grid_place(int64_t *index, int64_t *at, const mimo_grid *grid, mimo_dim_set set,
                     int64_t rank);

/* Release the process groups of a grid and of its views. Collective in effect. */
void mimo_grid_release_groups(mimo_grid *grid);

/* An object begins, or ends, to use two grids. They may be views, and may be the same grid. The
 * last user of a grid that was destroyed releases it. */
void mimo_grids_retain(const mimo_grid *src, const mimo_grid *dst, mimo_grid_user user);
void mimo_grids_release(const mimo_grid *src, const mimo_grid *dst, mimo_grid_user user);

/* Free one grid without its views and groups. `grid` may be half made. */
void mimo_grid_release_value(mimo_grid *grid);

/* --------------------------------------- arithmetic ----------------------------------------- */

/* Stride of a dimension by name; 0 where the grid has none of that name (its coordinate is 0). */
int64_t mimo_grid_stride(const mimo_grid *grid, const char *name);

/* Coordinate of a rank of the grid along dimension i. */
static inline int64_t mimo_grid_digit(const mimo_grid *grid, int64_t rank, int i)
{
    return (rank - grid->offset) / grid->strides[i] % grid->dims[i].size;
}

/* MIMO_ERR_GRID where the rank is outside the grid. */
mimo_status mimo_grid_check_rank(const mimo_grid *grid, int64_t rank);

/* Fold dims, sizes, copies and offset into a hash. */
uint64_t mimo_grid_hash(uint64_t hash, const mimo_grid *grid);

/* ----------------------------------- meaning (grid_copies.c) -------------------------------- */

/* The dimensions of which the library knows what they do. */
#define MIMO_KNOWN_DIMS "tp,cp,pp,dp"
bool mimo_dim_is_known(const char *name);

/* MIMO_ERR_GRID where a dimension that is larger than 1 is none of the known ones, and is not said
 * to mean copies. `what` begins the sentence ("bridge: the src"). */
mimo_status mimo_grid_check_meaning(const mimo_grid *grid, const char *what);

/* Say that ranks along dimension i hold copies. MIMO_ERR_GRID: it is a known one. */
mimo_status mimo_grid_mark_copies(mimo_grid *grid, int i);

/* ------------------------------------------ views ------------------------------------------- */

/* The grid that owns the groups along the text of a set: the base, where `grid` is a view and
 * shares every dimension of the set with its base; otherwise `grid` itself. */
const mimo_grid *mimo_grid_owner(const mimo_grid *grid, const char *dims);

#endif
