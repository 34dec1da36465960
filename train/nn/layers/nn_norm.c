#include "train/nn/layers/nn_norm.h"

#include <string.h>

#include "train/nn/params/nn_support.h"

static mimo_status add_vector(nn_norm *made, const char *layer, const char *part, nn_init init,
                              nn_rule rule, int *index)
{
    char name[NN_NAME_CAPACITY];
    MIMO_TRY(nn_join(name, layer, part));
    nn_param_desc desc = {
        .name = name, .ndim = 1, .shape = {made->width, 1}, .rule = rule, .init = init};
    return nn_params_add(made->params, &desc, index);
}

mimo_status nn_norm_init(nn_norm *layer, nn_params *params, const char *name, int64_t width,
                         int64_t max_rows, nn_rule rule)
{
    nn_norm made = {.params = params, .width = width, .max_rows = max_rows};
    MIMO_CHECK(params, MIMO_ERR_ARGUMENT, "%s: no parameter store", name);
    MIMO_TRY(nn_check_size(name, "width", width));
    MIMO_TRY(nn_check_size(name, "max_rows", max_rows));
    MIMO_TRY(add_vector(&made, name, "scale", NN_INIT_ONES, rule, &made.scale));
    MIMO_TRY(add_vector(&made, name, "shift", NN_INIT_ZEROS, rule, &made.shift));
    made.runtime = nn_params_runtime(params);
    *layer = made;
    return MIMO_OK;
}

void nn_norm_release(nn_norm *layer)
{
    memset(layer, 0, sizeof *layer);
}

mimo_status nn_norm_saved_take(nn_norm_saved *saved, const nn_norm *layer, nn_room *room)
{
    *saved = (nn_norm_saved){0};
    MIMO_TRY(nn_room_take(room, &saved->mean, layer->max_rows, sizeof *saved->mean));
    return nn_room_take(room, &saved->rstd, layer->max_rows, sizeof *saved->rstd);
}

static nn_norm_rows rows_of(const nn_norm *layer, const nn_norm_saved *saved)
{
    return (nn_norm_rows){
        .x = saved->x,
        .rows = saved->rows,
        .width = layer->width,
        .scale = nn_value(layer->params, layer->scale),
        .shift = nn_value(layer->params, layer->shift),
        .mean = saved->mean,
        .rstd = saved->rstd,
    };
}

mimo_status nn_norm_forward(const nn_norm *layer, nn_norm_saved *saved, nn_real *y,
                            const nn_real *x, int64_t rows)
{
    saved->progress = NN_PROGRESS_NONE;
    MIMO_TRY(nn_check_forward("norm", layer->params, rows, layer->max_rows));
    saved->x = x;
    saved->rows = rows;
    nn_norm_rows job = rows_of(layer, saved);
    MIMO_TRY(layer->runtime->ops->norm(layer->runtime, y, &job));
    saved->progress = NN_PROGRESS_FORWARD;
    return MIMO_OK;
}

mimo_status nn_norm_backward_input(const nn_norm *layer, nn_norm_saved *saved, nn_real *dx,
                                   const nn_real *dy, const nn_real *residual)
{
    MIMO_CHECK(saved->progress == NN_PROGRESS_FORWARD, MIMO_ERR_STATE,
               "norm: backward before forward");
    saved->progress = NN_PROGRESS_NONE;
    nn_norm_rows job = rows_of(layer, saved);
    const nn_param *scale = nn_params_at(layer->params, layer->scale);
    const nn_param *shift = nn_params_at(layer->params, layer->shift);
    bool fixed = layer->runtime->order == NN_ORDER_FIXED;
    nn_norm_gradients gradients = {
        .dy = dy,
        .residual = residual,
        .dx = dx,
        .d_scale = fixed ? NULL : scale->grad, /* NULL also where they are frozen */
        .d_shift = fixed ? NULL : shift->grad,
        .scale_sums = scale->sums,
        .shift_sums = shift->sums,
    };
    return layer->runtime->ops->norm_backward(layer->runtime, &job, &gradients);
}
