#include "nn/nn_linear.h"

#include <string.h>

#include "nn/nn_blas.h"
#include "nn/nn_support.h"

static mimo_status add_parameters(nn_linear *layer, nn_params *params, const nn_linear_desc *desc)
{
    char name[NN_NAME_CAPACITY];
    bool columns = desc->split == NN_SPLIT_COLUMNS, rows = desc->split == NN_SPLIT_ROWS;
    MIMO_TRY(nn_join(name, desc->name, "weight"));
    nn_param_desc weight = {.name = name,
                            .ndim = 2,
                            .shape = {desc->out, desc->in},
                            .rule = columns || rows ? NN_SHARDED : NN_REPLICATED,
                            .shard_dim = rows ? 1 : 0,
                            .decay = true,
                            .init = NN_INIT_NORMAL,
                            .std = desc->std};
    MIMO_TRY(nn_params_add(params, &weight, &layer->weight));
    layer->bias = -1;
    if (!desc->bias)
        return MIMO_OK;
    MIMO_TRY(nn_join(name, desc->name, "bias"));
    nn_param_desc bias = {.name = name,
                          .ndim = 1,
                          .shape = {desc->out, 1},
                          .rule = columns ? NN_SHARDED : NN_REPLICATED,
                          .init = NN_INIT_ZEROS};
    return nn_params_add(params, &bias, &layer->bias);
}

mimo_status nn_linear_init(nn_linear *layer, nn_params *params, mimo_comm *tp,
                           const nn_linear_desc *desc)
{
    int64_t ranks = nn_comm_size(tp);
    MIMO_TRY(nn_check_tp(desc->name, params, tp));
    MIMO_TRY(nn_check_size(desc->name, "in", desc->in));
    MIMO_TRY(nn_check_size(desc->name, "out", desc->out));
    MIMO_CHECK((unsigned)desc->split <= NN_SPLIT_ROWS, MIMO_ERR_ARGUMENT, "%s: unknown split %d",
               desc->name, (int)desc->split);
    if (desc->split == NN_SPLIT_COLUMNS)
        MIMO_TRY(nn_check_divides(desc->name, "out", desc->out, ranks));
    if (desc->split == NN_SPLIT_ROWS)
        MIMO_TRY(nn_check_divides(desc->name, "in", desc->in, ranks));
    nn_linear made = {.params = params, .tp = tp, .split = desc->split, .rows = -1};
    made.in = desc->split == NN_SPLIT_ROWS ? desc->in / ranks : desc->in;
    made.out = desc->split == NN_SPLIT_COLUMNS ? desc->out / ranks : desc->out;
    MIMO_TRY(add_parameters(&made, params, desc));
    *layer = made;
    return MIMO_OK;
}

void nn_linear_release(nn_linear *layer)
{
    memset(layer, 0, sizeof *layer);
}

static void add_bias(const nn_linear *layer, nn_real *y, int64_t rows)
{
    const nn_real *bias = nn_value(layer->params, layer->bias);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < layer->out; j++)
            y[i * layer->out + j] += bias[j];
}

mimo_status nn_linear_forward(nn_linear *layer, nn_real *y, const nn_real *x, int64_t rows)
{
    MIMO_TRY(nn_check_forward("linear", layer->params, rows, INT_MAX));
    nn_matrix input = nn_matrix_of(x, rows, layer->in, layer->in);
    nn_matrix weight =
        nn_matrix_of(nn_value(layer->params, layer->weight), layer->out, layer->in, layer->in);
    nn_gemm(y, layer->out, 0, 1, input, nn_transpose(weight));
    if (layer->split == NN_SPLIT_ROWS)
        MIMO_TRY(nn_allreduce(layer->tp, y, rows * layer->out));
    if (layer->bias >= 0)
        add_bias(layer, y, rows);
    layer->x = x;
    layer->rows = rows;
    return MIMO_OK;
}

static void add_bias_gradient(const nn_linear *layer, const nn_real *dy)
{
    nn_real *grad = nn_grad(layer->params, layer->bias);
    for (int64_t i = 0; i < layer->rows; i++)
        for (int64_t j = 0; j < layer->out; j++)
            grad[j] += dy[i * layer->out + j];
}

mimo_status nn_linear_backward(nn_linear *layer, nn_real *dx, const nn_real *dy)
{
    MIMO_CHECK(layer->params && layer->rows >= 0, MIMO_ERR_STATE,
               "linear: backward before forward");
    nn_matrix gradient = nn_matrix_of(dy, layer->rows, layer->out, layer->out);
    nn_matrix input = nn_matrix_of(layer->x, layer->rows, layer->in, layer->in);
    nn_gemm(nn_grad(layer->params, layer->weight), layer->in, 1, 1, nn_transpose(gradient), input);
    if (layer->bias >= 0)
        add_bias_gradient(layer, dy);
    if (!dx)
        return MIMO_OK;
    nn_matrix weight =
        nn_matrix_of(nn_value(layer->params, layer->weight), layer->out, layer->in, layer->in);
    nn_gemm(dx, layer->in, 0, 1, gradient, weight);
    if (layer->split == NN_SPLIT_COLUMNS)
        MIMO_TRY(nn_allreduce(layer->tp, dx, layer->rows * layer->in));
    return MIMO_OK;
}
