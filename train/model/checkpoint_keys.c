#include "train/model/checkpoint_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "schedule/pattern_keys.h"

const char *checkpoint_keys_name(checkpoint_keys keys)
{
    return keys == CHECKPOINT_KEYS_MEGATRON ? "megatron" : "own";
}

/* How names begin. */
typedef struct word {
    const char *own, *theirs;
} word;

static const word model_words[] = {
    {"llm.text.", "embedding.word_embeddings."},
    {"llm.position.", "embedding.position_embeddings."},
    {"llm.norm.scale", "decoder.final_norm.weight"},
    {"llm.norm.shift", "decoder.final_norm.bias"},
    {"llm.head.", "output_layer."},
    {NULL, NULL},
};

/* Of a block's tensors, behind its number. */
static const word block_words[] = {
    {"norm1.scale", "input_layernorm.weight"},
    {"norm1.shift", "input_layernorm.bias"},
    {"attention.qkv.", "self_attention.linear_qkv."},
    {"attention.out.", "self_attention.linear_proj."},
    {"norm2.scale", "pre_mlp_layernorm.weight"},
    {"norm2.shift", "pre_mlp_layernorm.bias"},
    {"mlp.up.", "mlp.linear_fc1."},
    {"mlp.down.", "mlp.linear_fc2."},
    {"mlp.router.bias", "mlp.router.expert_bias"},
    {NULL, NULL},
};

/* Of an expert's, behind its number. */
static const char experts_own[] = "mlp.experts.", experts_theirs[] = "mlp.experts.local_experts.";
static const word expert_words[] = {
    {"up.", "linear_fc1."},
    {"down.", "linear_fc2."},
    {NULL, NULL},
};

/* The word that a name begins with; the last one where there is none. */
static const word *find_word(const word *words, const char *name)
{
    while (words->own && strncmp(name, words->own, strlen(words->own)) != 0)
        words++;
    return words;
}

/* Write `before` and the name, which begins with another word then. */
static mimo_status replace(mimo_pattern_key *out, const char *before, const word *words,
                           const char *name)
{
    const word *found = find_word(words, name);
    int length =
        snprintf(out->text, sizeof out->text, "%s%s%s", before, found->own ? found->theirs : "",
                 found->own ? name + strlen(found->own) : name);
    CHECK(length > 0 && (size_t)length < sizeof out->text, MIMO_ERR_ARGUMENT,
          "--keys: the name of %.100s is too long", name);
    return MIMO_OK;
}

/* The number of the layer that has a block's tensor: of a block of both, the MLP is the second
 * layer, and has the second norm. */
static int64_t layer_of(const layer_layout *layout, int64_t block, const char *rest)
{
    bool second = strncmp(rest, "norm2.", 6) == 0 || strncmp(rest, "mlp.", 4) == 0;
    bool both = layer_layout_kind(layout, block) == &nn_block_dense;
    return layer_layout_first(layout, block) + (second && both);
}

/* "llm.block3.mlp.up.weight", from "3" on. */
static mimo_status name_block(mimo_pattern_key *out, const layer_layout *layout, const char *name)
{
    char before[80], *rest;
    int64_t block = strtoll(name, &rest, 10);
    rest += *rest == '.';
    int64_t layer = layer_of(layout, block, rest);
    size_t length = strlen(experts_own);
    snprintf(before, sizeof before, "decoder.layers.%" PRId64 ".", layer);
    if (strncmp(rest, experts_own, length) != 0)
        return replace(out, before, block_words, rest);
    int64_t expert = strtoll(rest + length, &rest, 10);
    rest += *rest == '.';
    snprintf(before, sizeof before, "decoder.layers.%" PRId64 ".%s%" PRId64 ".", layer,
             experts_theirs, expert);
    return replace(out, before, expert_words, rest);
}

/* A name with Megatron's words, and with numbers that count layers. */
static mimo_status name_by_layers(mimo_pattern_key *out, const layer_layout *layout,
                                  const char *name)
{
    static const char block[] = "llm.block";
    size_t length = strlen(block);
    out->place = -1;
    return strncmp(name, block, length) == 0 ? name_block(out, layout, name + length)
                                             : replace(out, "", model_words, name);
}

mimo_status checkpoint_keys_rename(checkpoint_key *keys, int64_t count, const layer_layout *layout)
{
    mimo_pattern_key *layers, *items;
    mimo_status status = MIMO_OK;
    TRY(memory_reserve(&layers, 2 * count, sizeof *layers));
    items = layers + count;
    for (int64_t i = 0; status == MIMO_OK && i < count; i++)
        status = name_by_layers(&layers[i], layout, keys[i].text);
    if (status == MIMO_OK)
        status = mimo_pattern_rename_all(items, layout->pattern, MIMO_KEYS_OF_LAYERS,
                                         MIMO_KEYS_OF_ITEMS, layers, count);
    for (int64_t i = 0; status == MIMO_OK && i < count; i++)
        memcpy(keys[i].text, items[i].text, sizeof keys[i].text);
    memory_release(layers);
    return status;
}
