/* Operations on the elements of rows and arrays, one by one. */
#include <string.h>

#include "core/float16.h"
#include "train/nn/host/nn_host.h"
#include "train/nn/host/nn_math.h"
#include "train/nn/ops/nn_gelu.h"
#include "train/nn/ops/nn_groups.h"

mimo_status nn_host_copy_narrow(const nn_runtime *runtime, nn_real *to, const nn_real *from,
                                int64_t n, int blocks)
{
    (void)runtime, (void)blocks;
    if (n > 0)
        memcpy(to, from, (size_t)n * sizeof *to);
    return MIMO_OK;
}

mimo_status nn_host_add(const nn_runtime *runtime, nn_real *to, const nn_real *from, int64_t n)
{
    (void)runtime;
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
    return MIMO_OK;
}

mimo_status nn_host_add_bias(const nn_runtime *runtime, nn_real *y, const nn_real *bias,
                             int64_t rows, int64_t width)
{
    (void)runtime;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < width; j++)
            y[i * width + j] += bias[j];
    return MIMO_OK;
}

mimo_status nn_host_add_columns(const nn_runtime *runtime, nn_real *sums, const nn_real *x,
                                int64_t rows, int64_t width)
{
    (void)runtime;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < width; j++)
            sums[j] += x[i * width + j];
    return MIMO_OK;
}

mimo_status nn_host_gelu(const nn_runtime *runtime, nn_real *restrict y, nn_real *restrict gate,
                         const nn_real *restrict u, nn_rows rows, int64_t width)
{
    (void)runtime;
    int64_t n = nn_rows_filled(rows) * width;
    for (int64_t i = 0; i < n; i++) {
        nn_real s = 1 / (1 + nn_exp(nn_gelu_exponent(u[i])));
        gate[i] = s;
        y[i] = u[i] * s;
    }
    return MIMO_OK;
}

mimo_status nn_host_gelu_backward(const nn_runtime *runtime, nn_real *restrict d,
                                  const nn_real *restrict u, const nn_real *restrict gate,
                                  nn_rows rows, int64_t width)
{
    (void)runtime;
    int64_t n = nn_rows_filled(rows) * width;
    for (int64_t i = 0; i < n; i++)
        d[i] *= nn_gelu_slope(u[i], gate[i]);
    return MIMO_OK;
}

mimo_status nn_host_scale_rows(const nn_runtime *runtime, nn_real *y, const nn_real *x,
                               const nn_real *factors, nn_rows rows, int64_t width)
{
    (void)runtime;
    for (int64_t i = 0; i < nn_rows_filled(rows); i++)
        for (int64_t j = 0; j < width; j++)
            y[i * width + j] = x[i * width + j] * factors[i];
    return MIMO_OK;
}

mimo_status nn_host_row_dots(const nn_runtime *runtime, nn_real *dots, const nn_real *a,
                             const nn_real *b, nn_rows rows, int64_t width)
{
    (void)runtime;
    for (int64_t i = 0; i < nn_rows_filled(rows); i++)
        dots[i] += nn_dot(a + i * width, b + i * width, width);
    return MIMO_OK;
}

mimo_status nn_host_adamw(const nn_runtime *runtime, const nn_moments *moments,
                          const nn_adamw_factors *factors)
{
    (void)runtime;
    nn_adamw_factors s = *factors;
    nn_real *restrict value = moments->value, *restrict m = moments->m, *restrict v = moments->v;
    const nn_real *restrict grad = moments->grad;
    for (int64_t i = 0; i < moments->count; i++) {
        nn_real g = grad[i] * s.gradient;
        m[i] = s.beta1 * m[i] + s.rest1 * g;
        v[i] = s.beta2 * v[i] + s.rest2 * g * g;
        value[i] -= s.rate * m[i] / (nn_sqrt(v[i]) * s.root + s.epsilon) + s.decay * value[i];
    }
    return MIMO_OK;
}

mimo_status nn_host_to_bf16(const nn_runtime *runtime, uint16_t *to, const nn_real *from, int64_t n)
{
    (void)runtime;
    for (int64_t i = 0; i < n; i++)
        to[i] = mimo_bf16_from((float)from[i]);
    return MIMO_OK;
}

mimo_status nn_host_from_bf16(const nn_runtime *runtime, nn_real *to, const uint16_t *from,
                              int64_t n)
{
    (void)runtime;
    for (int64_t i = 0; i < n; i++)
        to[i] = (nn_real)mimo_bf16_to(from[i]);
    return MIMO_OK;
}
