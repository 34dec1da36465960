#include "bridge/routed/batch_split.h"

#include "core/checked.h"
#include "core/hash.h"
#include "core/memory.h"

enum { CUTS_KEPT = 8 };

/* ---------------------------------------- the list ------------------------------------------ */

static void release_cut(mimo_cut *cut)
{
    if (!cut)
        return;
    mimo_release(cut->samples[MIMO_SRC]);
    mimo_release(cut->samples[MIMO_DST]);
    mimo_release(cut);
}

void mimo_cuts_release(mimo_cuts *cuts)
{
    while (cuts->met) {
        mimo_cut *cut = cuts->met;
        cuts->met = cut->next;
        release_cut(cut);
    }
}

/* Take the cut with a hash out of the list; NULL where it is not there. */
static mimo_cut *take_out(mimo_cuts *cuts, uint64_t hash)
{
    mimo_cut **at = &cuts->met;
    while (*at && (*at)->hash != hash)
        at = &(*at)->next;
    mimo_cut *cut = *at;
    if (cut)
        *at = cut->next;
    return cut;
}

/* What is held stays, beside as many others as are kept. */
static void put_first(mimo_cuts *cuts, mimo_cut *cut)
{
    int kept = 0;
    cut->next = cuts->met;
    cuts->met = cut;
    for (mimo_cut **at = &cuts->met; *at;) {
        mimo_cut *one = *at;
        if (one->holders > 0 || kept++ < CUTS_KEPT) {
            at = &one->next;
        } else {
            *at = one->next;
            release_cut(one);
        }
    }
}

mimo_cut *mimo_cuts_find(const mimo_cuts *cuts, uint64_t hash)
{
    mimo_cut *cut = cuts->met;
    while (cut && cut->hash != hash)
        cut = cut->next;
    return cut;
}

void mimo_cuts_used(mimo_cuts *cuts, uint64_t hash)
{
    mimo_cut *cut = take_out(cuts, hash);
    if (cut)
        put_first(cuts, cut);
}

/* Put a fresh cut in front of the list, or the one that is the same. */
static const mimo_cut *meet(mimo_cuts *cuts, mimo_cut *cut)
{
    mimo_cut *known = take_out(cuts, cut->hash);
    if (known) {
        release_cut(cut);
        cut = known;
    }
    put_first(cuts, cut);
    return cut;
}

/* ------------------------------------------ guess ------------------------------------------- */

static int64_t dp_of(const mimo_cuts *cuts, int side)
{
    return cuts->roles[side]->dims.dp.size;
}

/* An even cut is the layouts' own rule. */
static int64_t even_samples(const mimo_layout *role, int64_t batch, int64_t dp)
{
    mimo_layout layout = *role;
    layout.batch = batch;
    return mimo_layout_samples(&layout, dp).count;
}

static int64_t samples_of(const mimo_cuts *cuts, const mimo_cut *cut, int side, int64_t rank)
{
    mimo_cell cell;
    if (!mimo_layout_cell(&cell, cuts->roles[side], rank))
        return 0;
    return cut->samples[side] ? cut->samples[side][cell.dp]
                              : even_samples(cuts->roles[side], cut->batch, cell.dp);
}

static bool fits(const mimo_cuts *cuts, const mimo_cut *cut, const int64_t own[2])
{
    return samples_of(cuts, cut, MIMO_SRC, cuts->rank) == own[MIMO_SRC] &&
           samples_of(cuts, cut, MIMO_DST, cuts->rank) == own[MIMO_DST];
}

static uint64_t hash_cut(const mimo_cuts *cuts, const mimo_cut *cut)
{
    uint64_t hash = mimo_hash_int(MIMO_HASH_START, cut->batch);
    for (int side = 0; side < 2; side++)
        if (cut->samples[side])
            hash = mimo_hash_bytes(hash, cut->samples[side],
                                   (size_t)dp_of(cuts, side) * sizeof(int64_t));
    return hash;
}

mimo_status mimo_cuts_guess(const mimo_cut **out, mimo_cuts *cuts, const int64_t own[2])
{
    mimo_cell cell;
    mimo_cut even = {0};
    *out = NULL;
    for (const mimo_cut *cut = cuts->met; cut; cut = cut->next)
        if (fits(cuts, cut, own)) {
            *out = cut;
            return MIMO_OK;
        }
    int side = mimo_layout_cell(&cell, cuts->roles[MIMO_SRC], cuts->rank) ? MIMO_SRC : MIMO_DST;
    MIMO_TRY(mimo_mul(&even.batch, own[side], dp_of(cuts, side)));
    return fits(cuts, &even, own) ? mimo_cuts_even(out, cuts, even.batch) : MIMO_OK;
}

