/*
 * Names of tensors in checkpoints: the model's own, or those of Megatron-LM for the LLM's.
 *
 *   llm.block0.norm1.scale       decoder.layers.0.input_layernorm.weight
 *   llm.block0.attention.qkv.*   decoder.layers.0.self_attention.linear_qkv.*
 *   llm.block0.attention.out.*   decoder.layers.0.self_attention.linear_proj.*
 *   llm.block0.norm2.scale       decoder.layers.0.pre_mlp_layernorm.weight
 *   llm.block0.mlp.up.*          decoder.layers.0.mlp.linear_fc1.*
 *   llm.block0.mlp.down.*        decoder.layers.0.mlp.linear_fc2.*
 *   llm.text.*, llm.position.*   embedding.word_embeddings.*, embedding.position_embeddings.*
 *   llm.norm.scale               decoder.final_layernorm.weight
 *   llm.head.*                   output_layer.*
 *
 * The pattern of the layers says which number a layer has, and what the final norm is called
 * (src/schedule/pattern_keys.h). The names alone are Megatron's: tensors are our own.
 */
#ifndef TRAIN_CHECKPOINT_KEYS_H
#define TRAIN_CHECKPOINT_KEYS_H

#include "train/model/layer_layout.h"

typedef enum checkpoint_keys { CHECKPOINT_KEYS_OWN, CHECKPOINT_KEYS_MEGATRON } checkpoint_keys;

/** "own" and "megatron", as --keys and a file's metadata have them. */
const char *checkpoint_keys_name(checkpoint_keys keys);

typedef struct checkpoint_key {
    char text[256];
} checkpoint_key;

/** keys[count] of a model's tensors, in own names, to Megatron's. Pure. MIMO_ERR_ARGUMENT: a name
 *  is too long, or two tensors get one. */
mimo_status checkpoint_keys_rename(checkpoint_key *keys, int64_t count, const layer_layout *layout);

#endif
