/* What the ranks give an update of its micro-batches, gathered from all of them: spans, and the
 * rows that each rank holds. One gather serves all micro-batches. */
#ifndef MIMO_BRIDGE_GIVEN_BATCHES_H
#define MIMO_BRIDGE_GIVEN_BATCHES_H

#include "bridge/batch/bridge_batch.h"

/* By sample, of one micro-batch: the first rank that gave its spans, and where these are in all
 * that this rank gave. */
typedef struct mimo_given_sample {
    int64_t owner; /* rank + 1; 0: nobody */
    mimo_range spans;
} mimo_given_sample;

typedef struct mimo_given_batches {
    mimo_bridge *bridge;
    const char *call;   /* in words */
    uint64_t signature; /* of the update: what all ranks must give alike */
    int count;
    mimo_batch_desc *descs;     /* descs[count], this rank's, in this version's form */
    mimo_bridge_batch *batches; /* batches[count], which are given */
    uint64_t *hashes;           /* hashes[count]: of items and the spans beside them; 0: none */

    bool ragged;   /* one of them gathers spans, on every rank */
    bool counted;  /* one of them gives rows, on every rank */
    bool listed;   /* one of them lists items, on every rank */
    int64_t needs; /* bytes that this rank has to give */
    /* What a rank gives: see given_batches.c. All ranks give the same number of bytes. */
    int64_t bytes;
    char *own, *all;            /* [bytes]; [ranks][bytes] */
    int64_t *rows;              /* [ranks][2], of one micro-batch */
    mimo_given_sample *samples; /* of the largest batch */
    mimo_span **merged;         /* [count]: memory for the spans of all ranks; NULL: not gathered */
} mimo_given_batches;

/* Memory for what the ranks give, as far as its size is known. Local. */
mimo_status mimo_given_batches_reserve(mimo_given_batches *it);

/* Gather, and give the batches. Collective over the bridge's parent, blocking: every rank fails, or
 * none. One gather, where the ranks have no more to give than at the last update. */
mimo_status mimo_given_batches_gather(mimo_given_batches *it);

/* What the gather took: not the batches and descriptors. */
void mimo_given_batches_release(mimo_given_batches *it);

/* Begin the sentence of an error with its micro-batch. Returns the status. */
mimo_status mimo_given_batches_prefix_error(const mimo_given_batches *it, int i,
                                            mimo_status status);

#endif
