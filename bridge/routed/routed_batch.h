/* What the calls of one micro-batch move by, as the descriptor or an update gave it, and what they
 * have prepared. */
#ifndef MIMO_BRIDGE_ROUTED_BATCH_H
#define MIMO_BRIDGE_ROUTED_BATCH_H

#include "bridge/bridge_types.h"
#include "plan/plan_cache.h"
#include "bridge/routed/batch_split.h"

typedef struct mimo_routed_batch {
    int64_t batch; /* samples; -1: not given */
    bool ragged;   /* the src tiles hold only the rows of `spans` */
    mimo_span *spans;
    const mimo_batch_split *rows; /* of calls that count rows; NULL: not given. It is in `splits` */

    mimo_layout_desc layouts[MIMO_ENDPOINTS]; /* those of the bridge, with the spans */
    mimo_batch_splits splits;
    mimo_plan_cache *plans;
    mimo_recent prepared; /* calls that are idle */
} mimo_routed_batch;

/* batches[count], of which nothing is given yet. */
mimo_status mimo_routed_batches_create(mimo_routed_batch **out, const mimo_bridge *bridge,
                                       int count);
void mimo_routed_batches_destroy(mimo_bridge *bridge, mimo_routed_batch *batches, int count);

/* Give a ragged batch its spans[count], which it takes over. */
void mimo_routed_batch_set_spans(mimo_routed_batch *batch, mimo_span *spans, int64_t count);

/* Give a batch the rows of all ranks: rank r holds all[2 * r + side]. Errors of
 * mimo_batch_splits_resolve. */
mimo_status mimo_routed_batch_set_rows(mimo_routed_batch *batch, const int64_t *all, int64_t ranks);

/* Ragged: rows of this rank's src tile. The samples are split evenly. */
int64_t mimo_routed_batch_src_rows(const mimo_routed_batch *batch);

#endif
