/*
 * The captioner's encoder and LLM in one process, dense, in double precision: no grids, no padding,
 * no masked samples, and no code of the library or of train/nn. Training on any topology is
 * compared with it.
 *
 *   encoder   patches [P, values] -> linear + positions -> blocks -> norm -> linear: rows [P, H]
 *   merged    ids [S]: the n-th image id takes the encoder's row n, another id its row of the text
 *             table
 *   LLM       + positions -> causal blocks -> norm -> logits = x W^T -> cross-entropy
 *
 * Linear layers may have low-rank adapters: all of both modules or those of some names, with the
 * rest frozen or not. Samples are independent, so they are computed one after the other.
 */
#ifndef REF_MODEL_H
#define REF_MODEL_H

#include <stdbool.h>

#include "ref_table.h"

typedef struct ref_sizes {
    int64_t hidden, heads, encoder_layers, llm_layers; /* H; a block is 4H wide inside */
    int64_t patch_values, image_tokens, seq;           /* image_tokens is P, seq is S */
    int64_t text_vocabulary, vocabulary; /* size of the text table; columns of the logits */
    int64_t image_id;                    /* at least text_vocabulary */
    int64_t adapter;                     /* rank of the low-rank adapters; 0: there are none */
    const char *adapted;                 /* ends of their layers' names, with commas; NULL: all */
    bool frozen;                         /* adapters alone are trained */
    double adapter_alpha;                /* their scale is alpha / rank */
    int64_t experts, top_k; /* of the mixtures in blocks 1, 3, ... of the LLM, whose experts are H
                               wide inside; experts 0: there are none */
    double balance;         /* of these mixtures, as the next: ref_moe.h */
    int64_t others_every;   /* of tokens sample * S + position */
    bool twins;             /* experts 0 and 1 begin with equal scores */
    uint64_t seed;
} ref_sizes;

typedef struct ref_sample {
    const double *patches; /* [P, values] */
    const int64_t *ids;    /* [S], P of them the image id */
    const int64_t *labels; /* [S]; a negative label does not count */
} ref_sample;

typedef struct ref_model ref_model;

/* B of an adapter starts as normal(REF_ADAPTER_STD): with zeros the gradient of A would be zero. */
#define REF_ADAPTER_STD 0.2

/* The generator sets parameters by name, all rounded to f32. Weights are std * normal. Vectors that
 * the library starts at zeros or ones differ from these by 0.1 * normal, as a zero hides errors. */
ref_model *ref_model_create(const ref_sizes *sizes);
void ref_model_destroy(ref_model *model);

/* Whether a parameter is trained: of a frozen model the adapters alone. */
bool ref_model_trains(const ref_model *model, const char *name);

ref_table *ref_model_values(ref_model *model);
ref_table *ref_model_grads(ref_model *model);

/* The mean loss of a step over all samples' labels, the number of these labels, and the results by
 * name. */
typedef struct ref_result {
    double loss;
    double balance; /* the sum of the balance losses, over the number of labels */
    int64_t tokens;
    ref_table tensors; /* rows are sample * S + token, or sample * P + image token */
    ref_table notes;   /* of mixtures alone: the experts in use, and the margins of the choices */
} ref_result;

/* Forward and backward of n samples: gradients of the mean loss, and of the balance, replace those
 * in the model. The caller frees both tables of the result. */
void ref_model_run(ref_model *model, const ref_sample *samples, int64_t n, ref_result *result);

#endif
