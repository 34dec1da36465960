/* The groups along a set of dimensions, one group at a time. Costs grow with the group, not
 * with the grid: a rank of a 65,536-rank grid pays for its own groups only. */
#include <inttypes.h>

#include "core/check.h"
#include "grid/dim_set.h"

mimo_status mimo_grid_group_count(int64_t *groups, int64_t *group_size, const mimo_grid *grid,
                                  const char *dims)
{
    mimo_dim_set set;
    MIMO_TRY(mimo_dim_set_read(&set, grid, dims));
    int64_t size = mimo_dim_set_ranks(set, grid);
    if (groups)
        *groups = grid->size / size;
    if (group_size)
        *group_size = size;
    return MIMO_OK;
}

/* The first rank of group `index`: its coordinates along the other dimensions are the digits of
 * `index`, the first dimension fastest. */
static int64_t first_rank(const mimo_grid *grid, mimo_dim_set set, int64_t index)
{
    int64_t rank = grid->offset;
    for (int i = 0; i < grid->ndims; i++) {
        if (set & grid->bits[i])
            continue;
        rank += index % grid->dims[i].size * grid->strides[i];
        index /= grid->dims[i].size;
    }
    return rank;
}

mimo_status mimo_grid_group_at(int64_t *ranks, const mimo_grid *grid, const char *dims,
                               int64_t index)
{
    mimo_dim_set set;
    MIMO_TRY(mimo_dim_set_read(&set, grid, dims));
    MIMO_CHECK(ranks, MIMO_ERR_ARGUMENT, "mimo_grid_group_at: ranks is NULL");
    int64_t groups = grid->size / mimo_dim_set_ranks(set, grid);
    MIMO_CHECK(index >= 0 && index < groups, MIMO_ERR_ARGUMENT,
               "group %" PRId64 " along '%s' is outside the %" PRId64 " groups there are", index,
               dims, groups);

    ranks[0] = first_rank(grid, set, index);
    int64_t filled = 1;
    for (int i = 0; i < grid->ndims; i++) {
        if (!(set & grid->bits[i]))
            continue;
        /* The ranks so far have coordinate 0 along this dimension. */
        int64_t total = filled * grid->dims[i].size;
        for (int64_t j = filled; j < total; j++)
            ranks[j] = ranks[j - filled] + grid->strides[i];
        filled = total;
    }
    return MIMO_OK;
}

void mimo_grid_place(int64_t *index, int64_t *at, const mimo_grid *grid, mimo_dim_set set,
                     int64_t rank)
{
    int64_t inside = 0, inside_step = 1, outside = 0, outside_step = 1;
    for (int i = 0; i < grid->ndims; i++) {
        bool in_set = (set & grid->bits[i]) != 0;
        int64_t *sum = in_set ? &inside : &outside;
        int64_t *step = in_set ? &inside_step : &outside_step;
        *sum += mimo_grid_digit(grid, rank, i) * *step;
        *step *= grid->dims[i].size;
    }
    *index = outside;
    *at = inside;
}

mimo_status mimo_grid_group_of(int64_t *index, int64_t *at, const mimo_grid *grid, const char *dims,
                               int64_t rank)
{
    mimo_dim_set set;
    int64_t outside, inside;
    MIMO_TRY(mimo_dim_set_read(&set, grid, dims));
    MIMO_TRY(mimo_grid_check_rank(grid, rank));
    mimo_grid_place(&outside, &inside, grid, set, rank);
    if (index)
        *index = outside;
    if (at)
        *at = inside;
    return MIMO_OK;
}
