#include "bridge/batch/batch_split.h"

#include "core/checked.h"
#include "core/hash.h"
#include "core/memory.h"
#include "core/mutation.h"

enum { SPLITS_KEPT = 8 };

/* ---------------------------------------- the list ------------------------------------------ */

static void release_split(mimo_batch_split *split)
{
    if (!split)
        return;
    mimo_release(split->samples[MIMO_SRC]);
    mimo_release(split->samples[MIMO_DST]);
    mimo_release(split);
}

static bool is_used(const mimo_recent_entry *entry)
{
    return ((const mimo_batch_split *)entry)->users > 0;
}

static void release_entry(mimo_recent_entry *entry, void *context)
{
    (void)context;
    release_split((mimo_batch_split *)entry);
}

static const mimo_recent_kind split_kind = {is_used, release_entry};

static bool has_hash(const mimo_recent_entry *entry, const void *hash)
{
    return ((const mimo_batch_split *)entry)->hash == *(const uint64_t *)hash;
}

void mimo_batch_splits_release(mimo_batch_splits *splits)
{
    mimo_recent_clear(&splits->known, &split_kind, NULL);
}

static mimo_batch_split *take_out(mimo_batch_splits *splits, uint64_t hash)
{
    return (mimo_batch_split *)mimo_recent_take(&splits->known, has_hash, &hash);
}

static void put_first(mimo_batch_splits *splits, mimo_batch_split *split)
{
    mimo_recent_put(&splits->known, &split->entry);
    mimo_recent_trim(&splits->known, SPLITS_KEPT, &split_kind, NULL);
}

mimo_batch_split *mimo_batch_splits_find(const mimo_batch_splits *splits, uint64_t hash)
{
    return (mimo_batch_split *)mimo_recent_find(&splits->known, has_hash, &hash);
}

void mimo_batch_splits_touch(mimo_batch_splits *splits, uint64_t hash)
{
    mimo_batch_split *split = take_out(splits, hash);
    if (split)
        put_first(splits, split);
}

/* Put a new split in front, or the known one that is the same. */
static const mimo_batch_split *put_known(mimo_batch_splits *splits, mimo_batch_split *split)
{
    mimo_batch_split *known = take_out(splits, split->hash);
    if (known) {
        release_split(split);
        split = known;
    }
    put_first(splits, split);
    return split;
}

/* ------------------------------------------ guess ------------------------------------------- */

static int64_t dp_of(const mimo_batch_splits *splits, int side)
{
    return splits->roles[side]->dims.dp.size;
}

/* An even split is the layouts' own rule. */
static int64_t even_samples(const mimo_layout *role, int64_t batch, int64_t dp)
{
    mimo_layout layout = *role;
    layout.batch = batch;
    return mimo_layout_samples(&layout, dp).count;
}

static int64_t samples_of(const mimo_batch_splits *splits, const mimo_batch_split *split, int side,
                          int64_t rank)
{
    mimo_cell cell;
    if (!mimo_layout_cell(&cell, splits->roles[side], rank))
        return 0;
    return split->samples[side] ? split->samples[side][cell.dp]
                                : even_samples(splits->roles[side], split->batch, cell.dp);
}

static bool fits(const mimo_batch_splits *splits, const mimo_batch_split *split,
                 const int64_t own[2])
{
    return samples_of(splits, split, MIMO_SRC, splits->rank) == own[MIMO_SRC] &&
           samples_of(splits, split, MIMO_DST, splits->rank) == own[MIMO_DST];
}

/* What a guess must give this rank. */
typedef struct guess_key {
    const mimo_batch_splits *splits;
    const int64_t *own; /* by mimo_side */
} guess_key;

static bool gives_own(const mimo_recent_entry *entry, const void *context)
{
    const guess_key *key = context;
    return fits(key->splits, (const mimo_batch_split *)entry, key->own);
}

static uint64_t hash_split(const mimo_batch_splits *splits, const mimo_batch_split *split)
{
    uint64_t hash = mimo_hash_int(MIMO_HASH_START, split->batch);
    for (int side = 0; side < 2; side++)
        if (split->samples[side])
            hash = mimo_hash_bytes(hash, split->samples[side],
                                   (size_t)dp_of(splits, side) * sizeof(int64_t));
    return hash;
}

mimo_status mimo_batch_splits_guess(const mimo_batch_split **out, mimo_batch_splits *splits,
                                    const int64_t own[2])
{
    mimo_cell cell;
    mimo_batch_split even = {.users = 0};
    const guess_key key = {splits, own};
    *out = (const mimo_batch_split *)mimo_recent_find(&splits->known, gives_own, &key);
    if (*out)
        return MIMO_OK;
    int side = mimo_layout_cell(&cell, splits->roles[MIMO_SRC], splits->rank) ? MIMO_SRC : MIMO_DST;
    MIMO_TRY(mimo_mul(&even.batch, own[side], dp_of(splits, side)));
    return fits(splits, &even, own) ? mimo_batch_splits_even(out, splits, even.batch) : MIMO_OK;
}

