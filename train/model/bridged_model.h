/* Encoder, bridge and LLM as one differentiable thing, over the stages of the LLM. model_pass.h
 * runs micro-batches through it. */
#ifndef TRAIN_BRIDGED_MODEL_H
#define TRAIN_BRIDGED_MODEL_H

#include "train/model/image_rows.h"
#include "train/model/language.h"
#include "train/pipeline/pipeline.h"
#include "train/pipeline/schedule_choice.h"
#include "train/nn/params/nn_owners.h"

enum { MODEL_STORES = 2 }; /* the encoder's and the LLM's, in this order */

/** The sizes that a checkpoint must agree with, and what else all ranks share. */
typedef struct model_desc {
    int64_t hidden, heads; /* of both modules */
    int64_t encoder_layers, llm_layers;
    const char *llm_pattern; /* of the LLM's layers, which it counts; borrowed; NULL: the usual */
    int64_t tokens,
        patch_values;      /* P image tokens of a picture, and values of each of its patches */
    int64_t seq;           /* S */
    language_words words;  /* that sentences are made of */
    int64_t micro_batch;   /* most samples of a micro-batch over all ranks; dp need not divide it */
    int64_t micro_batches; /* most micro-batches of a pass; 0 counts as 1 */
    int64_t most_images;   /* pictures of a sample; 0: each has one */
    bool balanced;         /* any rank encodes any picture; only with `most_images` */
    schedule_choice schedule;
    uint64_t seed;
    const nn_runtime *runtime; /* where it computes; borrowed; NULL: on the host */
    mimo_dtype
        bridge_dtype; /* MIMO_F32, or MIMO_BF16: what crosses the bridge; layers compute in f32 */
    int64_t shards, pairs;             /* V and C of a runtime in the fixed order; otherwise 0 */
    int64_t experts, top_k;            /* of the LLM's mixtures; 0: there are none */
    int64_t capacity;                  /* rows of a rank's experts; 0: any choice fits (nn_moe.h) */
    const nn_lora_selection *adapters; /* trained, and all else frozen; borrowed; NULL: none */
    nn_recompute recompute;            /* of both modules' blocks: less memory, the same bits */
} model_desc;

typedef struct bridged_model {
    model_desc desc;
    const rank_topology *topology;
    layer_layout layout; /* of the LLM's layers */
    vision_encoder encoder;
    language_model language;
    nn_dispatch *dispatch;          /* of the LLM's mixtures; NULL: there are none */
    nn_owners owners[MODEL_STORES]; /* who speaks for their tensors, in files and hashes */
    micro_batch batch;              /* what is being read */
    image_rows images;
    stage_streams streams;
    stage_hops hops;
} bridged_model;

/** Whether a model fits into grids (topology_sketch): the errors of model_create that sizes, layers
 *  and the schedule have, in the same words. The runtime is read for its memory alone. Pure. */
mimo_status model_check(const rank_topology *topology, const model_desc *desc);

/** Collective. The caller zeroes *out before and calls model_destroy after, whatever the result. */
mimo_status model_create(bridged_model *out, const rank_topology *topology, const model_desc *desc);
void model_destroy(bridged_model *model);

/** Elements of the parameters of both modules. Each counts once, however tp cuts it. */
typedef struct model_elements {
    int64_t all, trained;
} model_elements;
model_elements model_count_elements(const bridged_model *model);

/** Bytes on this rank that a forward leaves for its backward, in both modules; and those that
 *  blocks share where their forward is repeated. */
typedef struct model_saved {
    int64_t micro_batch, shared;
} model_saved;
model_saved model_count_saved(const bridged_model *model);

/** Merge all adapters into the weights, and those back that are merged: also after a merge that
 *  failed between two layers. Local. The errors of nn_lora_merge. */
mimo_status model_merge(bridged_model *model);
mimo_status model_unmerge(bridged_model *model);

#endif
