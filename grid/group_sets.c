/* Sets of dimensions and the groups along them, one group at a time. Costs grow with the group, not
 * with the grid: a rank of a 65,536-rank grid pays for its own groups only. */
#include <string.h>

#include "core/checked.h"
#include "core/memory.h"
#include "grid/grid_types.h"

/* ------------------------------------------- sets ------------------------------------------- */

/* The next name of "tp,cp" at *cursor, which moves past it; NULL after the last. */
static const char *next_name(const char **cursor, size_t *length)
{
    const char *name = *cursor;
    if (!name)
        return NULL;
    *length = strcspn(name, ",");
    *cursor = name[*length] ? name + *length + 1 : NULL;
    return name;
}

/* Whether the set names name[length] before `end`, a pointer into the set; NULL: anywhere. */
static bool has_before(const char *dims, const char *end, const char *name, size_t length)
{
    size_t other_length;
    const char *other;
    while ((other = next_name(&dims, &other_length)) && other != end)
        if (other_length == length && memcmp(other, name, length) == 0)
            return true;
    return false;
}

static bool is_dim(const mimo_grid *grid, const char *name, size_t length)
{
    for (int i = 0; i < grid->ndims; i++)
        if (strlen(grid->dims[i].name) == length && memcmp(grid->dims[i].name, name, length) == 0)
            return true;
    return false;
}

mimo_status mimo_dim_set_check(const mimo_grid *grid, const char *dims)
{
    char text[MIMO_GRID_TEXT];
    MIMO_CHECK(grid && dims, MIMO_ERR_ARGUMENT, "groups along a set of dimensions: %s is NULL",
               grid ? "the set" : "the grid");
    mimo_grid_text(text, sizeof text, grid);
    MIMO_CHECK(*dims, MIMO_ERR_GRID, "the set of dimensions is empty: name one or more of grid %s",
               text);
    const char *cursor = dims, *name;
    size_t length;
    while ((name = next_name(&cursor, &length))) {
        MIMO_CHECK(is_dim(grid, name, length), MIMO_ERR_GRID,
                   "the set of dimensions '%s' names '%.*s', which grid %s does not have", dims,
                   (int)length, name, text);
        MIMO_CHECK(!has_before(dims, name, name, length), MIMO_ERR_GRID,
                   "the set of dimensions '%s' names '%.*s' twice", dims, (int)length, name);
    }
    return MIMO_OK;
}

bool mimo_dim_set_has(const char *dims, const char *name)
{
    return has_before(dims, NULL, name, strlen(name));
}

mimo_status mimo_dim_set_key(char **out, const mimo_grid *grid, const char *dims)
{
    char *key;
    MIMO_TRY(mimo_copy_string(&key, dims)); /* the same names, so the same length */
    size_t used = 0;
    for (int i = 0; i < grid->ndims; i++) {
        const char *name = grid->dims[i].name;
        if (!mimo_dim_set_has(dims, name))
            continue;
        if (used > 0)
            key[used++] = ',';
        memcpy(key + used, name, strlen(name));
        used += strlen(name);
    }
    *out = key;
    return MIMO_OK;
}

/* ------------------------------------------ groups ------------------------------------------ */

static int64_t group_size_of(const mimo_grid *grid, const char *dims)
{
    int64_t size = 1;
    for (int i = 0; i < grid->ndims; i++)
        if (mimo_dim_set_has(dims, grid->dims[i].name))
            size *= grid->dims[i].size;
    return size;
}

mimo_status mimo_grid_group_count(int64_t *groups, int64_t *group_size, const mimo_grid *grid,
                                  const char *dims)
{
    MIMO_TRY(mimo_dim_set_check(grid, dims));
    int64_t size = group_size_of(grid, dims);
    if (groups)
        *groups = grid->size / size;
    if (group_size)
        *group_size = size;
    return MIMO_OK;
}

/* The first rank of group `index`: its coordinates along the other dimensions are the digits of
 * `index`, the first dimension fastest. */
static int64_t first_rank(const mimo_grid *grid, const char *dims, int64_t index)
{
    int64_t rank = grid->offset;
    for (int i = 0; i < grid->ndims; i++) {
        if (mimo_dim_set_has(dims, grid->dims[i].name))
            continue;
        rank += index % grid->dims[i].size * grid->strides[i];
        index /= grid->dims[i].size;
    }
    return rank;
}

mimo_status mimo_grid_group_at(int64_t *ranks, const mimo_grid *grid, const char *dims,
                               int64_t index)
{
    MIMO_TRY(mimo_dim_set_check(grid, dims));
    MIMO_CHECK(ranks, MIMO_ERR_ARGUMENT, "mimo_grid_group_at: ranks is NULL");
    int64_t groups = grid->size / group_size_of(grid, dims);
    MIMO_CHECK(index >= 0 && index < groups, MIMO_ERR_ARGUMENT,
               "group %" PRId64 " along '%s' is outside the %" PRId64 " groups there are", index,
               dims, groups);

    ranks[0] = first_rank(grid, dims, index);
    int64_t filled = 1;
    for (int i = 0; i < grid->ndims; i++) {
        if (!mimo_dim_set_has(dims, grid->dims[i].name))
            continue;
        /* The ranks so far have coordinate 0 along this dimension. */
        int64_t total = filled * grid->dims[i].size;
        for (int64_t j = filled; j < total; j++)
            ranks[j] = ranks[j - filled] + grid->strides[i];
        filled = total;
    }
    return MIMO_OK;
}

mimo_status mimo_grid_group_of(int64_t *index, int64_t *at, const mimo_grid *grid, const char *dims,
                               int64_t rank)
{
    MIMO_TRY(mimo_dim_set_check(grid, dims));
    MIMO_TRY(mimo_grid_check_rank(grid, rank));
    int64_t inside = 0, inside_step = 1, outside = 0, outside_step = 1;
    for (int i = 0; i < grid->ndims; i++) {
        bool in_set = mimo_dim_set_has(dims, grid->dims[i].name);
        int64_t *sum = in_set ? &inside : &outside;
        int64_t *step = in_set ? &inside_step : &outside_step;
        *sum += mimo_grid_digit(grid, rank, i) * *step;
        *step *= grid->dims[i].size;
    }
    if (index)
        *index = outside;
    if (at)
        *at = inside;
    return MIMO_OK;
}
