/* Batch splits: how many samples of a batch each dp coordinate of either side holds. */
#ifndef MIMO_BRIDGE_BATCH_SPLIT_H
#define MIMO_BRIDGE_BATCH_SPLIT_H

#include <mimo/pairing.h>

#include "layout/layout_types.h"
#include "core/recent.h"

/* One split. A rank sees its own samples of it, and no others. So it guesses the split from these:
 * even, or the one that was used before. Where the guesses of the ranks differ, the ranks gather
 * their samples and resolve the split from all of them. */
typedef struct mimo_batch_split {
    mimo_recent_entry entry;
    int users;     /* operations in flight that move by it */
    uint64_t hash; /* of all below */
    int64_t batch;
    int64_t *samples[2]; /* by mimo_side, [dp]; both NULL: evenly */
} mimo_batch_split;

/* The splits that a bridge has used, the last one first. */
typedef struct mimo_batch_splits {
    const mimo_layout *roles[2]; /* by mimo_side: layouts with batch 0, which say who holds rows */
    int64_t rank;
    mimo_recent known;
} mimo_batch_splits;

void mimo_batch_splits_release(mimo_batch_splits *splits);

/* The split with this hash. NULL where it is forgotten; one with users never is. */
mimo_batch_split *mimo_batch_splits_find(const mimo_batch_splits *splits, uint64_t hash);

/* A split that gives this rank own[MIMO_SRC] and own[MIMO_DST] samples: a known one, otherwise the
 * even one. *out is NULL where neither does. It is valid until several others were used. */
mimo_status mimo_batch_splits_guess(const mimo_batch_split **out, mimo_batch_splits *splits,
                                    const int64_t own[2]);

/* The even split of a batch. It need not give this rank the samples that it has: see
 * mimo_batch_splits_samples. */
mimo_status mimo_batch_splits_even(const mimo_batch_split **out, mimo_batch_splits *splits,
                                   int64_t batch);

/* The samples that a split gives this rank on a side. */
int64_t mimo_batch_splits_samples(const mimo_batch_splits *splits, const mimo_batch_split *split,
                                  mimo_side side);

/* The same, and those of the dp coordinates before this rank's. */
mimo_range mimo_batch_splits_range(const mimo_batch_splits *splits, const mimo_batch_split *split,
                                   mimo_side side);

/* The split that gives all ranks the samples that they have: rank r has all[2 * r + side]. Every
 * rank gets the same outcome, except for MIMO_ERR_MEMORY. MIMO_ERR_SHAPE: copies of one cell have
 * different numbers of samples, or the sums of the two sides differ. Sentences call them `unit`:
 * where no S is known, each row counts as a sample. */
mimo_status mimo_batch_splits_resolve(const mimo_batch_split **out, mimo_batch_splits *splits,
                                      const int64_t *all, int64_t ranks, const char *unit);

/* The split with this hash was used: the next guess tries it first. */
void mimo_batch_splits_touch(mimo_batch_splits *splits, uint64_t hash);

#endif
