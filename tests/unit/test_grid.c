/* Grids without a communicator: goldens, properties against a slow reference, every error. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include <mimo/grid.h>

#include "core/hash.h"
#include "grid/grid_types.h"
#include "expect_failure.h"
#include "same_bits.h"
#include "slow_grid.h"

enum { MAX_DIMS = SLOW_DIMS, MAX_RANKS = 4096 };

static mimo_grid *parse(const char *spec, int64_t offset)
{
    mimo_grid *grid = NULL;
    cr_assert_eq(mimo_grid_create_text(&grid, spec, offset), MIMO_OK, "%s: %s", spec,
                 mimo_last_error());
    return grid;
}

/* -------------------------------------- slow reference -------------------------------------- */

/* Whether two ranks are in one group, by their coordinates. */
static bool same_group(const slow_grid *w, unsigned set, int64_t a, int64_t b)
{
    for (int i = 0; i < w->ndims; i++)
        if (!(set >> i & 1) && w->coords[a][i] != w->coords[b][i])
            return false;
    return true;
}

/* The names of the dimensions in a set, such as "cp,tp", in an order that the seed chooses. */
static void write_set(char *text, const slow_grid *w, unsigned set, uint64_t seed)
{
    int turn = (int)(seed % (uint64_t)w->ndims);
    text[0] = '\0';
    for (int n = 0; n < w->ndims; n++) {
        int i = seed & 1 << 20 ? (n + turn) % w->ndims : (2 * w->ndims - 1 - n - turn) % w->ndims;
        if (!(set >> i & 1))
            continue;
        if (*text)
            strcat(text, ",");
        strcat(text, w->names[i]);
    }
}

/* Every group along a set equals the reference, in content and order, and group_of inverts it. */
static void check_groups(const mimo_grid *grid, const slow_grid *w, unsigned set, uint64_t seed)
{
    char dims[256];
    int64_t groups, group_size, index = 0;
    write_set(dims, w, set, seed);
    SUCCEEDS(mimo_grid_group_count(&groups, &group_size, grid, dims));
    int64_t *ranks = calloc((size_t)group_size, sizeof *ranks);
    bool *seen = calloc((size_t)w->size, sizeof *seen);
    for (int64_t first = 0; first < w->size; first++) { /* groups by ascending first rank */
        if (seen[first])
            continue;
        SUCCEEDS(mimo_grid_group_at(ranks, grid, dims, index));
        int64_t place = 0;
        for (int64_t r = first; r < w->size; r++) { /* ranks ascend in a group */
            if (!same_group(w, set, first, r))
                continue;
            int64_t got_index = -1, got_place = -1;
            seen[r] = true;
            cr_assert_lt(place, group_size, "group %" PRId64 " along %s is too short", index, dims);
            cr_assert_eq(ranks[place], w->offset + r,
                         "group %" PRId64 " along %s place %" PRId64 ": %" PRId64
                         " instead of %" PRId64,
                         index, dims, place, ranks[place], w->offset + r);
            SUCCEEDS(mimo_grid_group_of(&got_index, &got_place, grid, dims, w->offset + r));
            cr_assert(got_index == index && got_place == place,
                      "rank %" PRId64 " along %s: group %" PRId64 " place %" PRId64
                      " instead of %" PRId64 " and %" PRId64,
                      w->offset + r, dims, got_index, got_place, index, place);
            place++;
        }
        cr_assert_eq(place, group_size);
        index++;
    }
    cr_assert_eq(index, groups, "%" PRId64 " groups along %s, not %" PRId64, groups, dims, index);
    free(seen);
    free(ranks);
}

static void check_coords(const mimo_grid *grid, const slow_grid *w)
{
    for (int64_t r = 0; r < w->size; r++) {
        int64_t coords[MAX_DIMS], rank = -1;
        SUCCEEDS(mimo_grid_coords(coords, grid, w->offset + r));
        for (int i = 0; i < w->ndims; i++) {
            int64_t one = -1;
            cr_assert_eq(coords[i], w->coords[r][i]);
            SUCCEEDS(mimo_grid_coord(&one, grid, w->offset + r, w->names[i]));
            cr_assert_eq(one, coords[i]);
        }
        SUCCEEDS(mimo_grid_rank(&rank, grid, coords));
        cr_assert_eq(rank, w->offset + r);
    }
}

