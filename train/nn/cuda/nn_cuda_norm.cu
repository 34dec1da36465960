/* Layer norm: one block for each row. The parameters' gradients are sums of columns. */
#include "train/nn/cuda/nn_cuda_fixed.cuh"

mimo_status nn_cuda_norm(const nn_runtime *runtime, nn_real *y, const nn_norm_rows *rows)
{
    nn_norm_rows n = *rows;
    int64_t width = n.width;
    return nn_each_row(runtime, "norm", n.rows, width, [=] __device__(int64_t i) {
        const nn_real *from = n.x + i * width;
        double mean =
            nn_sum_row<double>(width, [=](int64_t j) { return (double)from[j]; }) / (double)width;
        double squares = nn_sum_row<double>(width, [=](int64_t j) {
            double deviation = (double)from[j] - mean;
            return deviation * deviation;
        });
        nn_real middle = (nn_real)mean;
        nn_real rstd = (nn_real)(1.0 / sqrt(squares / (double)width + NN_NORM_EPSILON));
        if (threadIdx.x == 0) {
            n.mean[i] = middle;
            n.rstd[i] = rstd;
        }
        for (int64_t j = threadIdx.x; j < width; j += blockDim.x)
            y[i * width + j] = (from[j] - middle) * rstd * n.scale[j] + n.shift[j];
    });
}

static mimo_status fixed_gradients(const nn_runtime *runtime, const nn_norm_rows *rows,
                                   const nn_norm_gradients *gradients)
{
    nn_norm_rows n = *rows;
    const nn_real *dy = gradients->dy;
    MIMO_TRY(nn_fix_columns(
        runtime, gradients->scale_sums, n.rows, n.width, [=] __device__(int64_t i, int64_t j) {
            return dy[i * n.width + j] * ((n.x[i * n.width + j] - n.mean[i]) * n.rstd[i]);
        }));
    return nn_fix_columns(runtime, gradients->shift_sums, n.rows, n.width,
                          [=] __device__(int64_t i, int64_t j) { return dy[i * n.width + j]; });
}

/* Runs before dx is written: it reads dy and x, and dx may be either. */
static mimo_status parameter_gradients(const nn_runtime *runtime, const nn_norm_rows *rows,
                                       const nn_norm_gradients *gradients)
{
    nn_norm_rows n = *rows;
    const nn_real *dy = gradients->dy;
    if (gradients->scale_sums)
        return fixed_gradients(runtime, rows, gradients);
    if (!gradients->d_scale)
        return MIMO_OK;
    MIMO_TRY(nn_sum_columns(
        runtime, gradients->d_scale, n.rows, n.width, [=] __device__(int64_t i, int64_t j) {
            return dy[i * n.width + j] * ((n.x[i * n.width + j] - n.mean[i]) * n.rstd[i]);
        }));
    return nn_sum_columns(runtime, gradients->d_shift, n.rows, n.width,
                          [=] __device__(int64_t i, int64_t j) { return dy[i * n.width + j]; });
}

mimo_status nn_cuda_norm_backward(const nn_runtime *runtime, const nn_norm_rows *rows,
                                  const nn_norm_gradients *gradients)
{
    nn_norm_rows n = *rows;
    nn_norm_gradients g = *gradients;
    int64_t width = n.width;
    MIMO_TRY(parameter_gradients(runtime, rows, gradients));
    return nn_each_row(runtime, "norm backward", n.rows, width, [=] __device__(int64_t i) {
        const nn_real *x = n.x + i * width, *dy = g.dy + i * width;
        nn_real middle = n.mean[i], rstd = n.rstd[i];
        double sum =
            nn_sum_row<double>(width, [=](int64_t j) { return (double)(dy[j] * n.scale[j]); });
        double sum_x = nn_sum_row<double>(width, [=](int64_t j) {
            return (double)(dy[j] * n.scale[j] * ((x[j] - middle) * rstd));
        });
        nn_real mean = (nn_real)(sum / (double)width), mean_x = (nn_real)(sum_x / (double)width);
        for (int64_t j = threadIdx.x; j < width; j += blockDim.x) {
            nn_real normal = (x[j] - middle) * rstd;
            nn_real gradient = rstd * (dy[j] * n.scale[j] - mean - normal * mean_x);
            g.dx[i * width + j] = g.residual ? g.residual[i * width + j] + gradient : gradient;
        }
    });
}
