/* Private: what layers share: communicators, the store, the runtime. */
#ifndef MIMO_NN_NN_SUPPORT_H
#define MIMO_NN_NN_SUPPORT_H

#include <inttypes.h>
#include <limits.h>

#include "core/check.h"
#include "core/memory.h"
#include "train/nn/exchange/nn_exchange.h"
#include "train/nn/ops/nn_ops.h"
#include "train/nn/params/nn_params.h"
#include "train/nn/params/nn_sizes.h"

static inline nn_real *nn_value(const nn_params *params, int index)
{
    return nn_params_at(params, index)->value;
}

static inline nn_real *nn_grad(const nn_params *params, int index)
{
    return nn_params_at(params, index)->grad;
}

static inline bool nn_is_frozen(const nn_params *params, int index)
{
    return nn_params_at(params, index)->frozen;
}

static inline nn_matrix nn_matrix_of(const nn_real *data, int64_t rows, int64_t columns,
                                     int64_t stride)
{
    nn_matrix a = {data, rows, columns, stride, 0, false};
    return a;
}

static inline nn_matrix nn_transpose(nn_matrix a)
{
    nn_matrix b = {a.data, a.columns, a.rows, a.stride, a.step, !a.transposed};
    return b;
}

/* c [a.rows, b.columns] += alpha a b, contiguous: a product of its own. */
static inline mimo_status nn_add_product(const nn_runtime *runtime, nn_real *c,
                                         const nn_factors *added)
{
    nn_product product = {.c = c,
                          .stride = added->b.columns,
                          .alpha = added->alpha,
                          .beta = 1,
                          .a = added->a,
                          .b = added->b,
                          .count = 1};
    return runtime->ops->matmul(runtime, &product);
}

/* Check that the communicator fits the store's tp: size, rank and kind of memory. */
mimo_status nn_check_tp(const char *layer, const nn_params *params, mimo_comm *tp);
/* Check that the store is sealed, and that 0 <= rows <= most. */
mimo_status nn_check_forward(const char *layer, const nn_params *params, int64_t rows,
                             int64_t most);

#endif
