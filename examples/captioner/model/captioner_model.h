/* Encoder, bridge and LLM as one differentiable thing: a micro-batch in, loss sum and token count
 * out, gradients into the two stores. */
#ifndef CAPTIONER_CAPTIONER_MODEL_H
#define CAPTIONER_CAPTIONER_MODEL_H

#include "captioner/model/encoder.h"
#include "captioner/model/language.h"
#include "nn/params/nn_owners.h"

enum { MODEL_STORES = 2 }; /* the encoder's and the LLM's, in this order */

/** The sizes that a checkpoint must agree with, and what else all ranks share. */
typedef struct model_desc {
    int64_t hidden, heads; /* of both modules */
    int64_t encoder_layers, llm_layers;
    int64_t side, seq;   /* picture side in pixels; S */
    int64_t micro_batch; /* most samples of a micro-batch over all ranks; dp need not divide it */
    uint64_t seed;
    const nn_runtime *runtime; /* where it computes; borrowed; NULL: on the host */
    mimo_dtype
        bridge_dtype; /* MIMO_F32, or MIMO_BF16: what crosses the bridge; layers compute in f32 */
    int64_t shards, pairs;             /* V and C of a runtime in the fixed order; otherwise 0 */
    const nn_lora_selection *adapters; /* trained, and all else frozen; borrowed; NULL: none */
    bool recompute;                    /* of both modules' blocks: less memory, the same bits */
} model_desc;

typedef struct captioner_model {
    model_desc desc;
    const rank_topology *topology;
    vision_encoder encoder;
    language_model language;
    nn_owners owners[MODEL_STORES]; /* who speaks for their tensors, in files and hashes */
    micro_batch batch;              /* the caller fills it before forward */
    language_text text;             /* of one micro-batch that is read by itself */
    nn_real *patches;   /* batch.patches, where the model computes; NULL: these themselves */
    nn_real *encoded;   /* [P, b, H] out of the encoder; in backward its gradient */
    nn_real *src_tile;  /* [b * P, H] the same, sample after sample, as a ragged bridge takes it */
    uint16_t *src_half; /* [b * P, H] and [own, B, H]: both tiles in bf16, where that crosses */
    uint16_t *dst_half;
    mimo_alignment *order; /* between `encoded` and `src_tile` */
    mimo_span *spans;      /* [B] where the image rows of this rank's sentences stand */
} captioner_model;

/** Collective. The caller zeroes *out before and calls model_destroy after, whatever the result. */
mimo_status model_create(captioner_model *out, const rank_topology *topology,
                         const model_desc *desc);
void model_destroy(captioner_model *model);

/** Elements of the parameters of both modules. Each counts once, however tp cuts it. */
typedef struct model_elements {
    int64_t all, trained;
} model_elements;
model_elements model_count_elements(const captioner_model *model);

/** Bytes on this rank that a forward leaves for its backward, in both modules; and those that
 *  blocks share where their forward is repeated. */
typedef struct model_saved {
    int64_t micro_batch, shared;
} model_saved;
model_saved model_count_saved(const captioner_model *model);

/** Read the sentences of model->batch into model->text, and agree on that. Collective. */
mimo_status model_read(captioner_model *model);

/** Forward of the pictures of model->batch and a text that was read (language_read). Losses are in
 *  language_losses. Collective; the ranks agree on nothing. */
mimo_status model_forward(captioner_model *model, const language_text *text);

/** Add the gradients of the last forward, whose text it was, to both stores. Where nothing of the
 *  encoder is trained, no gradient crosses the bridge. Collective. */
mimo_status model_backward(captioner_model *model, const language_text *text);

/** Merge all adapters into the weights, and those back that are merged: also after a merge that
 *  failed between two layers. Local. The errors of nn_lora_merge. */
mimo_status model_merge(captioner_model *model);
mimo_status model_unmerge(captioner_model *model);

#endif