mimo_status mimo_batch_splits_even(const mimo_batch_split **out, mimo_batch_splits *splits,
                                   int64_t batch)
{
    mimo_batch_split even = {.batch = batch}, *split = take_out(splits, hash_split(splits, &even));
    if (!split) {
        MIMO_TRY(mimo_reserve(&split, 1, sizeof *split));
        *split = even;
        split->hash = hash_split(splits, split);
    }
    put_first(splits, split);
    *out = split;
    return MIMO_OK;
}

int64_t mimo_batch_splits_samples(const mimo_batch_splits *splits, const mimo_batch_split *split,
                                  mimo_side side)
{
    return samples_of(splits, split, (int)side, splits->rank);
}

mimo_range mimo_batch_splits_range(const mimo_batch_splits *splits, const mimo_batch_split *split,
                                   mimo_side side)
{
    mimo_cell cell;
    mimo_layout layout = *splits->roles[side];
    mimo_range range = {0, 0};
    layout.batch = split->batch;
    if (!mimo_layout_cell(&cell, &layout, splits->rank))
        return range;
    if (!split->samples[side])
        return mimo_layout_samples(&layout, cell.dp);
    for (int64_t d = 0; d < cell.dp; d++)
        range.first += split->samples[side][d];
    range.count = split->samples[side][cell.dp];
    return range;
}

/* ----------------------------------------- resolve ------------------------------------------ */

/* What all ranks have: rank r has all[2 * r + side]. */
typedef struct given_samples {
    const int64_t *all;
    int64_t ranks;
    const char *unit; /* "samples" or "rows" */
} given_samples;

/* The samples of one side, from those of its ranks. */
static mimo_status gather_side(mimo_batch_split *split, const mimo_batch_splits *splits, int side,
                               const given_samples *given)
{
    int64_t dp = dp_of(splits, side), *samples, *first;
    MIMO_TRY(mimo_reserve(&split->samples[side], dp, sizeof *samples));
    MIMO_TRY(mimo_reserve(&first, dp, sizeof *first)); /* the first rank of each, and one */
    samples = split->samples[side];
    mimo_status status = MIMO_OK;
    for (int64_t rank = 0; status == MIMO_OK && rank < given->ranks; rank++) {
        mimo_cell cell;
        int64_t held = given->all[2 * rank + side];
        if (!mimo_layout_cell(&cell, splits->roles[side], rank))
            continue;
        if (MIMO_MUTATED("rows-mirrored"))
            cell.dp = dp - 1 - cell.dp;
        if (first[cell.dp] == 0) {
            first[cell.dp] = rank + 1;
            samples[cell.dp] = held;
        } else if (samples[cell.dp] != held) {
            status = mimo_fail(MIMO_ERR_SHAPE,
                               "%s tiles: rank %" PRId64 " holds %" PRId64 " %s and rank %" PRId64
                               ", at the same dp coordinate %" PRId64 ", holds %" PRId64,
                               mimo_side_names[side], rank, held, given->unit, first[cell.dp] - 1,
                               cell.dp, samples[cell.dp]);
        }
    }
    mimo_release(first);
    return status;
}

static mimo_status sum_side(int64_t *out, const mimo_batch_splits *splits,
                            const mimo_batch_split *split, int side)
{
    int64_t sum = 0;
    for (int64_t d = 0; d < dp_of(splits, side); d++)
        MIMO_TRY(mimo_add(&sum, sum, split->samples[side][d]));
    *out = sum;
    return MIMO_OK;
}

static bool is_even(const mimo_batch_splits *splits, const mimo_batch_split *split)
{
    for (int side = 0; side < 2; side++)
        for (int64_t d = 0; d < dp_of(splits, side); d++)
            if (split->samples[side][d] != even_samples(splits->roles[side], split->batch, d))
                return false;
    return true;
}

static mimo_status fill_split(mimo_batch_split *split, const mimo_batch_splits *splits,
                              const given_samples *given)
{
    int64_t dst_batch;
    MIMO_TRY(gather_side(split, splits, MIMO_SRC, given));
    MIMO_TRY(gather_side(split, splits, MIMO_DST, given));
    MIMO_TRY(sum_side(&split->batch, splits, split, MIMO_SRC));
    MIMO_TRY(sum_side(&dst_batch, splits, split, MIMO_DST));
    MIMO_CHECK(split->batch == dst_batch, MIMO_ERR_SHAPE,
               "the src tiles of all dp ranks hold %" PRId64 " %s, the dst tiles %" PRId64,
               split->batch, given->unit, dst_batch);
    if (is_even(splits, split)) {
        mimo_release(split->samples[MIMO_SRC]);
        mimo_release(split->samples[MIMO_DST]);
        split->samples[MIMO_SRC] = split->samples[MIMO_DST] = NULL;
    }
    split->hash = hash_split(splits, split);
    return MIMO_OK;
}

mimo_status mimo_batch_splits_resolve(const mimo_batch_split **out, mimo_batch_splits *splits,
                                      const int64_t *all, int64_t ranks, const char *unit)
{
    const given_samples given = {all, ranks, unit};
    mimo_batch_split *split;
    MIMO_TRY(mimo_reserve(&split, 1, sizeof *split));
    mimo_status status = fill_split(split, splits, &given);
    if (status == MIMO_OK)
        *out = put_known(splits, split);
    else
        release_split(split);
    return status;
}
