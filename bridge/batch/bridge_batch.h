/* What the calls of one micro-batch move by, as the descriptor or an update gave it. */
#ifndef MIMO_BRIDGE_BRIDGE_BATCH_H
#define MIMO_BRIDGE_BRIDGE_BATCH_H

#include "bridge/batch/batch_split.h"
#include "bridge/bridge_op_types.h"

typedef struct mimo_bridge_batch {
    int64_t batch; /* samples; -1: not given */
    bool ragged;   /* the src tiles hold only the rows of `spans`, or of items */
    mimo_span *spans;
    mimo_item *items[2];    /* by mimo_side, of a side that holds items */
    int64_t *first_item[2]; /* [dp + 1] */
    int64_t tile_rows[2];   /* ragged, by mimo_side: rows of this rank's flat tile; -1: it has S */
    int64_t flat_seq;       /* ragged, and both sides are flat: the most rows of a sample */
    const mimo_batch_split *rows; /* of calls that count rows; NULL: not given. It is in `splits` */

    mimo_layout_desc layouts[2]; /* by mimo_side: those of the bridge, with the spans */
    mimo_batch_splits splits;

    void *own[MIMO_EXECUTORS]; /* of each executor, by mimo_algorithm: batch_bytes of its table */
} mimo_bridge_batch;

/* batches[count], of which nothing is given yet. */
mimo_status mimo_bridge_batches_create(mimo_bridge_batch **out, mimo_bridge *bridge, int count);
void mimo_bridge_batches_destroy(mimo_bridge *bridge, mimo_bridge_batch *batches, int count);

/* Give a ragged batch its spans[count], which it takes over. */
void mimo_bridge_batch_set_spans(mimo_bridge_batch *batch, mimo_span *spans, int64_t count);

/* Give a batch the rows of all ranks: rank r holds all[2 * r + side]. Errors of
 * mimo_batch_splits_resolve. */
mimo_status mimo_bridge_batch_set_rows(mimo_bridge_batch *batch, const int64_t *all, int64_t ranks);

/* Give a ragged batch its items, and the spans beside them: all of `desc`, which every rank has.
 * Local. Errors of mimo_bridge_update about items. */
mimo_status mimo_bridge_batch_set_items(mimo_bridge_batch *batch, const mimo_batch_desc *desc);

/* Whether the tiles of a side hold rows of a modality, one after the other. */
static inline bool mimo_bridge_batch_packs(const mimo_bridge_batch *batch, mimo_side side)
{
    return batch->ragged && batch->tile_rows[side] >= 0;
}

/* The micro-batch that an operation moves. */
static inline mimo_bridge_batch *mimo_bridge_batch_of(const mimo_op *op)
{
    return &mimo_bridge_of(op)->batches[mimo_bridge_op_of(op)->batch];
}

/* The one that the next calls move; NULL where no executor takes batches. */
static inline const mimo_bridge_batch *mimo_bridge_batch_now(const mimo_bridge *bridge)
{
    return bridge->batches ? &bridge->batches[bridge->selected] : NULL;
}

#endif
