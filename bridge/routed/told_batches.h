/* What the ranks tell of the micro-batches of an update, gathered from all of them: spans, and the
 * rows that each rank holds. One gather serves all micro-batches. */
#ifndef MIMO_BRIDGE_TOLD_BATCHES_H
#define MIMO_BRIDGE_TOLD_BATCHES_H

#include "bridge/routed/routed_batch.h"

typedef struct mimo_told_batches {
    const mimo_bridge *bridge;
    const char *call; /* in words */
    int count;
    mimo_batch_desc *descs;     /* descs[count], this rank's, in this version's form */
    mimo_routed_batch *batches; /* batches[count], which are told */

    bool ragged;       /* one of them, on every rank */
    bool counted;      /* one of them tells rows, on every rank */
    int64_t *own;      /* [count][3]: src rows, dst rows, spans */
    int64_t *numbers;  /* [ranks][count][3] */
    int64_t *rows;     /* [ranks][2], of one micro-batch */
    int64_t most;      /* spans of one rank, of all micro-batches */
    mimo_span *padded; /* this rank's, [most] */
    mimo_span *all;    /* [ranks][most] */
} mimo_told_batches;

/* Memory for the numbers. Local. */
mimo_status mimo_told_batches_reserve(mimo_told_batches *it);

/* Gather, and tell the batches. Collective over the bridge's parent, blocking: every rank fails, or
 * none. */
mimo_status mimo_told_batches_gather(mimo_told_batches *it);

/* What the gather took: not the batches and descriptors. */
void mimo_told_batches_release(mimo_told_batches *it);

/* Begin the sentence of an error with its micro-batch. Returns the status. */
mimo_status mimo_told_batches_prefix_error(const mimo_told_batches *it, int i, mimo_status status);

#endif