mimo_status mimo_cuts_even(const mimo_cut **out, mimo_cuts *cuts, int64_t batch)
{
    mimo_cut even = {.batch = batch}, *cut = take_out(cuts, hash_cut(cuts, &even));
    if (!cut) {
        MIMO_TRY(mimo_reserve(&cut, 1, sizeof *cut));
        *cut = even;
        cut->hash = hash_cut(cuts, cut);
    }
    put_first(cuts, cut);
    *out = cut;
    return MIMO_OK;
}

int64_t mimo_cuts_samples(const mimo_cuts *cuts, const mimo_cut *cut, mimo_side side)
{
    return samples_of(cuts, cut, (int)side, cuts->rank);
}

/* ------------------------------------------ learn ------------------------------------------- */

/* The samples of one side, from those of its ranks. */
static mimo_status collect_side(mimo_cut *cut, const mimo_cuts *cuts, int side, const int64_t *all,
                                int64_t ranks)
{
    int64_t dp = dp_of(cuts, side), *samples, *first;
    MIMO_TRY(mimo_reserve(&cut->samples[side], dp, sizeof *samples));
    MIMO_TRY(mimo_reserve(&first, dp, sizeof *first)); /* the first rank of each, and one */
    samples = cut->samples[side];
    mimo_status status = MIMO_OK;
    for (int64_t rank = 0; status == MIMO_OK && rank < ranks; rank++) {
        mimo_cell cell;
        int64_t held = all[2 * rank + side];
        if (!mimo_layout_cell(&cell, cuts->roles[side], rank))
            continue;
        if (first[cell.dp] == 0) {
            first[cell.dp] = rank + 1;
            samples[cell.dp] = held;
        } else if (samples[cell.dp] != held) {
            status = mimo_fail(
                MIMO_ERR_SHAPE,
                "%s tiles: rank %" PRId64 " holds %" PRId64 " samples and rank %" PRId64
                ", at the same dp coordinate %" PRId64 ", holds %" PRId64,
                mimo_side_names[side], rank, held, first[cell.dp] - 1, cell.dp, samples[cell.dp]);
        }
    }
    mimo_release(first);
    return status;
}

static mimo_status sum_side(int64_t *out, const mimo_cuts *cuts, const mimo_cut *cut, int side)
{
    int64_t sum = 0;
    for (int64_t d = 0; d < dp_of(cuts, side); d++)
        MIMO_TRY(mimo_add(&sum, sum, cut->samples[side][d]));
    *out = sum;
    return MIMO_OK;
}

static bool is_even(const mimo_cuts *cuts, const mimo_cut *cut)
{
    for (int side = 0; side < 2; side++)
        for (int64_t d = 0; d < dp_of(cuts, side); d++)
            if (cut->samples[side][d] != even_samples(cuts->roles[side], cut->batch, d))
                return false;
    return true;
}

static mimo_status fill_cut(mimo_cut *cut, const mimo_cuts *cuts, const int64_t *all, int64_t ranks)
{
    int64_t dst_batch;
    MIMO_TRY(collect_side(cut, cuts, MIMO_SRC, all, ranks));
    MIMO_TRY(collect_side(cut, cuts, MIMO_DST, all, ranks));
    MIMO_TRY(sum_side(&cut->batch, cuts, cut, MIMO_SRC));
    MIMO_TRY(sum_side(&dst_batch, cuts, cut, MIMO_DST));
    MIMO_CHECK(cut->batch == dst_batch, MIMO_ERR_SHAPE,
               "the src tiles of all dp ranks hold %" PRId64 " samples, the dst tiles %" PRId64,
               cut->batch, dst_batch);
    if (is_even(cuts, cut)) {
        mimo_release(cut->samples[MIMO_SRC]);
        mimo_release(cut->samples[MIMO_DST]);
        cut->samples[MIMO_SRC] = cut->samples[MIMO_DST] = NULL;
    }
    cut->hash = hash_cut(cuts, cut);
    return MIMO_OK;
}

mimo_status mimo_cuts_learn(const mimo_cut **out, mimo_cuts *cuts, const int64_t *all,
                            int64_t ranks)
{
    mimo_cut *cut;
    MIMO_TRY(mimo_reserve(&cut, 1, sizeof *cut));
    mimo_status status = fill_cut(cut, cuts, all, ranks);
    if (status == MIMO_OK)
        *out = meet(cuts, cut);
    else
        release_cut(cut);
    return status;
}
