#include "train/nn/layers/nn_mlp.h"

#include <string.h>

#include "core/checked.h"
#include "train/nn/params/nn_support.h"

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

mimo_status nn_mlp_init(nn_mlp *layer, nn_params *params, mimo_comm *tp, const nn_mlp_desc *desc)
{
    nn_mlp made = {.max_rows = desc->max_rows, .runtime = nn_params_runtime(params)};
    MIMO_TRY(nn_check_size(desc->name, "max_rows", desc->max_rows));
    mimo_status status = init_linears(&made, params, tp, desc);
    if (status != MIMO_OK) {
        nn_mlp_release(&made);
        return status;
    }
    *layer = made;
    return MIMO_OK;
}

void nn_mlp_release(nn_mlp *layer)
{
    nn_linear_release(&layer->up);
    nn_linear_release(&layer->down);
    memset(layer, 0, sizeof *layer);
}

mimo_status nn_mlp_saved_take(nn_mlp_saved *saved, const nn_mlp *layer, nn_room *room)
{
    int64_t count;
    nn_real **const tensors[] = {&saved->u, &saved->activated, &saved->gate, &saved->du};
    MIMO_TRY(mimo_mul(&count, layer->max_rows, layer->up.out));
    MIMO_TRY(nn_linear_saved_take(&saved->up, &layer->up, room));
    MIMO_TRY(nn_linear_saved_take(&saved->down, &layer->down, room));
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        MIMO_TRY(nn_room_take(room, tensors[i], count, sizeof(nn_real)));
    return MIMO_OK;
}

mimo_status nn_mlp_forward(const nn_mlp *layer, nn_mlp_saved *saved, nn_real *y, const nn_real *x,
                           int64_t rows, int64_t batch)
{
    int64_t share = nn_edge_factor(&layer->up.before);
    saved->down.progress = NN_PROGRESS_NONE;
    MIMO_TRY(nn_check_forward("mlp", layer->up.params, rows, layer->max_rows / share));
    MIMO_TRY(nn_linear_forward(&layer->up, &saved->up, saved->u, x, rows, batch));
    MIMO_TRY(layer->runtime->ops->gelu(layer->runtime, saved->activated, saved->gate, saved->u,
                                       (nn_rows){.most = rows * share}, layer->up.out));
    return nn_linear_forward(&layer->down, &saved->down, y, saved->activated, rows * share, batch);
}

mimo_status nn_mlp_backward_input(const nn_mlp *layer, nn_mlp_saved *saved, nn_real *dx,
                                  nn_real *dy)
{
    MIMO_CHECK(saved->down.progress >= NN_PROGRESS_FORWARD, MIMO_ERR_STATE,
               "mlp: backward before forward");
    MIMO_TRY(nn_linear_backward_input(&layer->down, &saved->down, saved->du, dy));
    MIMO_TRY(layer->runtime->ops->gelu_backward(layer->runtime, saved->du, saved->u, saved->gate,
                                                (nn_rows){.most = saved->down.rows},
                                                layer->up.out));
    return nn_linear_backward_input(&layer->up, &saved->up, dx, saved->du);
}

mimo_status nn_mlp_backward_params(const nn_mlp *layer, nn_mlp_saved *saved)
{
    MIMO_TRY(nn_linear_backward_params(&layer->down, &saved->down));
    return nn_linear_backward_params(&layer->up, &saved->up);
}

mimo_status nn_mlp_visit(nn_mlp *layer, nn_lora_visit *visit)
{
    MIMO_TRY(nn_linear_visit(&layer->up, visit));
    return nn_linear_visit(&layer->down, visit);
}
