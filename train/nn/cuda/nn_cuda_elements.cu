/* Operations on the elements of rows and arrays, one by one. */
#include <cuda_bf16.h>

#include "core/divisor.h"
#include "train/nn/cuda/nn_cuda_columns.cuh"
#include "train/nn/cuda/nn_cuda_reduce.cuh"
#include "train/nn/ops/nn_gelu.h"

/* Enough bytes in flight for a few thread blocks to fill a link. */
enum { COPY_THREADS = 1024, COPY_WORDS = 4 };

template <class Word>
static __global__ void __launch_bounds__(COPY_THREADS)
    copy_words(Word *to, const Word *from, int64_t n)
{
    const int64_t step = (int64_t)gridDim.x * COPY_THREADS;
    await_stream();
    for (int64_t first = (int64_t)blockIdx.x * COPY_THREADS + threadIdx.x; first < n;
         first += COPY_WORDS * step) {
        Word words[COPY_WORDS];
#pragma unroll
        for (int u = 0; u < COPY_WORDS; u++)
            if (first + u * step < n)
                words[u] = from[first + u * step];
#pragma unroll
        for (int u = 0; u < COPY_WORDS; u++)
            if (first + u * step < n)
                to[first + u * step] = words[u];
    }
}

mimo_status nn_cuda_copy_narrow(const nn_runtime *runtime, nn_real *to, const nn_real *from,
                                int64_t n, int blocks)
{
    const int64_t bytes = n * (int64_t)sizeof *to;
    if (n == 0)
        return MIMO_OK;
    if ((((uintptr_t)to | (uintptr_t)from | (uintptr_t)bytes) & 15) != 0)
        return nn_launch(runtime, "copy", copy_words<nn_real>, blocks, COPY_THREADS, to, from, n);
    return nn_launch(runtime, "copy", copy_words<uint4>, blocks, COPY_THREADS,
                     reinterpret_cast<uint4 *>(to), reinterpret_cast<const uint4 *>(from),
                     bytes / 16);
}

mimo_status nn_cuda_add(const nn_runtime *runtime, nn_real *to, const nn_real *from, int64_t n)
{
    return nn_each_element(runtime, "add", n, [=] __device__(int64_t i) { to[i] += from[i]; });
}

mimo_status nn_cuda_add_bias(const nn_runtime *runtime, nn_real *y, const nn_real *bias,
                             int64_t rows, int64_t width)
{
    return nn_each_row(runtime, "add bias", rows, width, [=] __device__(int64_t i) {
        for (int64_t j = threadIdx.x; j < width; j += blockDim.x)
            y[i * width + j] += bias[j];
    });
}

mimo_status nn_cuda_add_columns(const nn_runtime *runtime, nn_real *sums, const nn_real *x,
                                int64_t rows, int64_t width)
{
    return nn_sum_columns(runtime, sums, rows, width,
                          [=] __device__(int64_t i, int64_t j) { return x[i * width + j]; });
}

mimo_status nn_cuda_gelu(const nn_runtime *runtime, nn_real *y, nn_real *gate, const nn_real *u,
                         nn_rows rows, int64_t width)
{
    return nn_each_filled_element(runtime, "gelu", rows, width, [=] __device__(int64_t i) {
        nn_real s = 1 / (1 + exp(nn_gelu_exponent(u[i])));
        gate[i] = s;
        y[i] = u[i] * s;
    });
}

mimo_status nn_cuda_gelu_backward(const nn_runtime *runtime, nn_real *d, const nn_real *u,
                                  const nn_real *gate, nn_rows rows, int64_t width)
{
    return nn_each_filled_element(runtime, "gelu backward", rows, width, [=] __device__(int64_t i) {
        d[i] *= nn_gelu_slope(u[i], gate[i]);
    });
}

mimo_status nn_cuda_scale_rows(const nn_runtime *runtime, nn_real *y, const nn_real *x,
                               const nn_real *factors, nn_rows rows, int64_t width)
{
    return nn_each_filled_row(runtime, "scale rows", rows, width, [=] __device__(int64_t i) {
        for (int64_t j = threadIdx.x; j < width; j += blockDim.x)
            y[i * width + j] = x[i * width + j] * factors[i];
    });
}

