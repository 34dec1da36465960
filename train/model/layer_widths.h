/* What the blocks of both modules have in common: widths and the spread of initial weights. */
#ifndef TRAIN_LAYER_WIDTHS_H
#define TRAIN_LAYER_WIDTHS_H

#include <math.h>

#include "train/nn/nn.h"

#define EMBEDDING_STD 0.02

/* Keeps the variance of a linear layer's output that of its input. */
static inline double fan_in_std(int64_t in)
{
    return 1.0 / sqrt((double)in);
}

/* A block of the usual proportions: an mlp four times as wide, and projections back to the residual
 * that are smaller the more of them add up, two of each whole block. The caller fills in the upper
 * limits. */
static inline nn_block_desc block_of(int64_t hidden, int64_t heads, int64_t projections)
{
    nn_block_desc block = {0};
    block.hidden = hidden;
    block.heads = heads;
    block.inner = 4 * hidden;
    block.std = 0.5 * fan_in_std(hidden);
    block.out_std = block.std / sqrt((double)projections);
    return block;
}

/* A mixture in place of an MLP. A token goes through as much width as there: with equal weights its
 * experts are the parts of one MLP. Routers choose by sigmoids and a bias that keeps loads even. */
static inline nn_mixture mixture_of(nn_dispatch *dispatch, int64_t inner, int64_t top_k)
{
    return (nn_mixture){.dispatch = dispatch,
                        .inner = inner / top_k,
                        .scores = NN_SCORES_SIGMOID,
                        .scale = (double)top_k,
                        .balance = 1e-3,
                        .bias_rate = 1e-2};
}

#endif
