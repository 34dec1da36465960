/* A slow grid to compare with. It shares no arithmetic with the library: it lists the coordinates
 * of every rank by counting up from the first. Ranks here are relative to the offset. */
#ifndef MIMO_TESTS_SLOW_GRID_H
#define MIMO_TESTS_SLOW_GRID_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <mimo/grid.h>

enum { SLOW_DIMS = 6 };

typedef struct slow_grid {
    int ndims;
    const char *names[SLOW_DIMS]; /* borrowed from the grid */
    int64_t sizes[SLOW_DIMS];
    int64_t offset, size;
    int64_t (*coords)[SLOW_DIMS];
} slow_grid;

static inline slow_grid slow_grid_of(const mimo_grid *grid)
{
    slow_grid slow = {
        .ndims = mimo_grid_ndims(grid), .offset = mimo_grid_rank_offset(grid), .size = 1};
    for (int i = 0; i < slow.ndims; i++) {
        slow.names[i] = mimo_grid_dim(grid, i).name;
        slow.sizes[i] = mimo_grid_dim(grid, i).size;
        slow.size *= slow.sizes[i];
    }
    slow.coords = calloc((size_t)slow.size, sizeof *slow.coords);
    for (int64_t r = 1; r < slow.size; r++) { /* count up like an odometer */
        memcpy(slow.coords[r], slow.coords[r - 1], sizeof *slow.coords);
        for (int i = 0; i < slow.ndims && ++slow.coords[r][i] == slow.sizes[i]; i++)
            slow.coords[r][i] = 0;
    }
    return slow;
}

static inline void slow_grid_free(slow_grid *slow)
{
    free(slow->coords);
    slow->coords = NULL;
}

/* Size and coordinate by name; an absent dimension has size 1. */
static inline int64_t slow_size(const slow_grid *slow, const char *name)
{
    for (int i = 0; i < slow->ndims; i++)
        if (strcmp(slow->names[i], name) == 0)
            return slow->sizes[i];
    return 1;
}

static inline int64_t slow_coord(const slow_grid *slow, int64_t rank, const char *name)
{
    for (int i = 0; i < slow->ndims; i++)
        if (strcmp(slow->names[i], name) == 0)
            return slow->coords[rank][i];
    return 0;
}

#endif
