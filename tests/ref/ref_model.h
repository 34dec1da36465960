/*
 * The captioner's encoder and LLM in one process, dense, in double precision: no grids, no padding,
 * no masked samples, and no code of the library or of src/nn. It is what training on any topology
 * is compared with.
 *
 *   encoder   patches [P, values] -> linear + positions -> blocks -> norm -> linear: rows [P, H]
 *   merged    ids [S]: the n-th image id takes the encoder's row n, another id its row of the text
 *             table
 *   LLM       + positions -> causal blocks -> norm -> logits = x W^T + (x A^T) B^T -> cross-entropy
 *
 * A and B are a low-rank adapter of the head, left out where its rank is 0. Samples do not see each
 * other, so they are computed one after the other.
 */
#ifndef REF_MODEL_H
#define REF_MODEL_H

#include "ref_table.h"

typedef struct ref_sizes {
    int64_t hidden, heads, encoder_layers, llm_layers; /* H; a block is 4H wide inside */
    int64_t patch_values, image_tokens, seq;           /* P, S */
    int64_t text_vocabulary, vocabulary;               /* ids looked up; logits */
    int64_t image_id;                                  /* not below text_vocabulary */
    int64_t adapter;                                   /* rank of the low-rank adapter */
    uint64_t seed;
} ref_sizes;

typedef struct ref_sample {
    const double *patches; /* [P, values] */
    const int64_t *ids;    /* [S], P of them the image id */
    const int64_t *labels; /* [S]; negative: does not count */
} ref_sample;

typedef struct ref_model ref_model;

/* Parameters are set from the generator by name: weights std * normal, vectors that start at zeros
 * or ones in the library 0.1 * normal away from there (a zero hides errors), all rounded to f32. */
ref_model *ref_model_create(const ref_sizes *sizes);
void ref_model_destroy(ref_model *model);

ref_table *ref_model_values(ref_model *model);
ref_table *ref_model_grads(ref_model *model);

/* The step's mean loss over all samples' labels, how many these are, and the results by name. */
typedef struct ref_result {
    double loss;
    int64_t tokens;
    ref_table tensors; /* rows are sample * S + token, or sample * P + image token */
} ref_result;

/* Forward and backward of n samples: gradients of the mean loss replace those in the model. The
 * caller frees result->tensors. */
void ref_model_run(ref_model *model, const ref_sample *samples, int64_t n, ref_result *result);

#endif