/* ----------------------------------------- goldens ------------------------------------------ */

static void expect_groups(const char *spec, int64_t offset, const char *dims, int64_t groups,
                          int64_t group_size, const int64_t *expected)
{
    mimo_grid *grid = parse(spec, offset);
    int64_t got_groups, got_size, ranks[16];
    SUCCEEDS(mimo_grid_group_count(&got_groups, &got_size, grid, dims));
    cr_assert(got_groups == groups && got_size == group_size, "%s along %s", spec, dims);
    for (int64_t g = 0; g < groups; g++) {
        SUCCEEDS(mimo_grid_group_at(ranks, grid, dims, g));
        EXPECT_BITS(bits_of(ranks, expected + g * group_size, group_size * (int64_t)sizeof *ranks,
                            sizeof *ranks, 0),
                    "%s along %s group %" PRId64, spec, dims, g);
    }
    mimo_grid_destroy(grid);
}

Test(grid, goldens)
{
    expect_groups("tp=2,cp=2,dp=2", 0, "tp,cp", 2, 4, (int64_t[]){0, 1, 2, 3, 4, 5, 6, 7});
    expect_groups("tp=2,cp=2,dp=2", 0, "tp,dp", 2, 4, (int64_t[]){0, 1, 4, 5, 2, 3, 6, 7});
    expect_groups("tp=2,cp=2,dp=2", 0, "dp,tp", 2, 4, (int64_t[]){0, 1, 4, 5, 2, 3, 6, 7});
    expect_groups("tp=2,cp=1,dp=2", 4, "dp", 2, 2, (int64_t[]){4, 6, 5, 7});
    expect_groups("tp=2,cp=1,dp=2", 4, "cp", 4, 1, (int64_t[]){4, 5, 6, 7});
    expect_groups("tp=1", 0, "tp", 1, 1, (int64_t[]){0});
    /* One name is the beginning of another. */
    expect_groups("ep=2,ep2=2", 0, "ep2", 2, 2, (int64_t[]){0, 2, 1, 3});
}

Test(grid, text_and_questions)
{
    char text[64];
    mimo_grid *grid = parse("tp=2,cp=2,pp=1,dp=2", 8);
    cr_assert_str_eq(mimo_grid_text(text, sizeof text, grid), "tp=2,cp=2,pp=1,dp=2");
    cr_assert_str_eq(mimo_grid_text(text, 7, grid), "tp=2,c");
    cr_assert_str_eq(mimo_grid_text(text, 1, grid), "");
    cr_assert_eq(mimo_grid_size(grid), 8);
    cr_assert_eq(mimo_grid_rank_offset(grid), 8);
    cr_assert_eq(mimo_grid_ndims(grid), 4);
    cr_assert(mimo_grid_contains(grid, 8) && mimo_grid_contains(grid, 15));
    cr_assert(!mimo_grid_contains(grid, 7) && !mimo_grid_contains(grid, 16));
    cr_assert_str_eq(mimo_grid_dim(grid, 3).name, "dp");
    cr_assert_eq(mimo_grid_dim(grid, 3).size, 2);
    cr_assert_null(mimo_grid_dim(grid, 4).name);
    cr_assert_eq(mimo_grid_dim(grid, -1).size, 0);
    cr_assert_eq(mimo_grid_find(grid, "pp"), 2);
    cr_assert_eq(mimo_grid_find(grid, "p"), -1);
    cr_assert_eq(mimo_grid_dim_size(grid, "cp"), 2);
    cr_assert_eq(mimo_grid_dim_size(grid, "ep"), 1);
    int64_t coord = -1;
    SUCCEEDS(mimo_grid_coord(&coord, grid, 15, "ep"));
    cr_assert_eq(coord, 0, "the coordinate of an absent dimension is 0");
    SUCCEEDS(mimo_grid_check_world(grid, 16));
    cr_assert_null(mimo_grid_comm(grid));
    mimo_grid_destroy(grid);
    mimo_grid_destroy(NULL);
}

/* ---------------------------------------- properties ---------------------------------------- */

