/* Private: what GELU and its derivative need besides exp. Host and device each have their own
 * exp. */
#ifndef MIMO_NN_NN_GELU_H
#define MIMO_NN_NN_GELU_H

#include "train/nn/ops/nn_everywhere.h"
#include "train/nn/ops/nn_real.h"

#define NN_GELU_SLOPE ((nn_real)1.5957691216057308) /* 2 sqrt(2 / pi) */
#define NN_GELU_CUBIC ((nn_real)0.044715)

/* The gate of u is
 *
 *   0.5 (1 + tanh(z)) = 1 / (1 + exp(-2z)),    z = sqrt(2 / pi) (u + 0.044715 u^3)
 *
 * The right side takes one exp, and has no cancellation where tanh is near -1. This is -2z. */
static inline NN_EVERYWHERE nn_real nn_gelu_exponent(nn_real u)
{
    return -NN_GELU_SLOPE * (u + NN_GELU_CUBIC * u * u * u);
}

/* The derivative of u * gate. Forward keeps the gate, because an exp costs more than a load. */
static inline NN_EVERYWHERE nn_real nn_gelu_slope(nn_real u, nn_real gate)
{
    return gate + u * gate * (1 - gate) * NN_GELU_SLOPE * (1 + 3 * NN_GELU_CUBIC * u * u);
}

#endif
