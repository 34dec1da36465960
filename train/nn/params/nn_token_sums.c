#include "train/nn/params/nn_token_sums.h"

#include "core/mutation.h"
#include "train/nn/params/nn_support.h"

/* The rows of each sample are the k of its own product. They lie batch * width elements apart. */
static nn_matrix of_sample(const nn_real *data, int64_t width, nn_tokens tokens)
{
    nn_matrix x = nn_matrix_of(data, tokens.rows / tokens.batch, width, tokens.batch * width);
    x.step = width;
    return x;
}

static mimo_status sum_fixed(const nn_params *params, int index, const nn_token_product *it,
                             nn_tokens tokens)
{
    const nn_runtime *runtime = nn_params_runtime(params);
    if (MIMO_MUTATED("wgrad-whole"))
        tokens = (nn_tokens){tokens.rows, 1};
    bool apart = tokens.rows == tokens.batch;
    nn_product product = {.sums = nn_params_at(params, index)->sums,
                          .stride = it->in,
                          .alpha = (nn_real)it->scale,
                          .a = nn_transpose(of_sample(it->dy, it->out, tokens)),
                          .b = of_sample(it->x, it->in, tokens),
                          .count = tokens.batch,
                          .parts = apart ? 1 : nn_params_pairs(params),
                          .folded = true};
    return runtime->ops->matmul(runtime, &product);
}

mimo_status nn_sum_products(const nn_params *params, int index, const nn_token_product *it,
                            nn_tokens tokens)
{
    const nn_runtime *runtime = nn_params_runtime(params);
    if (nn_is_frozen(params, index))
        return MIMO_OK;
    if (runtime->order == NN_ORDER_FIXED)
        return tokens.rows > 0 ? sum_fixed(params, index, it, tokens) : MIMO_OK;
    nn_product product = {.c = nn_grad(params, index),
                          .stride = it->in,
                          .alpha = (nn_real)it->scale,
                          .beta = 1,
                          .a = nn_transpose(nn_matrix_of(it->dy, tokens.rows, it->out, it->out)),
                          .b = nn_matrix_of(it->x, tokens.rows, it->in, it->in),
                          .count = 1};
    return runtime->ops->matmul(runtime, &product);
}

mimo_status nn_sum_rows(const nn_params *params, int index, const nn_real *dy, int64_t rows)
{
    const nn_runtime *runtime = nn_params_runtime(params);
    const nn_param *param = nn_params_at(params, index);
    if (param->frozen)
        return MIMO_OK;
    if (runtime->order == NN_ORDER_FAST)
        return runtime->ops->add_columns(runtime, param->grad, dy, rows, param->count);
    return runtime->ops->add_columns_fixed(runtime, param->sums, dy, rows, param->count);
}

mimo_status nn_sum_lookups(const nn_params *params, int index, const nn_real *dy,
                           const nn_lookup *lookup, const nn_uses *uses)
{
    const nn_runtime *runtime = nn_params_runtime(params);
    const nn_param *param = nn_params_at(params, index);
    if (param->frozen)
        return MIMO_OK;
    if (runtime->order == NN_ORDER_FAST)
        return runtime->ops->lookup_backward(runtime, param->grad, dy, lookup, uses);
    return runtime->ops->lookup_backward_fixed(runtime, param->sums, dy, lookup, uses);
}