static mimo_grid *random_grid(uint64_t *state)
{
    static const char *const names[MAX_DIMS] = {"tp", "cp", "ep", "pp", "dp", "gtp_remat"};
    static const int64_t sizes[] = {1, 1, 2, 2, 3, 4, 5, 7, 8};
    mimo_dim dims[MAX_DIMS];
    int ndims = 1 + (int)(next_random(state) % MAX_DIMS);
    int64_t product = 1;
    for (int i = 0; i < ndims; i++) {
        int64_t size = sizes[next_random(state) % 9];
        dims[i] = (mimo_dim){names[i], product * size <= MAX_RANKS ? size : 1};
        product *= dims[i].size;
    }
    mimo_grid *grid;
    int64_t offset = (int64_t)(next_random(state) % 3) * 1000;
    SUCCEEDS(mimo_grid_create(&grid, dims, ndims, offset));
    return grid;
}

Test(grid, random_grids_equal_the_reference)
{
    uint64_t state = 1;
    for (int trial = 0; trial < 60; trial++) {
        mimo_grid *grid = random_grid(&state);
        slow_grid w = slow_grid_of(grid);
        check_coords(grid, &w);
        for (int s = 0; s < 3; s++) {
            unsigned sets = (1u << w.ndims) - 1;
            check_groups(grid, &w, 1 + (unsigned)(next_random(&state) % sets), next_random(&state));
        }
        slow_grid_free(&w);
        mimo_grid_destroy(grid);
    }
}

Test(grid, text_round_trip)
{
    uint64_t state = 2;
    char text[128], again[128];
    for (int trial = 0; trial < 50; trial++) {
        mimo_grid *grid = random_grid(&state);
        mimo_grid_text(text, sizeof text, grid);
        mimo_grid *copy = parse(text, mimo_grid_rank_offset(grid));
        cr_assert_str_eq(mimo_grid_text(again, sizeof again, copy), text);
        mimo_grid_destroy(copy);
        mimo_grid_destroy(grid);
    }
}

Test(grid, the_own_groups_of_a_rank_among_65536)
{
    /* tp=8,cp=16,pp=4,dp=128: the strides are 1, 8, 128 and 512. */
    mimo_grid *grid = parse("tp=8,cp=16,pp=4,dp=128", 7);
    int64_t rank = 7 + 5 + 3 * 8 + 2 * 128 + 100 * 512, index, place, ranks[2048];
    cr_assert_eq(mimo_grid_size(grid), 65536);
    SUCCEEDS(mimo_grid_group_of(&index, &place, grid, "dp,cp", rank));
    cr_assert_eq(index, 5 + 2 * 8);
    cr_assert_eq(place, 3 + 100 * 16);
    SUCCEEDS(mimo_grid_group_at(ranks, grid, "cp,dp", index));
    for (int64_t d = 0; d < 128; d++)
        for (int64_t c = 0; c < 16; c++)
            cr_assert_eq(ranks[d * 16 + c], 7 + 5 + c * 8 + 2 * 128 + d * 512);
    /* Together the groups hold each rank of the grid once. */
    int64_t groups, size;
    char *seen = calloc(65536, 1);
    SUCCEEDS(mimo_grid_group_count(&groups, &size, grid, "tp,pp"));
    for (int64_t g = 0; g < groups; g++) {
        SUCCEEDS(mimo_grid_group_at(ranks, grid, "tp,pp", g));
        for (int64_t i = 0; i < size; i++)
            cr_assert_eq(seen[ranks[i] - 7]++, 0, "rank %" PRId64 " is in two groups", ranks[i]);
    }
    cr_assert_eq(groups * size, 65536);
    free(seen);
    mimo_grid_destroy(grid);
}

Test(grid, the_largest_span)
{
    mimo_grid *grid = parse("a=2,b=1073741824", 0); /* last rank 2^31 - 1 */
    int64_t coords[2];
    SUCCEEDS(mimo_grid_coords(coords, grid, INT32_MAX));
    cr_assert(coords[0] == 1 && coords[1] == 1073741823);
    mimo_grid_destroy(grid);
}

/* ------------------------------------------ errors ------------------------------------------ */

