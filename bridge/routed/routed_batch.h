/* What the calls of one micro-batch move by, as the descriptor or an update gave it, and what they
 * have prepared. */
#ifndef MIMO_BRIDGE_ROUTED_BATCH_H
#define MIMO_BRIDGE_ROUTED_BATCH_H

#include "bridge/bridge_types.h"
#include "plan/plan_cache.h"
#include "bridge/routed/batch_split.h"

typedef struct mimo_routed_batch {
    int64_t batch; /* samples; -1: not given */
    bool ragged;   /* the src tiles hold only the rows of `spans`, or of items */
    mimo_span *spans;
    mimo_item *items[2];    /* by mimo_side, of a side that holds items */
    int64_t *first_item[2]; /* [dp + 1] */
    int64_t tile_rows[2];   /* ragged, by mimo_side: rows of this rank's flat tile; -1: it has S */
    int64_t flat_seq;       /* ragged, and both sides are flat: the most rows of a sample */
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

/* Give a ragged batch its items, and the spans beside them: all of `desc`, which every rank has.
 * Local. Errors of mimo_bridge_update about items. */
mimo_status mimo_routed_batch_set_items(mimo_routed_batch *batch, const mimo_batch_desc *desc);

/* Whether the tiles of a side hold rows of a modality, one after the other. */
static inline bool mimo_routed_batch_packs(const mimo_routed_batch *batch, mimo_side side)
{
    return batch->ragged && batch->tile_rows[side] >= 0;
}

#endif
