/*
 * The LLM's layers by a pattern, and which stage has which. A pattern is a list of items: '*' is
 * attention alone, '-' an MLP alone, and [*-] a block of both. Item i is block i of the model, and
 * names its parameters: [*-][*-] are the blocks 0 and 1, *-*- the blocks 0 to 3 with the same sums.
 *
 * '|' cuts the pattern into segments: of pp stages and V chunks a stage segment v * pp + p is chunk
 * v of stage p. Some may be empty. Without '|' each stage gets as many layers, and a model without
 * a pattern is cut as evenly as it goes. Where there are no stages '|' cuts nothing.
 */
#ifndef TRAIN_LAYER_LAYOUT_H
#define TRAIN_LAYER_LAYOUT_H

#include <mimo/status.h>

#include "train/nn/layers/nn_block_kind.h"

typedef struct layer_layout_desc {
    const char *pattern; /* NULL: blocks [*-] */
    int64_t layers;      /* blocks; with a pattern 0 where it alone says that */
    int stages;
    int64_t chunks; /* of a stage, as the schedule has them */
} layer_layout_desc;

typedef struct layer_layout {
    struct mimo_pattern *pattern; /* src/schedule/layer_pattern.h */
    int64_t items, layers;        /* of the pattern: blocks, and letters */
    int64_t *bounds; /* [stages * chunks + 1]: segment s has the items bounds[s] to bounds[s + 1] */
    int64_t chunks;  /* of a stage */
    bool usual;      /* every item is [*-] */
} layer_layout;

/** Pure, local: the same answer on every rank. The caller zeroes *out before and calls
 *  layer_layout_release after, whatever the result. MIMO_ERR_ARGUMENT: the pattern breaks a rule
 *  (src/schedule/layer_pattern.h); it has other layers than * and -, or another number of blocks;
 *  it does not divide over the stages; it gives them other chunks than the schedule has. */
mimo_status layer_layout_create(layer_layout *out, const layer_layout_desc *desc);
void layer_layout_release(layer_layout *layout);

/** The number of an item's first layer. */
int64_t layer_layout_first(const layer_layout *layout, int64_t item);

/** The kind of an item: nn_block_dense, nn_block_attention or nn_block_mlp. */
const nn_block_kind *layer_layout_kind(const layer_layout *layout, int64_t item);

/** Where the LLM has mixtures of experts, these items are mixtures: 1, 3, ... */
static inline bool layer_layout_mixes(int64_t item)
{
    return item % 2 == 1;
}

/** The kind of block that an item is, in an LLM with or without mixtures. */
static inline const nn_block_kind *layer_layout_block(const layer_layout *layout, int64_t item,
                                                      bool mixtures)
{
    return mixtures && layer_layout_mixes(item) ? &nn_block_mixed : layer_layout_kind(layout, item);
}

/** How many of the first `items` are. So the mixture at item i has the number of the first i. */
static inline int64_t layer_layout_mixtures(int64_t items)
{
    return items / 2;
}

/** The item of a mixture. */
static inline int64_t layer_layout_mixture(int64_t number)
{
    return 2 * number + 1;
}

/** The items in letters, without '|', which changes no layer. Where they do not fit, their number
 *  and a hash. */
void layer_layout_spell(char *out, size_t capacity, const layer_layout *layout);

#endif
