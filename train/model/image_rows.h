/*
 * Image rows on their way: from the pictures of a group of micro-batches through the encoder and
 * over the bridge to the LLM's first stage, and their gradients back. Several groups may be on
 * their way, each in a slot of its own. The caller says in which order all of that happens.
 *
 *   encode          a deal's pictures -> encoder -> rows, picture after picture
 *   begin           rows of all encoders -> tile of the first stage: a call of all ranks
 *   take            a micro-batch's part of that tile -> the LLM's input
 *   ...
 *   give            gradient of the LLM's input -> its part of the tile
 *   begin           the way back
 *   encode_backward gradients of the rows -> gradients of the encoder's parameters
 */
#ifndef TRAIN_IMAGE_ROWS_H
#define TRAIN_IMAGE_ROWS_H

#include "train/model/encoder.h"
#include "train/model/picture_deal.h"
#include "train/pipeline/stage_streams.h"

/** What a group takes. P image tokens, n pictures of this rank, G micro-batches, B sentences. */
typedef struct image_slot {
    const picture_deal *deal; /* of the pictures below; borrowed */
    int64_t group;            /* of the pass: the micro-batch of the bridge */
    nn_real *encoded;         /* [P, n, H] out of the encoder; in backward its gradient */
    nn_real *src_tile; /* [n * P, H] the same, picture after picture, as a ragged bridge takes it */
    nn_real *dst_tile; /* [G * B, own, H] on the first stage, elsewhere NULL; in backward its
                          gradient */
    uint16_t *src_half, *dst_half; /* both tiles in bf16, where that crosses the bridge */
} image_slot;

typedef struct image_rows_desc {
    const rank_topology *topology;
    const nn_runtime *runtime;    /* where the model computes; borrowed; NULL: on the host */
    vision_encoder *encoder;      /* borrowed; its states are the slots */
    const micro_batch *batch;     /* borrowed: sizes */
    mimo_dtype dtype;             /* of what crosses the bridge: MIMO_F32 or MIMO_BF16 */
    int64_t hidden, own;          /* H; positions of a sequence in this rank's tile */
    const stage_streams *streams; /* borrowed: the bridge has one */
} image_rows_desc;

typedef struct image_rows {
    image_rows_desc desc;
    mimo_alignment *parts; /* between the LLM's tile and a part of `dst_tile` */
    image_slot *slots;     /* [encoder->states] */
    bool warm;             /* the bridge has moved rows, in stages on a device */
} image_rows;

/** Local. The caller zeroes *out before and calls image_rows_destroy after, whatever the result. */
mimo_status image_rows_create(image_rows *out, const image_rows_desc *desc);
void image_rows_destroy(image_rows *rows);

/** Tell the bridge what its calls move, where each sample has one picture: once. In stages on a
 *  device the calls are made ready, too. Collective over the world. */
mimo_status image_rows_connect(image_rows *rows);

/** The same where samples have several, for a pass over groups: the deals of all of them. Nothing
 *  is on its way. Collective over the world. */
mimo_status image_rows_update(image_rows *rows, const picture_deal *deals, int64_t groups);

/** The pictures of a group's deal, into a slot, until the group's backward is over; all of it, or
 *  a piece. Collective over the encoder's tp, as its backward. */
mimo_status image_rows_encode(image_rows *rows, int64_t slot, const picture_deal *deal,
                              int64_t group, encoder_piece at);
mimo_status image_rows_encode_backward(image_rows *rows, int64_t slot, encoder_piece at);

/**
 * Begin the bridge's forward or backward of a slot on the bridge's stream. Collective over the
 * world. A forward is in chunks: the i-th micro-batch can be taken after mimo_op_wait_chunk of
 * chunk i. A backward is one chunk.
 */
mimo_status image_rows_begin(mimo_op **out, image_rows *rows, bool backward, int64_t slot);

/** Copy the part of the i-th micro-batch of a group into `tile` [own, B, H], and back. Local, on
 *  the first stage. */
mimo_status image_rows_take(const image_rows *rows, int64_t slot, int64_t i, nn_real *tile);
mimo_status image_rows_give(const image_rows *rows, int64_t slot, int64_t i, nn_real *tile);

/** Zeros in place of the gradients of the micro-batches from i on: a group that has fewer gives
 *  none of theirs. Local, on the first stage. */
mimo_status image_rows_give_none(const image_rows *rows, int64_t slot, int64_t i);

#endif