Test(grid, creation_errors)
{
    mimo_grid *const untouched = (mimo_grid *)&(char){0};
    mimo_grid *grid = untouched;
    mimo_dim two[] = {{"tp", 2}, {"dp", 4}};
    FAILS(mimo_grid_create(&grid, two, 0, 0), MIMO_ERR_GRID, "0 dimensions");
    FAILS(mimo_grid_create(&grid, two, -3, 0), MIMO_ERR_GRID, "-3 dimensions");
    FAILS(mimo_grid_create(&grid, NULL, 2, 0), MIMO_ERR_ARGUMENT, "dims is NULL");
    FAILS(mimo_grid_create(NULL, two, 2, 0), MIMO_ERR_ARGUMENT, "out is NULL");
    FAILS(mimo_grid_create(&grid, (mimo_dim[]){{NULL, 2}}, 1, 0), MIMO_ERR_ARGUMENT, "NULL name");
    FAILS(mimo_grid_create(&grid, (mimo_dim[]){{"tp", 2}, {"", 2}}, 2, 0), MIMO_ERR_GRID,
          "dimension 1", "empty name");
    FAILS(mimo_grid_create(&grid, (mimo_dim[]){{"t p", 2}}, 1, 0), MIMO_ERR_GRID, "'t p'");
    FAILS(mimo_grid_create(&grid, (mimo_dim[]){{"tp", 2}, {"x", 1}, {"tp", 3}}, 3, 0),
          MIMO_ERR_GRID, "dimensions 0 and 2", "'tp'");
    FAILS(mimo_grid_create(&grid, (mimo_dim[]){{"tp", 0}}, 1, 0), MIMO_ERR_GRID, "'tp'", "size 0");
    FAILS(mimo_grid_create(&grid, (mimo_dim[]){{"tp", -2}}, 1, 0), MIMO_ERR_GRID, "size -2");
    FAILS(mimo_grid_create(&grid, two, 2, -1), MIMO_ERR_GRID, "offset is -1");
    FAILS(mimo_grid_create(&grid, two, 2, INT32_MAX - 6), MIMO_ERR_GRID, "8 ranks",
          "offset 2147483641", "2147483647");
    FAILS(mimo_grid_create(&grid, two, 2, INT64_MAX), MIMO_ERR_GRID, "offset 9223372036854775807");
    FAILS(mimo_grid_create(&grid, (mimo_dim[]){{"a", INT64_C(1) << 31}, {"b", 2}}, 2, 0),
          MIMO_ERR_GRID, "4294967296 ranks");
    FAILS(mimo_grid_create(&grid, (mimo_dim[]){{"a", INT64_C(1) << 40}, {"b", INT64_C(1) << 40}}, 2,
                           0),
          MIMO_ERR_OVERFLOW, "'b'", "1099511627776 * 1099511627776");
    cr_assert_eq(grid, untouched, "a failed call leaves its outputs untouched");
}

Test(grid, parse_errors)
{
    static const char *const bad[] = {"",       "tp",     "tp=",      "tp=2,", ",tp=2",
                                      "tp=2x",  "tp= 2",  "tp=+2",    "tp==2", "tp=2,,dp=2",
                                      "tp=0x2", "tp=2.0", "tp=2;dp=2"};
    mimo_grid *grid = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        FAILS(mimo_grid_create_text(&grid, bad[i], 0), MIMO_ERR_ARGUMENT, bad[i]);
    FAILS(mimo_grid_create_text(&grid, "dp=2,tp=99999999999999999999", 0), MIMO_ERR_OVERFLOW,
          "part 2", "'tp=99999999999999999999'", "does not fit 64 bits");
    FAILS(mimo_grid_create_text(&grid, "tp=2,dp=x,cp=2", 0), MIMO_ERR_ARGUMENT, "part 2", "'dp=x'");
    FAILS(mimo_grid_create_text(&grid, "tp=-2", 0), MIMO_ERR_GRID, "size -2");
    FAILS(mimo_grid_create_text(&grid, "=2", 0), MIMO_ERR_GRID, "empty name");
    FAILS(mimo_grid_create_text(&grid, "tp=2,tp=2", 0), MIMO_ERR_GRID, "'tp'");
    FAILS(mimo_grid_create_text(&grid, NULL, 0), MIMO_ERR_ARGUMENT, "spec is NULL");
    FAILS(mimo_grid_create_text(NULL, "tp=2", 0), MIMO_ERR_ARGUMENT, "out is NULL");
    cr_assert_null(grid);
}

