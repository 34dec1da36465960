/*
 * Gradients of parameters: sums over the tokens of a tile "sbh", in which row s * batch + b is
 * token s of sample b. In the fast order they are added to grad, in an order that the sizes decide.
 * In the fixed order they are added to the parameter's sums in fixed point, and a product has a
 * chain for each sample and pair of chunks. A frozen parameter gets nothing.
 */
#ifndef MIMO_NN_NN_TOKEN_SUMS_H
#define MIMO_NN_NN_TOKEN_SUMS_H

#include "train/nn/ops/nn_ops.h"
#include "train/nn/params/nn_params.h"

/** Rows of a tile, and the samples that they belong to. `batch` divides `rows`. As many samples as
 *  rows: the rows have nothing in common, and in the fixed order each has a chain of its own. */
typedef struct nn_tokens {
    int64_t rows, batch;
} nn_tokens;

/** The factors of a gradient [out, in] that is a product. */
typedef struct nn_token_product {
    double scale;
    const nn_real *dy; /* [rows, out] */
    const nn_real *x;  /* [rows, in] */
    int64_t out, in;
} nn_token_product;

/** gradient += scale dy^T x. In the fixed order the number of chunks that a sample has on this rank
 *  divides rows / batch; the caller checks it. Local. */
mimo_status nn_sum_products(const nn_params *params, int index, const nn_token_product *product,
                            nn_tokens tokens);

/** gradient [width] += the rows of dy [rows, width]. Local. */
mimo_status nn_sum_rows(const nn_params *params, int index, const nn_real *dy, int64_t rows);

/** gradient += the rows of dy at the entries that a lookup used. Local. */
mimo_status nn_sum_lookups(const nn_params *params, int index, const nn_real *dy,
                           const nn_lookup *lookup, const nn_uses *uses);

#endif
