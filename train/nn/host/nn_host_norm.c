/* Layer norm. */
#include <math.h>

#include "train/nn/host/nn_host.h"
#include "train/nn/host/nn_math.h"
#include "train/nn/ops/nn_fixed.h"

mimo_status nn_host_norm(const nn_runtime *runtime, nn_real *y, const nn_norm_rows *rows)
{
    (void)runtime;
    const nn_real *scale = rows->scale, *shift = rows->shift;
    int64_t width = rows->width;
    for (int64_t i = 0; i < rows->rows; i++) {
        const nn_real *from = rows->x + i * width;
        nn_real *to = y + i * width;
        double mean = nn_sum_f64(from, width) / (double)width;
        double variance = nn_sum_deviations(from, mean, width) / (double)width;
        nn_real middle = rows->mean[i] = (nn_real)mean;
        nn_real rstd = rows->rstd[i] = (nn_real)(1.0 / sqrt(variance + NN_NORM_EPSILON));
        for (int64_t j = 0; j < width; j++)
            to[j] = (from[j] - middle) * rstd * scale[j] + shift[j];
    }
    return MIMO_OK;
}

typedef struct row_means {
    nn_real g, gx; /* row means of g = dy * scale, and of g * normalised x */
} row_means;

/* The means of row i. It also adds the row to the parameters' gradients. */
static row_means add_row(const nn_norm_rows *rows, const nn_norm_gradients *gradients, int64_t i)
{
    const nn_real *x = rows->x + i * rows->width, *dy = gradients->dy + i * rows->width;
    const nn_real *scale = rows->scale;
    nn_real *d_scale = gradients->d_scale, *d_shift = gradients->d_shift;
    int64_t *scale_sums = gradients->scale_sums, *shift_sums = gradients->shift_sums;
    nn_real mean = rows->mean[i], rstd = rows->rstd[i];
    double g[NN_LANES] = {0}, gx[NN_LANES] = {0}, sum_g = 0, sum_gx = 0;
    for (int64_t begin = 0; begin < rows->width; begin += NN_LANES) {
        int64_t n = rows->width - begin < NN_LANES ? rows->width - begin : NN_LANES;
        for (int64_t l = 0; l < n; l++) {
            int64_t j = begin + l;
            nn_real normal = (x[j] - mean) * rstd;
            if (d_scale) {
                d_scale[j] += dy[j] * normal;
                d_shift[j] += dy[j];
            }
            if (scale_sums) {
                scale_sums[j] = nn_fixed_sum(scale_sums[j], (double)(dy[j] * normal));
                shift_sums[j] = nn_fixed_sum(shift_sums[j], (double)dy[j]);
            }
            g[l] += (double)(dy[j] * scale[j]);
            gx[l] += (double)(dy[j] * scale[j] * normal);
        }
    }
    for (int l = 0; l < NN_LANES; l++) {
        sum_g += g[l];
        sum_gx += gx[l];
    }
    return (row_means){(nn_real)(sum_g / (double)rows->width),
                       (nn_real)(sum_gx / (double)rows->width)};
}

mimo_status nn_host_norm_backward(const nn_runtime *runtime, const nn_norm_rows *rows,
                                  const nn_norm_gradients *gradients)
{
    (void)runtime;
    const nn_real *scale = rows->scale, *residual = gradients->residual;
    int64_t width = rows->width;
    for (int64_t i = 0; i < rows->rows; i++) {
        const nn_real *x = rows->x + i * width, *from = gradients->dy + i * width;
        nn_real *to = gradients->dx + i * width;
        nn_real middle = rows->mean[i], rstd = rows->rstd[i];
        row_means mean = add_row(rows, gradients, i);
        for (int64_t j = 0; j < width; j++) {
            nn_real normal = (x[j] - middle) * rstd;
            nn_real gradient = rstd * (from[j] * scale[j] - mean.g - normal * mean.gx);
            to[j] = residual ? residual[i * width + j] + gradient : gradient;
        }
    }
    return MIMO_OK;
}
