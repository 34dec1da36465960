/*
 * The models of bridge_step: so small that each row and each gradient can be checked. They work in
 * host memory and know nothing of ranks.
 *
 *   encoders  row = w * value(sample, modality, row), element by element, with w = 1 of each
 *   LLM       loss of a position = weight(sample, position) * sum of v * row, with v = 1
 *
 * All numbers are whole, so sums are exact in any order.
 */
#ifndef EMBEDDING_TOY_MODELS_H
#define EMBEDDING_TOY_MODELS_H

#include <mimo/plan.h>

enum { IMAGES, AUDIO, MODALITIES };
enum {
    SEQ = 16, /* S, positions of a sample */
    HIDDEN = 4,
    MOST_ROWS = 3, /* of a modality in a sample */
};

/** What the models add up over the micro-batches of a step. */
typedef struct toy_sums {
    double loss;
    int64_t tokens; /* positions that have a loss: those of images and audio */
    float d_w[MODALITIES][HIDDEN], d_v[HIDDEN];
} toy_sums;

/** Where the rows of a modality stand in a sample. (A real loop finds the special id among the
 *  sample's token ids.) */
mimo_span toy_span(int64_t sample, int modality);

/** The encoder: rows [N, HIDDEN] of samples [first, first + count), sample after sample. */
void toy_encode(float *rows, int64_t first, int64_t count, int modality);

/** What the LLM's embedding puts where the text stands. */
void toy_embed(float *tile, int64_t rows);

/** The LLM, forward and backward, on samples [first, first + count): from share [count, rows,
 *  HIDDEN], the positions that the partition leaves to a rank, to the gradient of it. Checks that
 *  each row is the one that belongs there: MIMO_ERR_INTERNAL. */
mimo_status toy_llm(toy_sums *sums, float *d_share, const float *share,
                    const mimo_partition *partition, int64_t first, int64_t count);

/** The encoder's backward from d_rows, in the order of toy_encode. Checks d_rows likewise. */
mimo_status toy_encode_backward(toy_sums *sums, const float *d_rows, int64_t first, int64_t count,
                                int modality);

/** Checks what the gradient rules made of the sums of samples [0, samples): the number of tokens,
 *  and that the LLM has the gradient of both encoders together. That is <Px, y> = <x, P'y> for the
 *  rows x and the gradients y. */
mimo_status toy_check_step(float d_w[MODALITIES][HIDDEN], const float *d_v, int64_t tokens,
                           int64_t samples);

#endif
