#include "nn/nn_mlp.h"

#include <string.h>

#include "nn/nn_math.h"
#include "nn/nn_support.h"

static mimo_status init_linears(nn_mlp *layer, nn_params *params, mimo_comm *tp,
                                const nn_mlp_desc *desc)
{
    char name[NN_NAME_CAPACITY];
    MIMO_TRY(nn_join(name, desc->name, "up"));
    nn_linear_desc up = {name, desc->hidden, desc->inner, NN_SPLIT_COLUMNS, true, desc->std};
    MIMO_TRY(nn_linear_init(&layer->up, params, tp, &up));
    MIMO_TRY(nn_join(name, desc->name, "down"));
    nn_linear_desc down = {name, desc->inner, desc->hidden, NN_SPLIT_ROWS, true, desc->out_std};
    return nn_linear_init(&layer->down, params, tp, &down);
}

mimo_status nn_mlp_init(nn_mlp *layer, nn_params *params, mimo_comm *tp, const nn_mlp_desc *desc)
{
    nn_mlp made = {.max_rows = desc->max_rows};
    MIMO_TRY(nn_check_size(desc->name, "max_rows", desc->max_rows));
    MIMO_TRY(init_linears(&made, params, tp, desc));
    int64_t count = desc->max_rows * made.up.out;
    mimo_status status;
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&made.u, count, sizeof *made.u));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&made.activated, count, sizeof *made.activated));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&made.gate, count, sizeof *made.gate));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&made.du, count, sizeof *made.du));
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
    mimo_release(layer->u);
    mimo_release(layer->activated);
    mimo_release(layer->gate);
    mimo_release(layer->du);
    memset(layer, 0, sizeof *layer);
}

/* 0.5 (1 + tanh(z)) = 1 / (1 + exp(-2z)), z = sqrt(2 / pi) (u + 0.044715 u^3): one exp, and no
 * cancellation where tanh is near -1. */
static const nn_real slope = (nn_real)1.5957691216057308; /* 2 sqrt(2 / pi) */
static const nn_real cubic = (nn_real)0.044715;

/* The gate 0.5 (1 + tanh(z)) is kept for backward: an exp costs more than a load. */
static void gelu(nn_mlp *layer, int64_t n)
{
    const nn_real *restrict from = layer->u;
    nn_real *restrict to = layer->activated, *restrict gate = layer->gate;
    for (int64_t i = 0; i < n; i++) {
        nn_real u = from[i];
        nn_real s = 1 / (1 + nn_exp(-slope * (u + cubic * u * u * u)));
        gate[i] = s;
        to[i] = u * s;
    }
}

/* du *= gelu'(u). */
static void gelu_backward(nn_mlp *layer, int64_t n)
{
    const nn_real *restrict from = layer->u, *restrict gate = layer->gate;
    nn_real *restrict d = layer->du;
    for (int64_t i = 0; i < n; i++) {
        nn_real u = from[i], s = gate[i];
        d[i] *= s + u * s * (1 - s) * slope * (1 + 3 * cubic * u * u);
    }
}

mimo_status nn_mlp_forward(nn_mlp *layer, nn_real *y, const nn_real *x, int64_t rows)
{
    MIMO_TRY(nn_check_forward("mlp", layer->up.params, rows, layer->max_rows));
    MIMO_TRY(nn_linear_forward(&layer->up, layer->u, x, rows));
    gelu(layer, rows * layer->up.out);
    return nn_linear_forward(&layer->down, y, layer->activated, rows);
}

mimo_status nn_mlp_backward(nn_mlp *layer, nn_real *dx, const nn_real *dy)
{
    MIMO_CHECK(layer->down.params && layer->down.rows >= 0, MIMO_ERR_STATE,
               "mlp: backward before forward");
    MIMO_TRY(nn_linear_backward(&layer->down, layer->du, dy));
    gelu_backward(layer, layer->down.rows * layer->up.out);
    return nn_linear_backward(&layer->up, dx, layer->du);
}
