#include "nn/nn_norm.h"

#include <string.h>

#include "nn/nn_math.h"
#include "nn/nn_support.h"

static const double epsilon = 1e-5;

static mimo_status add_vector(nn_params *params, const char *layer, const char *part, nn_init init,
                              int64_t width, int *index)
{
    char name[NN_NAME_CAPACITY];
    MIMO_TRY(nn_join(name, layer, part));
    nn_param_desc desc = {.name = name, .ndim = 1, .shape = {width, 1}, .init = init};
    return nn_params_add(params, &desc, index);
}

mimo_status nn_norm_init(nn_norm *layer, nn_params *params, const char *name, int64_t width,
                         int64_t max_rows)
{
    nn_norm made = {.params = params, .width = width, .max_rows = max_rows, .rows = -1};
    MIMO_CHECK(params, MIMO_ERR_ARGUMENT, "%s: no parameter store", name);
    MIMO_TRY(nn_check_size(name, "width", width));
    MIMO_TRY(nn_check_size(name, "max_rows", max_rows));
    MIMO_TRY(add_vector(params, name, "scale", NN_INIT_ONES, width, &made.scale));
    MIMO_TRY(add_vector(params, name, "shift", NN_INIT_ZEROS, width, &made.shift));
    mimo_status status;
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&made.mean, max_rows, sizeof *made.mean));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&made.rstd, max_rows, sizeof *made.rstd));
    *layer = made;
    return MIMO_OK;
fail:
    nn_norm_release(&made);
    return status;
}

void nn_norm_release(nn_norm *layer)
{
    mimo_release(layer->mean);
    mimo_release(layer->rstd);
    memset(layer, 0, sizeof *layer);
}

mimo_status nn_norm_forward(nn_norm *layer, nn_real *y, const nn_real *x, int64_t rows)
{
    MIMO_TRY(nn_check_forward("norm", layer->params, rows, layer->max_rows));
    const nn_real *scale = nn_value(layer->params, layer->scale);
    const nn_real *shift = nn_value(layer->params, layer->shift);
    int64_t width = layer->width;
    for (int64_t i = 0; i < rows; i++) {
        const nn_real *from = x + i * width;
        nn_real *to = y + i * width;
        double mean = nn_sum_f64(from, width) / (double)width;
        double variance = nn_sum_deviations(from, mean, width) / (double)width;
        nn_real middle = layer->mean[i] = (nn_real)mean;
        nn_real rstd = layer->rstd[i] = (nn_real)(1.0 / sqrt(variance + epsilon));
        for (int64_t j = 0; j < width; j++)
            to[j] = (from[j] - middle) * rstd * scale[j] + shift[j];
    }
    layer->x = x;
    layer->rows = rows;
    return MIMO_OK;
}

typedef struct row_means {
    nn_real g, gx; /* means over the row of g = dy * scale and of g * normalised x */
} row_means;

/* Adds the row's part of the parameters' gradients too. */
static row_means add_row(const nn_norm *layer, const nn_real *dy, int64_t i)
{
    const nn_real *x = layer->x + i * layer->width;
    const nn_real *scale = nn_value(layer->params, layer->scale);
    nn_real *d_scale = nn_grad(layer->params, layer->scale);
    nn_real *d_shift = nn_grad(layer->params, layer->shift);
    nn_real mean = layer->mean[i], rstd = layer->rstd[i];
    double g[NN_LANES] = {0}, gx[NN_LANES] = {0}, sum_g = 0, sum_gx = 0;
    for (int64_t begin = 0; begin < layer->width; begin += NN_LANES) {
        int64_t n = layer->width - begin < NN_LANES ? layer->width - begin : NN_LANES;
        for (int64_t l = 0; l < n; l++) {
            int64_t j = begin + l;
            nn_real normal = (x[j] - mean) * rstd;
            d_scale[j] += dy[j] * normal;
            d_shift[j] += dy[j];
            g[l] += (double)(dy[j] * scale[j]);
            gx[l] += (double)(dy[j] * scale[j] * normal);
        }
    }
    for (int l = 0; l < NN_LANES; l++) {
        sum_g += g[l];
        sum_gx += gx[l];
    }
    return (row_means){(nn_real)(sum_g / (double)layer->width),
                       (nn_real)(sum_gx / (double)layer->width)};
}

mimo_status nn_norm_backward(nn_norm *layer, nn_real *dx, const nn_real *dy,
                             const nn_real *residual)
{
    MIMO_CHECK(layer->params && layer->rows >= 0, MIMO_ERR_STATE, "norm: backward before forward");
    const nn_real *scale = nn_value(layer->params, layer->scale);
    int64_t width = layer->width;
    for (int64_t i = 0; i < layer->rows; i++) {
        const nn_real *x = layer->x + i * width, *from = dy + i * width;
        nn_real *to = dx + i * width;
        nn_real middle = layer->mean[i], rstd = layer->rstd[i];
        row_means mean = add_row(layer, from, i);
        for (int64_t j = 0; j < width; j++) {
            nn_real normal = (x[j] - middle) * rstd;
            nn_real gradient = rstd * (from[j] * scale[j] - mean.g - normal * mean.gx);
            to[j] = residual ? residual[i * width + j] + gradient : gradient;
        }
    }
    return MIMO_OK;
}
