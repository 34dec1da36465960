/* Batch splits from what all ranks hold, on virtual ranks: every rank finds the same one, with its
 * own part of it. */
#include <inttypes.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "bridge/batch/batch_split.h"
#include "cases_ran.h"
#include "core/hash.h"
#include "expect_failure.h"
#include "guarded.h"
#include "reference_grid.h"
#include "reference_layout.h"

enum { RANKS = 24, CASES = 300, CASES_AT_LEAST = 250 };

static const char *const grids[] = {"dp=6",           "tp=2,dp=3", "cp=2,dp=4", "dp=2,tp=2,pp=2",
                                    "pp=2,dp=5,tp=2", "dp=1,tp=4", "dp=24"};

/* Two sides, and the rows of all ranks: rank r holds all[2 * r + side]. */
typedef struct split_case {
    layout_case sides[2];
    int64_t rows;
    mimo_grid *grids[2];
    mimo_layout *roles[2];
    int64_t all[2 * RANKS];
} split_case;

static bool holds(const layout_case *side, int64_t rank)
{
    int64_t relative = rank - side->offset;
    return relative >= 0 && relative < ref_ranks(side->grid) &&
           ref_coord(side->grid, "pp", relative) == 0;
}

static int64_t held(const split_case *it, int side, int64_t rank, int64_t *first)
{
    const layout_case *c = &it->sides[side];
    *first = 0;
    if (!holds(c, rank))
        return 0;
    return reference_samples(c, it->rows, ref_coord(c->grid, "dp", rank - c->offset), first);
}

static split_case draw(uint64_t *random)
{
    split_case it = {.rows = random_below(random, 40)};
    for (int side = 0; side < 2; side++) {
        int64_t unused;
        layout_case *c = &it.sides[side];
        c->grid = grids[random_below(random, sizeof grids / sizeof *grids)];
        c->offset = random_below(random, RANKS - ref_ranks(c->grid) + 1);
        c->ragged = random_below(random, 4) ? next_random(random) | 1 : 0;
        layout_case role = *c;
        role.ragged = 0;
        it.roles[side] = layout_of(&role, 0, 1, &it.grids[side]);
        for (int64_t r = 0; r < RANKS; r++)
            it.all[2 * r + side] = held(&it, side, r, &unused);
    }
    return it;
}

static void release(split_case *it)
{
    for (int side = 0; side < 2; side++) {
        mimo_layout_destroy(it->roles[side]);
        mimo_grid_destroy(it->grids[side]);
    }
}

static mimo_batch_splits splits_of(const split_case *it, int64_t rank)
{
    return (mimo_batch_splits){{it->roles[0], it->roles[1]}, rank, {NULL}};
}

/* Returns the hash of the split that a rank finds. */
static uint64_t check_rank(const split_case *it, int64_t rank)
{
    const mimo_batch_split *split;
    mimo_batch_splits splits = splits_of(it, rank);
    SUCCEEDS(mimo_batch_splits_resolve(&split, &splits, it->all, RANKS, "rows"));
    uint64_t hash = split->hash;
    for (int side = 0; side < 2; side++) {
        int64_t first, count = held(it, side, rank, &first);
        mimo_range range = mimo_batch_splits_range(&splits, split, (mimo_side)side);
        cr_assert(range.count == count && (!holds(&it->sides[side], rank) || range.first == first),
                  "%s@%" PRId64 ", rank %" PRId64 ": [%" PRId64 ", +%" PRId64 "), not [%" PRId64
                  ", +%" PRId64 ")",
                  it->sides[side].grid, it->sides[side].offset, rank, range.first, range.count,
                  first, count);
        cr_assert_eq(mimo_batch_splits_samples(&splits, split, (mimo_side)side), count);
    }
    mimo_batch_splits_release(&splits);
    return hash;
}

Test(batch_split, of_all_ranks)
{
    int64_t ran = 0;
    uint64_t random = 17;
    for (int i = 0; i < CASES; i++) {
        split_case it = draw(&random);
        uint64_t hash = check_rank(&it, 0);
        for (int64_t r = 1; r < RANKS; r++)
            cr_assert_eq(check_rank(&it, r), hash, "ranks 0 and %" PRId64 " differ", r);
        ran += it.rows > 0;
        release(&it);
    }
    CASES_RAN(ran, CASES, CASES_AT_LEAST, "splits");
}

/* One rank holds one row more than it should: a copy differs, or the sums do. */
Test(batch_split, of_one_wrong_rank)
{
    int64_t ran = 0;
    uint64_t random = 23;
    for (int i = 0; i < CASES; i++) {
        const mimo_batch_split *split;
        split_case it = draw(&random);
        int64_t rank = random_below(&random, RANKS), side = random_below(&random, 2);
        mimo_batch_splits splits = splits_of(&it, rank);
        it.all[2 * rank + side]++;
        if (holds(&it.sides[side], rank)) {
            FAILS(mimo_batch_splits_resolve(&split, &splits, it.all, RANKS, "rows"), MIMO_ERR_SHAPE,
                  " rows", side == MIMO_SRC ? "src tiles" : "dst tiles");
            ran++;
        }
        mimo_batch_splits_release(&splits);
        release(&it);
    }
    CASES_RAN(ran, CASES, CASES / 4, "wrong ranks");
}