Test(grid, rank_and_set_errors)
{
    mimo_grid *grid = parse("tp=2,cp=1,dp=2", 4);
    int64_t coords[3] = {-7, -7, -7}, out = -7;
    FAILS(mimo_grid_check_world(grid, 7), MIMO_ERR_GRID, "offset 4", "needs 8", "are 7");
    FAILS(mimo_grid_coords(coords, grid, 3), MIMO_ERR_GRID, "rank 3", "4 to 7", "tp=2,cp=1,dp=2");
    FAILS(mimo_grid_coords(coords, grid, 8), MIMO_ERR_GRID, "rank 8");
    FAILS(mimo_grid_coord(&out, grid, 8, "tp"), MIMO_ERR_GRID, "rank 8");
    FAILS(mimo_grid_coord(&out, grid, -1, "none"), MIMO_ERR_GRID, "rank -1");
    FAILS(mimo_grid_rank(&out, grid, (int64_t[]){0, 0, 2}), MIMO_ERR_GRID, "coordinate 2", "'dp'",
          "size 2");
    FAILS(mimo_grid_rank(&out, grid, (int64_t[]){0, -1, 0}), MIMO_ERR_GRID, "coordinate -1",
          "'cp'");
    FAILS(mimo_grid_group_count(&out, &out, grid, ""), MIMO_ERR_GRID, "empty");
    FAILS(mimo_grid_group_count(&out, &out, grid, "tp,dp,tp"), MIMO_ERR_GRID, "'tp' twice",
          "'tp,dp,tp'");
    FAILS(mimo_grid_group_count(&out, &out, grid, "tp,ep"), MIMO_ERR_GRID, "'ep'",
          "tp=2,cp=1,dp=2");
    FAILS(mimo_grid_group_count(&out, &out, grid, "t"), MIMO_ERR_GRID, "'t'");
    FAILS(mimo_grid_group_count(&out, &out, grid, "tp,"), MIMO_ERR_GRID, "'tp,'", "''");
    FAILS(mimo_grid_group_count(&out, &out, grid, NULL), MIMO_ERR_ARGUMENT, "NULL");
    FAILS(mimo_grid_group_at(coords, grid, "tp", 2), MIMO_ERR_ARGUMENT, "group 2", "2 groups");
    FAILS(mimo_grid_group_at(coords, grid, "tp", -1), MIMO_ERR_ARGUMENT, "group -1");
    FAILS(mimo_grid_group_of(&out, &out, grid, "tp", 8), MIMO_ERR_GRID, "rank 8");
    FAILS(mimo_grid_group_of(&out, &out, grid, "pp", 4), MIMO_ERR_GRID, "'pp'");
    cr_assert(out == -7 && coords[0] == -7 && coords[2] == -7, "outputs stay untouched");
    mimo_grid_destroy(grid);
}

Test(rank, arguments_that_are_NULL)
{
    mimo_grid *grid = parse("tp=2,dp=2", 0);
    int64_t out = -7, coords[2] = {-7, -7};
    FAILS(mimo_grid_check_world(NULL, 4), MIMO_ERR_ARGUMENT, "check_world: grid is NULL");
    FAILS(mimo_grid_coords(coords, NULL, 0), MIMO_ERR_ARGUMENT, "coords: grid is NULL");
    FAILS(mimo_grid_coords(NULL, grid, 0), MIMO_ERR_ARGUMENT, "coords: coords is NULL");
    FAILS(mimo_grid_coord(&out, NULL, 0, "tp"), MIMO_ERR_ARGUMENT, "coord: grid is NULL");
    FAILS(mimo_grid_coord(&out, grid, 0, NULL), MIMO_ERR_ARGUMENT, "coord: name is NULL");
    FAILS(mimo_grid_coord(NULL, grid, 0, "tp"), MIMO_ERR_ARGUMENT, "coord: out is NULL");
    FAILS(mimo_grid_rank(&out, NULL, coords), MIMO_ERR_ARGUMENT, "rank: grid is NULL");
    FAILS(mimo_grid_rank(&out, grid, NULL), MIMO_ERR_ARGUMENT, "rank: coords is NULL");
    FAILS(mimo_grid_rank(NULL, grid, (int64_t[]){0, 0}), MIMO_ERR_ARGUMENT, "rank: out is NULL");
    FAILS(mimo_grid_group_at(NULL, grid, "tp", 0), MIMO_ERR_ARGUMENT, "ranks is NULL");
    cr_assert(out == -7 && coords[0] == -7, "outputs stay untouched");
    mimo_grid_destroy(grid);
}

