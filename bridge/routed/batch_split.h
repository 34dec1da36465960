/* How a batch is cut over the dp coordinates of both sides. */
#ifndef MIMO_BRIDGE_ROUTED_CUTS_H
#define MIMO_BRIDGE_ROUTED_CUTS_H

#include "bridge/layout/layout_types.h"
#include <mimo/pairing.h>

/* One cut. No rank sees more of it than its own samples, so it is guessed from these (evenly, or as
 * it was the last time), and where the ranks' guesses differ each learns it from the samples of
 * all. */
typedef struct mimo_cut {
    struct mimo_cut *next;
    int holders;   /* operations in flight that move by it */
    uint64_t hash; /* of all below */
    int64_t batch;
    int64_t *samples[2]; /* by mimo_side, [dp]; both NULL: evenly */
} mimo_cut;

/* The cuts of a bridge that were met, the last one first. */
typedef struct mimo_cuts {
    const mimo_layout *roles[2]; /* by mimo_side: who holds rows; of no samples */
    int64_t rank;
    mimo_cut *met;
} mimo_cuts;

void mimo_cuts_release(mimo_cuts *cuts);

/* The cut with this hash; NULL where it is forgotten, which one with holders never is. */
mimo_cut *mimo_cuts_find(const mimo_cuts *cuts, uint64_t hash);

/* A cut that gives this rank own[MIMO_SRC] and own[MIMO_DST] samples; NULL where none comes to
 * mind. It stays until several others were met. */
mimo_status mimo_cuts_guess(const mimo_cut **out, mimo_cuts *cuts, const int64_t own[2]);

/* The even cut of a batch, whether or not it gives this rank what it has: see mimo_cuts_samples. */
mimo_status mimo_cuts_even(const mimo_cut **out, mimo_cuts *cuts, int64_t batch);

/* What a cut gives this rank on a side. */
int64_t mimo_cuts_samples(const mimo_cuts *cuts, const mimo_cut *cut, mimo_side side);

/* The cut that gives all ranks what they have: samples of rank r in all[2 * r + side]. The outcome
 * is the same on every rank but for MIMO_ERR_MEMORY. MIMO_ERR_SHAPE: copies that hold different
 * numbers, or sides whose sums differ. */
mimo_status mimo_cuts_learn(const mimo_cut **out, mimo_cuts *cuts, const int64_t *all,
                            int64_t ranks);

/* The cut with this hash was used: it comes to mind first. */
void mimo_cuts_used(mimo_cuts *cuts, uint64_t hash);

#endif
