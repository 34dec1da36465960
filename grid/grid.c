/* Grids as values: creation, their text, and the arithmetic of ranks and coordinates. */
#include <stdio.h>
#include <string.h>

#include "core/checked.h"
#include "core/hash.h"
#include "core/memory.h"
#include "grid/grid_types.h"

/* ----------------------------------------- creation ----------------------------------------- */

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

static mimo_status check_dim(const mimo_dim *dims, int i)
{
    const char *name = dims[i].name;
    MIMO_CHECK(name, MIMO_ERR_ARGUMENT, "dimension %d of the grid has a NULL name", i);
    MIMO_CHECK(*name, MIMO_ERR_GRID, "dimension %d of the grid has an empty name", i);
    for (const char *c = name; *c; c++)
        MIMO_CHECK(is_name_char(*c), MIMO_ERR_GRID,
                   "dimension %d of the grid is named '%s': only letters, digits, '_' and '-' are "
                   "allowed",
                   i, name);
    for (int j = 0; j < i; j++)
        MIMO_CHECK(strcmp(dims[j].name, name) != 0, MIMO_ERR_GRID,
                   "dimensions %d and %d of the grid are both named '%s'", j, i, name);
    MIMO_CHECK(dims[i].size >= 1, MIMO_ERR_GRID,
               "dimension '%s' has size %" PRId64 ", and needs at least 1", name, dims[i].size);
    return MIMO_OK;
}

static mimo_status check_ranks(const mimo_dim *dims, int ndims, int64_t offset)
{
    int64_t size = 1;
    for (int i = 0; i < ndims; i++)
        if (mimo_mul(&size, size, dims[i].size) != MIMO_OK)
            return mimo_fail_prefix(MIMO_ERR_OVERFLOW,
                                    "number of ranks up to dimension '%s': ", dims[i].name);
    MIMO_CHECK(offset >= 0, MIMO_ERR_GRID, "grid offset is %" PRId64 ", and must not be negative",
               offset);
    MIMO_CHECK(offset <= INT32_MAX && size - 1 <= INT32_MAX - offset, MIMO_ERR_GRID,
               "%" PRId64 " ranks from offset %" PRId64 " on go past the last rank %" PRId32, size,
               offset, INT32_MAX);
    return MIMO_OK;
}

void mimo_grid_release_value(mimo_grid *grid)
{
    for (int i = 0; grid->dims && i < grid->ndims; i++)
        mimo_release((void *)grid->dims[i].name);
    mimo_release(grid->dims);
    mimo_release(grid->strides);
    mimo_release(grid->copies);
    mimo_release(grid->bits);
    mimo_release(grid->view_name);
    mimo_release(grid);
}

static mimo_status fill(mimo_grid *grid, const mimo_dim *dims, int ndims, int64_t offset)
{
    MIMO_TRY(mimo_reserve(&grid->dims, ndims, sizeof *grid->dims));
    MIMO_TRY(mimo_reserve(&grid->strides, ndims, sizeof *grid->strides));
    MIMO_TRY(mimo_reserve(&grid->copies, ndims, sizeof *grid->copies));
    MIMO_TRY(mimo_reserve(&grid->bits, ndims, sizeof *grid->bits));
    grid->ndims = ndims;
    grid->offset = offset;
    grid->size = 1;
    grid->holders = 1;
    mimo_dim_set bit = 1;
    for (int i = 0; i < ndims; i++) {
        char *name;
        MIMO_TRY(mimo_copy_string(&name, dims[i].name));
        grid->dims[i] = (mimo_dim){name, dims[i].size};
        grid->strides[i] = grid->size;
        grid->size *= dims[i].size;
        if (dims[i].size == 1)
            continue;
        grid->bits[i] = bit;
        bit <<= 1;
    }
    return MIMO_OK;
}

mimo_status mimo_grid_create(mimo_grid **out, const mimo_dim *dims, int ndims, int64_t offset)
{
    MIMO_CHECK(out, MIMO_ERR_ARGUMENT, "mimo_grid_create: out is NULL");
    MIMO_CHECK(ndims >= 1, MIMO_ERR_GRID, "a grid of %d dimensions: it needs at least 1", ndims);
    MIMO_CHECK(dims, MIMO_ERR_ARGUMENT, "mimo_grid_create: dims is NULL, ndims is %d", ndims);
    for (int i = 0; i < ndims; i++)
        MIMO_TRY(check_dim(dims, i));
    MIMO_TRY(check_ranks(dims, ndims, offset));

    mimo_grid *grid;
    MIMO_TRY(mimo_reserve(&grid, 1, sizeof *grid));
    mimo_status status = fill(grid, dims, ndims, offset);
    if (status != MIMO_OK) {
        mimo_grid_release_value(grid);
        return status;
    }
    *out = grid;
    return MIMO_OK;
}

/* ------------------------------------------- text ------------------------------------------- */