/* ------------------------------------------ copies ------------------------------------------ */

static uint64_t hash_of(const mimo_grid *grid)
{
    return mimo_grid_hash(MIMO_HASH_START, grid);
}

Test(copies, are_said_by_name_or_in_the_text)
{
    char text[64];
    mimo_grid *grid = parse("tp=2,x=2,y=3,dp=2", 0), *same = parse("tp=2,x=2:copies,y=3,dp=2", 0);
    FAILS(mimo_grid_check_meaning(grid, "a"), MIMO_ERR_GRID, "a grid tp=2,x=2,y=3,dp=2 has x = 2",
          "x=2:copies");
    uint64_t without = hash_of(grid);
    SUCCEEDS(mimo_grid_set_copies(grid, "x"));
    cr_assert_str_eq(mimo_grid_text(text, sizeof text, grid), "tp=2,x=2:copies,y=3,dp=2");
    cr_assert_eq(hash_of(grid), hash_of(same));
    cr_assert_neq(hash_of(grid), without);
    FAILS(mimo_grid_check_meaning(grid, "a"), MIMO_ERR_GRID, "has y = 3");
    SUCCEEDS(mimo_grid_set_copies(grid, "y,x"));
    SUCCEEDS(mimo_grid_check_meaning(grid, "a"));
    /* The last call holds. */
    SUCCEEDS(mimo_grid_set_copies(grid, "y"));
    FAILS(mimo_grid_check_meaning(grid, "a"), MIMO_ERR_GRID, "has x = 2");
    SUCCEEDS(mimo_grid_set_copies(grid, ""));
    cr_assert_eq(hash_of(grid), without);
    mimo_grid_destroy(grid);
    mimo_grid_destroy(same);
}

Test(copies, of_size_1_a_dimension_means_nothing)
{
    mimo_grid *grid = parse("tp=2,x=1,y=1:copies,dp=2", 0);
    SUCCEEDS(mimo_grid_check_meaning(grid, "a"));
    mimo_grid_destroy(grid);
}

Test(copies, errors)
{
    char text[64];
    mimo_grid *grid = parse("tp=2,x=2:copies,dp=2", 0), *none = NULL;
    FAILS(mimo_grid_set_copies(NULL, "x"), MIMO_ERR_ARGUMENT, "grid is NULL");
    FAILS(mimo_grid_set_copies(grid, NULL), MIMO_ERR_ARGUMENT, "dims is NULL");
    FAILS(mimo_grid_set_copies(grid, "y"), MIMO_ERR_GRID, "'y'", "tp=2,x=2:copies,dp=2");
    FAILS(mimo_grid_set_copies(grid, "x,x"), MIMO_ERR_GRID, "'x' twice");
    FAILS(mimo_grid_set_copies(grid, "x,dp"), MIMO_ERR_GRID, "'dp'", "meanings of their own");
    cr_assert_str_eq(mimo_grid_text(text, sizeof text, grid), "tp=2,x=2:copies,dp=2",
                     "a failed call changed the grid");
    mimo_grids_retain(grid, grid, MIMO_GRID_BRIDGE);
    FAILS(mimo_grid_set_copies(grid, ""), MIMO_ERR_STATE, "in use", "objects: 1");
    mimo_grids_release(grid, grid, MIMO_GRID_BRIDGE);
    FAILS(mimo_grid_create_text(&none, "tp=2:copies,dp=2", 0), MIMO_ERR_GRID, "'tp'");
    FAILS(mimo_grid_create_text(&none, "x=2:copied", 0), MIMO_ERR_ARGUMENT, "'x=2:copied'");
    FAILS(mimo_grid_create_text(&none, "x=2:copies:copies", 0), MIMO_ERR_ARGUMENT, "x=2");
    FAILS(mimo_grid_create_text(&none, "x:copies", 0), MIMO_ERR_ARGUMENT, "'x:copies'");
    cr_assert_null(none);
    mimo_grid_destroy(grid);
}