mimo_status nn_cuda_row_dots(const nn_runtime *runtime, nn_real *dots, const nn_real *a,
                             const nn_real *b, nn_rows rows, int64_t width)
{
    return nn_each_filled_row(runtime, "row dots", rows, width, [=] __device__(int64_t i) {
        nn_real dot = nn_sum_row<nn_real>(
            width, [=](int64_t j) { return a[i * width + j] * b[i * width + j]; });
        if (threadIdx.x == 0)
            dots[i] += dot;
    });
}

mimo_status nn_cuda_adamw(const nn_runtime *runtime, const nn_moments *moments,
                          const nn_adamw_factors *factors)
{
    nn_moments p = *moments;
    nn_adamw_factors s = *factors;
    return nn_each_element(runtime, "adamw", p.count, [=] __device__(int64_t i) {
        nn_real g = p.grad[i] * s.gradient;
        nn_real m = p.m[i] = s.beta1 * p.m[i] + s.rest1 * g;
        nn_real v = p.v[i] = s.beta2 * p.v[i] + s.rest2 * g * g;
        p.value[i] -= s.rate * m / (sqrt(v) * s.root + s.epsilon) + s.decay * p.value[i];
    });
}

static __device__ uint16_t to_bf16(nn_real x)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn((float)x));
}

mimo_status nn_cuda_to_bf16(const nn_runtime *runtime, uint16_t *to, const nn_real *from, int64_t n)
{
    return nn_each_element(runtime, "to bf16", n,
                           [=] __device__(int64_t i) { to[i] = to_bf16(from[i]); });
}

mimo_status nn_cuda_from_bf16(const nn_runtime *runtime, nn_real *to, const uint16_t *from,
                              int64_t n)
{
    return nn_each_element(runtime, "from bf16", n, [=] __device__(int64_t i) {
        to[i] = (nn_real)__bfloat162float(__ushort_as_bfloat16(from[i]));
    });
}

/* What a thread packs at a time: whole words of 16 bytes. */
constexpr int EIGHT = 8, WORD = 16;
struct alignas(WORD) eight_reals {
    nn_real x[EIGHT];
};
struct alignas(WORD) eight_halves {
    uint16_t x[EIGHT];
};

/* Whether there are lines, and every line of every matrix is whole eights, and aligned. mimo_divide
 * takes numbers below 2^31. */
static bool is_eights(const nn_matrix *a, int64_t line, int64_t elements)
{
    const int64_t word = WORD / (int64_t)sizeof(nn_real);
    return elements > 0 && line % EIGHT == 0 && elements / EIGHT <= INT32_MAX &&
           a->stride % word == 0 && a->step % word == 0 && (uintptr_t)a->data % WORD == 0;
}

/* Lines of attention are short. A thread block for each would take longer to begin than to pack. */
static mimo_status pack_eights(const nn_runtime *runtime, uint16_t *to, const nn_matrix &a,
                               int64_t lines, int64_t line, int64_t count)
{
    const mimo_divisor by_line = mimo_divisor_of((uint32_t)(line / EIGHT));
    const mimo_divisor by_matrix = mimo_divisor_of((uint32_t)lines);
    const nn_real *data = a.data;
    const int64_t step = a.step, stride = a.stride;
    return nn_each_element(
        runtime, "pack bf16", lines * line * count / EIGHT, [=] __device__(int64_t t) {
            const uint32_t i = mimo_divide((uint32_t)t, by_line);
            const uint32_t matrix = mimo_divide(i, by_matrix);
            const nn_real *source =
                data + matrix * step + (i - matrix * lines) * stride + t * EIGHT - i * line;
            const eight_reals in = *(const eight_reals *)source;
            eight_halves out;
            for (int k = 0; k < EIGHT; k++)
                out.x[k] = to_bf16(in.x[k]);
            ((eight_halves *)to)[t] = out;
        });
}

mimo_status nn_cuda_pack_bf16(const nn_runtime *runtime, uint16_t *to, const nn_matrix *from,
                              int64_t count)
{
    nn_matrix a = *from;
    int64_t lines = a.transposed ? a.columns : a.rows, line = a.transposed ? a.rows : a.columns;
    if (is_eights(&a, line, lines * line * count))
        return pack_eights(runtime, to, a, lines, line, count);
    return nn_each_row(runtime, "pack bf16", lines * count, line, [=] __device__(int64_t i) {
        const nn_real *source = a.data + i / lines * a.step + i % lines * a.stride;
        for (int64_t j = threadIdx.x; j < line; j += blockDim.x)
            to[i * line + j] = to_bf16(source[j]);
    });
}
