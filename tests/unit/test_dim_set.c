/* Sets of dimensions: text, bits, and the first rank of those that differ along a set. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/memory.h"
#include "expect_failure.h"
#include "grid/dim_set.h"

static mimo_grid *parse(const char *spec, int64_t offset)
{
    mimo_grid *grid = NULL;
    SUCCEEDS(mimo_grid_create_text(&grid, spec, offset));
    return grid;
}

static mimo_dim_set read_set(const mimo_grid *grid, const char *dims)
{
    mimo_dim_set set = 0;
    SUCCEEDS(mimo_dim_set_read(&set, grid, dims));
    return set;
}

/* Names come in the order of the grid; those of size 1 have no bit, and stay in the key. */
Test(dim_set, text)
{
    char text[MIMO_GRID_TEXT], *key = NULL;
    mimo_grid *grid = parse("tp=2,one=1,ep=3,pp=2", 0);
    mimo_dim_set set = read_set(grid, "pp,one,tp");
    cr_assert_eq(set, 5);
    cr_assert_str_eq(mimo_dim_set_text(text, set, grid), "tp,pp");
    cr_assert_str_eq(mimo_dim_set_text(text, 0, grid), "");
    cr_assert_str_eq(mimo_dim_set_text(text, mimo_dim_set_all(grid), grid), "tp,ep,pp");
    cr_assert_eq(mimo_dim_set_of(grid, "cp,ep,dp"), 2);
    cr_assert_eq(mimo_dim_set_of(grid, ""), 0);
    cr_assert_eq(mimo_dim_set_ranks(set, grid), 4);
    cr_assert_eq(mimo_dim_set_ranks(0, grid), 1);
    SUCCEEDS(mimo_dim_set_key(&key, grid, "pp,one,tp"));
    cr_assert_str_eq(key, "tp,one,pp");
    mimo_release(key);
    mimo_grid_destroy(grid);
}

Test(dim_set, errors)
{
    mimo_dim_set set = 77;
    mimo_grid *grid = parse("tp=2,one=1", 0);
    FAILS(mimo_dim_set_read(&set, grid, ""), MIMO_ERR_GRID, "is empty", "tp=2,one=1");
    FAILS(mimo_dim_set_read(&set, grid, "tp,t"), MIMO_ERR_GRID, "names 't', which grid");
    FAILS(mimo_dim_set_read(&set, grid, "tp,"), MIMO_ERR_GRID, "names '', which grid");
    FAILS(mimo_dim_set_read(&set, grid, "one,tp,one"), MIMO_ERR_GRID, "names 'one' twice");
    cr_assert_eq(set, 77, "a failed call wrote its output");
    mimo_grid_destroy(grid);
}

/* The first rank of those that differ along a set, against coordinates. */
Test(dim_set, first)
{
    enum { OFFSET = 5, DIMS = 4 };
    mimo_grid *grid = parse("a=2,b=1,c=3,d=2", OFFSET);
    for (mimo_dim_set set = 0; set < 8; set++)
        for (int64_t rank = OFFSET; rank < OFFSET + 12; rank++) {
            int64_t coords[DIMS], first = -1;
            SUCCEEDS(mimo_grid_coords(coords, grid, rank));
            coords[0] = set & 1 ? 0 : coords[0];
            coords[2] = set & 2 ? 0 : coords[2];
            coords[3] = set & 4 ? 0 : coords[3];
            SUCCEEDS(mimo_grid_rank(&first, grid, coords));
            cr_assert_eq(mimo_dim_set_first(set, grid, rank), first);
            cr_assert_eq(mimo_dim_set_between(grid, rank, first) & ~set, 0);
        }
    cr_assert_eq(mimo_dim_set_between(grid, OFFSET, OFFSET + 11), 7);
    cr_assert_eq(mimo_dim_set_between(grid, OFFSET + 1, OFFSET + 7), 4);
    cr_assert_eq(mimo_dim_set_first(0, grid, OFFSET - 1), -1);
    cr_assert_eq(mimo_dim_set_first(7, grid, OFFSET + 12), -1);
    mimo_grid_destroy(grid);
}

/* Every grid has room: 30 dimensions of size 2 are the most that ranks can have, between any number
 * of dimensions of size 1. */
Test(dim_set, as_many_as_a_grid_has)
{
    enum { DIMS = 30 };
    char spec[2048] = "", name[16];
    for (int i = 0; i < DIMS; i++)
        snprintf(spec + strlen(spec), sizeof spec - strlen(spec), "%sone%d=1,two%d=2",
                 i > 0 ? "," : "", i, i);
    mimo_grid *grid = parse(spec, 0);
    cr_assert_eq(mimo_grid_ndims(grid), 2 * DIMS);
    for (int i = 0; i < DIMS; i++) {
        snprintf(name, sizeof name, "two%d", i);
        mimo_dim_set set = read_set(grid, name);
        cr_assert_eq(set, UINT32_C(1) << i);
        cr_assert_eq(mimo_dim_set_first(set, grid, (INT64_C(1) << DIMS) - 1),
                     (INT64_C(1) << DIMS) - 1 - (INT64_C(1) << i));
    }
    cr_assert_eq(mimo_dim_set_ranks(mimo_dim_set_all(grid), grid), INT64_C(1) << DIMS);
    mimo_grid_destroy(grid);
}