/* ------------------------------------------ views ------------------------------------------- */

static mimo_status add_view(mimo_grid *base, const char *name, const char *spec)
{
    mimo_grid *view = NULL;
    mimo_status status = mimo_grid_create_view_text(&view, base, name, spec);
    cr_assert_eq(status == MIMO_OK, view != NULL);
    return status;
}

Test(view, experts_beside_attention)
{
    /* Experts: etp 1 and ep 4 over the ranks of tp and cp. pp and dp are the same in both. */
    mimo_grid *base = parse("tp=2,cp=2,dp=3,pp=2", 5), *view = NULL;
    int64_t ranks[8];
    char text[64];
    SUCCEEDS(add_view(base, "experts", "etp=1,ep=4,edp=3,pp=2"));
    SUCCEEDS(add_view(base, "flat", "all=24"));
    SUCCEEDS(mimo_grid_view(&view, base, "experts"));
    cr_assert_str_eq(mimo_grid_text(text, sizeof text, view), "etp=1,ep=4,edp=3,pp=2");
    cr_assert_eq(mimo_grid_rank_offset(view), 5, "a view has its base's ranks");
    SUCCEEDS(mimo_grid_group_at(ranks, view, "ep", 1));
    EXPECT_BITS(bits_of(ranks, ((int64_t[]){9, 10, 11, 12}), 4 * sizeof *ranks, sizeof *ranks, 0),
                "ep 1");
    mimo_grid_destroy(base);
}

static bool groups_equal(const mimo_grid *a, const mimo_grid *b, const slow_grid *w, unsigned set)
{
    char dims[256];
    int64_t groups, size, other_groups, other_size, left[512], right[512];
    write_set(dims, w, set, 0);
    SUCCEEDS(mimo_grid_group_count(&groups, &size, a, dims));
    SUCCEEDS(mimo_grid_group_count(&other_groups, &other_size, b, dims));
    if (groups != other_groups || size != other_size)
        return false;
    for (int64_t g = 0; g < groups; g++) {
        SUCCEEDS(mimo_grid_group_at(left, a, dims, g));
        SUCCEEDS(mimo_grid_group_at(right, b, dims, g));
        if (memcmp(left, right, (size_t)size * sizeof *left) != 0)
            return false;
    }
    return true;
}

/* Each says what its own dimensions mean. */
Test(view, copies)
{
    mimo_grid *base = parse("tp=2,x=2:copies,dp=2", 0), *view = NULL;
    SUCCEEDS(add_view(base, "experts", "ep=4,dp=2"));
    SUCCEEDS(mimo_grid_view(&view, base, "experts"));
    FAILS(mimo_grid_check_meaning(view, "a"), MIMO_ERR_GRID, "ep = 4");
    SUCCEEDS(mimo_grid_set_copies(view, "ep"));
    SUCCEEDS(mimo_grid_check_meaning(view, "a"));
    SUCCEEDS(mimo_grid_check_meaning(base, "a"));
    mimo_grid_destroy(base);
}

/* The rule by sizes and strides allows sharing exactly where the group lists of all sets of shared
 * dimensions are equal, which the test enumerates. */
