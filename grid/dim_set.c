#include <stdio.h>
#include <string.h>

#include "core/check.h"
#include "core/memory.h"
#include "grid/dim_set.h"

/* ------------------------------------------ as text ----------------------------------------- */

const char *mimo_dim_set_next(const char **cursor, size_t *length)
{
    const char *name = *cursor;
    if (!name)
        return NULL;
    *length = strcspn(name, ",");
    *cursor = name[*length] ? name + *length + 1 : NULL;
    return name;
}

int mimo_dim_index(const mimo_grid *grid, const char *name, size_t length)
{
    for (int i = 0; i < grid->ndims; i++)
        if (strlen(grid->dims[i].name) == length && memcmp(grid->dims[i].name, name, length) == 0)
            return i;
    return -1;
}

bool mimo_dim_set_has_before(const char *dims, const char *end, const char *name, size_t length)
{
    size_t other_length;
    const char *other;
    while ((other = mimo_dim_set_next(&dims, &other_length)) && other != end)
        if (other_length == length && memcmp(other, name, length) == 0)
            return true;
    return false;
}

bool mimo_dim_set_has(const char *dims, const char *name)
{
    return mimo_dim_set_has_before(dims, NULL, name, strlen(name));
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

mimo_status mimo_dim_set_read(mimo_dim_set *out, const mimo_grid *grid, const char *dims)
{
    char text[MIMO_GRID_TEXT];
    MIMO_CHECK(grid && dims, MIMO_ERR_ARGUMENT, "groups along a set of dimensions: %s is NULL",
               grid ? "the set" : "the grid");
    mimo_grid_text(text, sizeof text, grid);
    MIMO_CHECK(*dims, MIMO_ERR_GRID, "the set of dimensions is empty: name one or more of grid %s",
               text);
    mimo_dim_set set = 0;
    const char *cursor = dims, *name;
    size_t length;
    while ((name = mimo_dim_set_next(&cursor, &length))) {
        int i = mimo_dim_index(grid, name, length);
        MIMO_CHECK(i >= 0, MIMO_ERR_GRID,
                   "the set of dimensions '%s' names '%.*s', which grid %s does not have", dims,
                   (int)length, name, text);
        MIMO_CHECK(!mimo_dim_set_has_before(dims, name, name, length), MIMO_ERR_GRID,
                   "the set of dimensions '%s' names '%.*s' twice", dims, (int)length, name);
        set |= grid->bits[i];
    }
    *out = set;
    return MIMO_OK;
}

/* ------------------------------------------ as bits ----------------------------------------- */

mimo_dim_set mimo_dim_set_all(const mimo_grid *grid)
{
    mimo_dim_set all = 0;
    for (int i = 0; i < grid->ndims; i++)
        all |= grid->bits[i];
    return all;
}

mimo_dim_set mimo_dim_set_of(const mimo_grid *grid, const char *dims)
{
    mimo_dim_set set = 0;
    for (int i = 0; i < grid->ndims; i++)
        if (mimo_dim_set_has(dims, grid->dims[i].name))
            set |= grid->bits[i];
    return set;
}

char *mimo_dim_set_text(char text[MIMO_GRID_TEXT], mimo_dim_set set, const mimo_grid *grid)
{
    text[0] = '\0';
    for (int i = 0; i < grid->ndims; i++) {
        size_t used = strlen(text);
        if (set & grid->bits[i])
            snprintf(text + used, MIMO_GRID_TEXT - used, "%s%s", used > 0 ? "," : "",
                     grid->dims[i].name);
    }
    return text;
}

int64_t mimo_dim_set_ranks(mimo_dim_set set, const mimo_grid *grid)
{
    int64_t ranks = 1;
    for (int i = 0; i < grid->ndims; i++)
        if (set & grid->bits[i])
            ranks *= grid->dims[i].size;
    return ranks;
}

int64_t mimo_dim_set_first(mimo_dim_set set, const mimo_grid *grid, int64_t rank)
{
    int64_t first = rank;
    if (!mimo_grid_contains(grid, rank))
        return -1;
    for (int i = 0; i < grid->ndims; i++)
        if (set & grid->bits[i])
            first -= mimo_grid_digit(grid, rank, i) * grid->strides[i];
    return first;
}

mimo_dim_set mimo_dim_set_between(const mimo_grid *grid, int64_t a, int64_t b)
{
    mimo_dim_set set = 0;
    for (int i = 0; i < grid->ndims; i++)
        if (mimo_grid_digit(grid, a, i) != mimo_grid_digit(grid, b, i))
            set |= grid->bits[i];
    return set;
}
