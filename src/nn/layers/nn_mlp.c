#include "nn/layers/nn_mlp.h"

#include <string.h>

#include "core/checked.h"
#include "nn/params/nn_support.h"

static mimo_status init_linears(nn_mlp *layer, nn_params *params, mimo_comm *tp,
                                const nn_mlp_desc *desc)
{
    char name[NN_NAME_CAPACITY];
    MIMO_TRY(nn_join(name, desc->name, "up"));
    nn_linear_desc up = {.name = name,
                         .in = desc->hidden,
                         .out = desc->inner,
                         .split = NN_SPLIT_COLUMNS,
                         .bias = true,
                         .std = desc->std,
                         .max_rows = desc->max_rows,
                         .sp = desc->sp,
                         .lora = nn_lora_for(desc->adapters, name)};
    MIMO_TRY(nn_linear_init(&layer->up, params, tp, &up));
    MIMO_TRY(nn_join(name, desc->name, "down"));
    nn_linear_desc down = up;
    down.in = desc->inner;
    down.out = desc->hidden;
    down.split = NN_SPLIT_ROWS;
    down.std = desc->out_std;
    down.lora = nn_lora_for(desc->adapters, name);
    return nn_linear_init(&layer->down, params, tp, &down);
}

static mimo_status reserve(const nn_mlp *layer, nn_real **room)
{
    int64_t count;
    MIMO_TRY(mimo_mul(&count, layer->max_rows, layer->up.out));
    return nn_runtime_reserve(layer->runtime, room, count, sizeof **room);
}

mimo_status nn_mlp_init(nn_mlp *layer, nn_params *params, mimo_comm *tp, const nn_mlp_desc *desc)
{
    nn_mlp made = {.max_rows = desc->max_rows, .runtime = nn_params_runtime(params)};
    MIMO_TRY(nn_check_size(desc->name, "max_rows", desc->max_rows));
    mimo_status status;
    MIMO_TRY_GOTO(status, fail, init_linears(&made, params, tp, desc));
    MIMO_TRY_GOTO(status, fail, reserve(&made, &made.u));
    MIMO_TRY_GOTO(status, fail, reserve(&made, &made.activated));
    MIMO_TRY_GOTO(status, fail, reserve(&made, &made.gate));
    MIMO_TRY_GOTO(status, fail, reserve(&made, &made.du));
    *layer = made;
    return MIMO_OK;
fail:
    nn_mlp_release(&made);
    return status;
}

void nn_mlp_release(nn_mlp *layer)
{
    nn_linear_release(&layer->up);
    nn_linear_release(&layer->down);
    nn_runtime_free(layer->runtime, layer->u);
    nn_runtime_free(layer->runtime, layer->activated);
    nn_runtime_free(layer->runtime, layer->gate);
    nn_runtime_free(layer->runtime, layer->du);
    memset(layer, 0, sizeof *layer);
}

mimo_status nn_mlp_forward(nn_mlp *layer, nn_real *y, const nn_real *x, int64_t rows, int64_t batch)
{
    int64_t share = nn_edge_factor(&layer->up.before);
    MIMO_TRY(nn_check_forward("mlp", layer->up.params, rows, layer->max_rows / share));
    MIMO_TRY(nn_linear_forward(&layer->up, layer->u, x, rows, batch));
    MIMO_TRY(layer->runtime->ops->gelu(layer->runtime, layer->activated, layer->gate, layer->u,
                                       rows * share * layer->up.out));
    return nn_linear_forward(&layer->down, y, layer->activated, rows * share, batch);
}

mimo_status nn_mlp_backward(nn_mlp *layer, nn_real *dx, const nn_real *dy)
{
    MIMO_CHECK(layer->down.params && layer->down.rows >= 0, MIMO_ERR_STATE,
               "mlp: backward before forward");
    MIMO_TRY(nn_linear_backward(&layer->down, layer->du, dy));
    int64_t count = layer->down.rows * layer->up.out;
    MIMO_TRY(layer->runtime->ops->gelu_backward(layer->runtime, layer->du, layer->u, layer->gate,
                                                count));
    return nn_linear_backward(&layer->up, dx, layer->du);
}