char *mimo_grid_text(char *text, size_t capacity, const mimo_grid *grid)
{
    size_t used = 0;
    if (capacity > 0)
        text[0] = '\0';
    for (int i = 0; i < grid->ndims && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%s=%" PRId64 "%s",
                                 i > 0 ? "," : "", grid->dims[i].name, grid->dims[i].size,
                                 grid->copies[i] ? MIMO_GRID_COPIES : "");
    return text;
}

uint64_t mimo_grid_hash(uint64_t hash, const mimo_grid *grid)
{
    hash = mimo_hash_int(hash, grid->offset);
    for (int i = 0; i < grid->ndims; i++) {
        hash = mimo_hash_bytes(hash, grid->dims[i].name, strlen(grid->dims[i].name));
        hash = mimo_hash_int(mimo_hash_int(hash, grid->dims[i].size), grid->copies[i]);
    }
    return hash;
}

/* ---------------------------------------- questions ----------------------------------------- */

mimo_status mimo_grid_check_world(const mimo_grid *grid, int64_t world)
{
    char text[MIMO_GRID_TEXT];
    MIMO_CHECK(grid, MIMO_ERR_ARGUMENT, "mimo_grid_check_world: grid is NULL");
    MIMO_CHECK(grid->offset + grid->size <= world, MIMO_ERR_GRID,
               "grid %s at offset %" PRId64 " needs %" PRId64 " ranks, and there are %" PRId64,
               mimo_grid_text(text, sizeof text, grid), grid->offset, grid->offset + grid->size,
               world);
    return MIMO_OK;
}

int64_t mimo_grid_size(const mimo_grid *grid)
{
    return grid->size;
}

int64_t mimo_grid_rank_offset(const mimo_grid *grid)
{
    return grid->offset;
}

bool mimo_grid_contains(const mimo_grid *grid, int64_t rank)
{
    return rank >= grid->offset && rank - grid->offset < grid->size;
}

int mimo_grid_ndims(const mimo_grid *grid)
{
    return grid->ndims;
}

mimo_dim mimo_grid_dim(const mimo_grid *grid, int index)
{
    if (index < 0 || index >= grid->ndims)
        return (mimo_dim){NULL, 0};
    return grid->dims[index];
}

int mimo_grid_find(const mimo_grid *grid, const char *name)
{
    for (int i = 0; i < grid->ndims; i++)
        if (strcmp(grid->dims[i].name, name) == 0)
            return i;
    return -1;
}

int64_t mimo_grid_dim_size(const mimo_grid *grid, const char *name)
{
    int i = mimo_grid_find(grid, name);
    return i < 0 ? 1 : grid->dims[i].size;
}

int64_t mimo_grid_stride(const mimo_grid *grid, const char *name)
{
    int i = mimo_grid_find(grid, name);
    return i < 0 ? 0 : grid->strides[i];
}

/* ---------------------------------------- arithmetic ---------------------------------------- */

mimo_status mimo_grid_check_rank(const mimo_grid *grid, int64_t rank)
{
    char text[MIMO_GRID_TEXT];
    MIMO_CHECK(mimo_grid_contains(grid, rank), MIMO_ERR_GRID,
               "rank %" PRId64 " is outside grid %s, which has ranks %" PRId64 " to %" PRId64, rank,
               mimo_grid_text(text, sizeof text, grid), grid->offset,
               grid->offset + grid->size - 1);
    return MIMO_OK;
}

mimo_status mimo_grid_coords(int64_t *coords, const mimo_grid *grid, int64_t rank)
{
    MIMO_CHECK(grid && coords, MIMO_ERR_ARGUMENT, "mimo_grid_coords: %s is NULL",
               grid ? "coords" : "grid");
    MIMO_TRY(mimo_grid_check_rank(grid, rank));
    for (int i = 0; i < grid->ndims; i++)
        coords[i] = mimo_grid_digit(grid, rank, i);
    return MIMO_OK;
}

mimo_status mimo_grid_coord(int64_t *out, const mimo_grid *grid, int64_t rank, const char *name)
{
    MIMO_CHECK(grid && name && out, MIMO_ERR_ARGUMENT, "mimo_grid_coord: %s is NULL",
               !grid ? "grid" : (name ? "out" : "name"));
    MIMO_TRY(mimo_grid_check_rank(grid, rank));
    int i = mimo_grid_find(grid, name);
    *out = i < 0 ? 0 : mimo_grid_digit(grid, rank, i);
    return MIMO_OK;
}

mimo_status mimo_grid_rank(int64_t *out, const mimo_grid *grid, const int64_t *coords)
{
    MIMO_CHECK(grid && coords && out, MIMO_ERR_ARGUMENT, "mimo_grid_rank: %s is NULL",
               !grid ? "grid" : (coords ? "out" : "coords"));
    int64_t rank = grid->offset;
    for (int i = 0; i < grid->ndims; i++) {
        MIMO_CHECK(coords[i] >= 0 && coords[i] < grid->dims[i].size, MIMO_ERR_GRID,
                   "coordinate %" PRId64 " of dimension '%s' is outside its size %" PRId64,
                   coords[i], grid->dims[i].name, grid->dims[i].size);
        rank += coords[i] * grid->strides[i];
    }
    *out = rank;
    return MIMO_OK;
}
