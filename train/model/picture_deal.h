/*
 * Which rank encodes which pictures of a group of micro-batches.
 *
 * An encoder lane (a dp coordinate of the encoder's grid) is the home of the pictures of its even
 * share of the samples, and encodes these; or, balanced, the lanes deal all pictures out so that
 * none has many more than the others (<mimo/balance.h>). Every rank has all samples. So it knows
 * all deals without asking, and pixels need not move: the bridge brings the rows where they belong
 * wherever they were encoded, and their gradients back.
 *
 * Where each sample has one picture there is nothing to deal, and the bridge is not told again.
 */
#ifndef TRAIN_PICTURE_DEAL_H
#define TRAIN_PICTURE_DEAL_H

#include "train/model/batch.h"
#include "train/nn/nn.h"

typedef struct picture_deal_desc {
    const rank_topology *topology;
    const nn_runtime *runtime; /* where the model computes; borrowed; NULL: on the host */
    micro_batch *batch;        /* borrowed: sizes, and room for the patches of a group */
    bool balanced;
} picture_deal_desc;

/** Arrays without another size have one element for each picture of the group. */
typedef struct picture_deal {
    picture_deal_desc desc;
    picture_number *own; /* [count] those that this rank encodes */
    int64_t count;
    nn_real *patches;      /* [P, count, patch_values] of these, where the model computes */
    mimo_alignment *order; /* between their rows position after position, and picture after
                              picture; of no use where there are none */
    int64_t ordered;       /* pictures that `order` was made for */

    /* Where samples have several pictures: those of all lanes, in the order of the samples. */
    int64_t all;
    picture_number *pictures;
    int64_t *positions; /* [most_images] room for those of one sample */
    mimo_item *items;   /* their rows */
    mimo_span *spans;   /* where these go */
    int64_t *rows, *home, *lane;
    mimo_item *dealt; /* the items lane after lane */
    int64_t *first;   /* [lanes + 1] where each lane's begin */
    mimo_balance_report report;
} picture_deal;

/** Room for any group. Local. The caller zeroes *out before and calls picture_deal_destroy after,
 *  whatever the result. */
mimo_status picture_deal_create(picture_deal *out, const picture_deal_desc *desc);
void picture_deal_destroy(picture_deal *deal);

/** Deal out the pictures of picked[G * total], numbers of samples in the order of the group; -1:
 *  masked. Local. */
mimo_status picture_deal_make(picture_deal *deal, const model_samples *samples,
                              const int64_t *picked);

/** Bring this rank's pictures where the model computes. Local; the host may wait for the device, so
 *  before anything of a pass is under way. */
mimo_status picture_deal_load(picture_deal *deal, const model_samples *samples);

/** Rows of the encoder, over groups. Lanes wait for the longest one of each group. */
typedef struct lane_rows {
    int64_t lanes;
    int64_t all;     /* of all lanes */
    int64_t loaded;  /* of the longest lanes, had all encoded their own */
    int64_t encoded; /* of the longest lanes */
    int64_t moved;   /* encoded by another lane than their home */
} lane_rows;

/** Add what a deal gives the lanes. Where samples have one picture it is nothing. */
void picture_deal_count(lane_rows *sums, const picture_deal *deal);

/** What the bridge moves of a deal, for an update; *items is what the result points to. Where
 *  samples have several pictures. */
mimo_batch_desc picture_deal_batch(mimo_batch_items *items, const picture_deal *deal);

#endif