Test(view, shared_dimensions_are_judged_as_if_enumerated)
{
    static const char *const specs[] = {"tp=2,cp=2,dp=2",      "tp=2,ep=2,dp=2",
                                        "cp=2,tp=2,dp=2",      "dp=2,tp=2,cp=2",
                                        "tp=4,dp=2",           "tp=2,dp=4",
                                        "x=2,cp=2,dp=2",       "x=4,dp=2",
                                        "x=2,dp=2,y=2",        "tp=8",
                                        "cp=1,tp=8",           "tp=8,cp=1",
                                        "tp=2,pp=1,ep=2,dp=2", "pp=1,x=4,dp=2,tp=1",
                                        "x=2,tp=2,cp=2",       "tp=1,cp=4,dp=2",
                                        "dp=2,cp=4,tp=1"};
    enum { SPECS = sizeof specs / sizeof specs[0] };
    int accepted = 0, refused = 0;
    for (int i = 0; i < SPECS; i++)
        for (int j = 0; j < SPECS; j++) {
            mimo_grid *base = parse(specs[i], 3), *other = parse(specs[j], 3);
            slow_grid w = slow_grid_of(base);
            unsigned shared = 0;
            for (int d = 0; d < w.ndims; d++)
                if (mimo_grid_find(other, w.names[d]) >= 0)
                    shared |= 1u << d;
            bool expected = true;
            for (unsigned set = 1; set < 1u << w.ndims; set++)
                if ((set & ~shared) == 0)
                    expected = expected && groups_equal(base, other, &w, set);
            mimo_status status = add_view(base, "v", specs[j]);
            cr_assert_eq(status, expected ? MIMO_OK : MIMO_ERR_GRID, "view %s of base %s: %s",
                         specs[j], specs[i], mimo_last_error());
            *(expected ? &accepted : &refused) += 1;
            slow_grid_free(&w);
            mimo_grid_destroy(other);
            mimo_grid_destroy(base);
        }
    cr_assert(accepted > 20 && refused > 20, "%d accepted, %d refused", accepted, refused);
}

Test(view, errors)
{
    mimo_grid *base = parse("tp=2,cp=2,dp=2", 0), *view = NULL, *none = NULL;
    mimo_dim one[] = {{"x", 8}};
    FAILS(add_view(base, "v", "x=4,dp=4"), MIMO_ERR_GRID, "'v'", "16 ranks", "has 8");
    FAILS(add_view(base, "v", "x=2,dp=2,y=2"), MIMO_ERR_GRID, "'dp'", "stride 2 in the view",
          "stride 4 in the base");
    FAILS(add_view(base, "v", "x=2,dp=4"), MIMO_ERR_GRID, "'dp'", "size 4 stride 2",
          "size 2 stride 4");
    FAILS(add_view(base, "", "x=8"), MIMO_ERR_GRID, "empty");
    SUCCEEDS(mimo_grid_create_view(&view, base, "v", one, 1));
    FAILS(add_view(base, "v", "y=8"), MIMO_ERR_EXISTS, "'v'");
    FAILS(mimo_grid_create_view(&none, view, "w", one, 1), MIMO_ERR_GRID, "'w'", "'v'");
    FAILS(mimo_grid_create_view(&none, base, "w", one, 0), MIMO_ERR_GRID, "0 dimensions");
    FAILS(mimo_grid_create_view(&none, base, NULL, one, 1), MIMO_ERR_ARGUMENT, "name is NULL");
    FAILS(mimo_grid_create_view_text(&none, base, NULL, "x=1"), MIMO_ERR_ARGUMENT, "name is NULL");
    FAILS(mimo_grid_create_view_text(&none, base, "w", "x"), MIMO_ERR_ARGUMENT, "part 1", "'x'");
    FAILS(mimo_grid_create_view_text(&none, base, "w", "x=3:copies"), MIMO_ERR_ARGUMENT,
          "mimo_grid_set_copies");
    FAILS(mimo_grid_create_view_text(&none, base, "v", "x=1"), MIMO_ERR_EXISTS, "'v'");
    FAILS(mimo_grid_view(&none, base, "w"), MIMO_ERR_NOT_FOUND, "'w'");
    FAILS(mimo_grid_view(NULL, base, "v"), MIMO_ERR_ARGUMENT, "mimo_grid_view: out is NULL");
    FAILS(mimo_grid_view(&none, NULL, "v"), MIMO_ERR_ARGUMENT, "mimo_grid_view: base is NULL");
    FAILS(mimo_grid_view(&none, base, NULL), MIMO_ERR_ARGUMENT, "mimo_grid_view: name is NULL");
    cr_assert_null(none);
    mimo_grid_destroy(base);
}
