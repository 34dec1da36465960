#include "nn/nn_linear.h"

#include <string.h>

#include "core/mutation.h"
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

static nn_matrix weight_of(const nn_linear *layer)
{
    return nn_matrix_of(nn_value(layer->params, layer->weight), layer->out, layer->in, layer->in);
}

/* How often the bias or its gradient is added: once. The planted bug adds it on every tp rank
 * before the sum. */
static int bias_times(const nn_linear *layer, bool mutated)
{
    return mutated && layer->split == NN_SPLIT_ROWS ? nn_comm_size(layer->tp) : 1;
}

mimo_status nn_linear_forward(nn_linear *layer, nn_real *y, const nn_real *x, int64_t rows)
{
    MIMO_TRY(nn_check_forward("linear", layer->params, rows, INT_MAX));
    const nn_runtime *runtime = nn_params_runtime(layer->params);
    nn_matrix input = nn_matrix_of(x, rows, layer->in, layer->in);
    MIMO_TRY(nn_multiply(runtime, y, 0, input, nn_transpose(weight_of(layer))));
    if (layer->split == NN_SPLIT_ROWS)
        MIMO_TRY(nn_allreduce(runtime, layer->tp, y, rows * layer->out));
    int times = layer->bias >= 0 ? bias_times(layer, MIMO_MUTATED("bias-over-tp")) : 0;
    for (int i = 0; i < times; i++)
        MIMO_TRY(runtime->ops->add_bias(runtime, y, nn_value(layer->params, layer->bias), rows,
                                        layer->out));
    layer->x = x;
    layer->rows = rows;
    return MIMO_OK;
}

static mimo_status add_parameter_gradients(nn_linear *layer, const nn_real *dy)
{
    const nn_runtime *runtime = nn_params_runtime(layer->params);
    nn_matrix gradient = nn_matrix_of(dy, layer->rows, layer->out, layer->out);
    nn_matrix input = nn_matrix_of(layer->x, layer->rows, layer->in, layer->in);
    MIMO_TRY(nn_multiply(runtime, nn_grad(layer->params, layer->weight), 1, nn_transpose(gradient),
                         input));
    int times = layer->bias >= 0 ? bias_times(layer, MIMO_MUTATED("bias-gradient-over-tp")) : 0;
    for (int i = 0; i < times; i++)
        MIMO_TRY(runtime->ops->add_columns(runtime, nn_grad(layer->params, layer->bias), dy,
                                           layer->rows, layer->out));
    return MIMO_OK;
}

mimo_status nn_linear_backward(nn_linear *layer, nn_real *dx, const nn_real *dy)
{
    MIMO_CHECK(layer->params && layer->rows >= 0, MIMO_ERR_STATE,
               "linear: backward before forward");
    MIMO_TRY(add_parameter_gradients(layer, dy));
    if (!dx)
        return MIMO_OK;
    const nn_runtime *runtime = nn_params_runtime(layer->params);
    nn_matrix gradient = nn_matrix_of(dy, layer->rows, layer->out, layer->out);
    MIMO_TRY(nn_multiply(runtime, dx, 0, gradient, weight_of(layer)));
    if (layer->split == NN_SPLIT_COLUMNS && !MIMO_MUTATED("no-input-sum"))
        MIMO_TRY(nn_allreduce(runtime, layer->tp, dx, layer->rows * layer->in));
    return MIMO_OK;
}
