/* Softmax of attention scores. A warp has a row in its registers; wider rows take a block each. */
#include "train/nn/cuda/nn_cuda_reduce.cuh"

constexpr int WARPS = NN_THREADS / NN_WARP, NARROW = 4, WIDE = 32; /* elements of a thread */

static __device__ bool is_masked(const nn_real *mask, int64_t j)
{
    return mask && !(mask[j] > 0);
}

static __device__ const nn_real *mask_of(const nn_scores &s, int64_t row)
{
    return s.mask ? s.mask + row % s.rows * s.width : nullptr;
}

/* --------------------------------------------- warps ------------------------------------------ */

/* body(k, j) for the elements j < width of this thread; k numbers them. */
template <int MOST, typename Body> static __device__ void for_own(int64_t width, Body body)
{
#pragma unroll
    for (int k = 0; k < MOST; k++)
        if (k * NN_WARP + threadIdx.x < width)
            body(k, k * NN_WARP + threadIdx.x);
}

template <int MOST> static __device__ void soften(const nn_scores &s, int64_t i)
{
    nn_real *row = s.data + i * s.width, most = (nn_real)-1e30, sum = 0, x[MOST];
    const nn_real *mask = mask_of(s, i);
    for_own<MOST>(s.width, [&](int k, int64_t j) { x[k] = row[j]; });
    for_own<MOST>(s.width, [&](int k, int64_t j) {
        if (!is_masked(mask, j))
            most = nn_larger()(most, x[k]);
    });
    most = nn_reduce_warp(most, nn_larger());
    for_own<MOST>(s.width, [&](int k, int64_t j) {
        x[k] = is_masked(mask, j) ? (nn_real)0 : exp(x[k] - most);
        sum += x[k];
    });
    const nn_real scale = 1 / nn_reduce_warp(sum, nn_plus());
    for_own<MOST>(s.width, [&](int k, int64_t j) { row[j] = x[k] * scale; });
}

template <int MOST>
static __device__ void soften_backward(nn_real *d, const nn_real *w, int64_t width)
{
    nn_real dx[MOST], wx[MOST], sum = 0;
    for_own<MOST>(width, [&](int k, int64_t j) {
        dx[k] = d[j];
        wx[k] = w[j];
        sum += dx[k] * wx[k];
    });
    const nn_real mean = nn_reduce_warp(sum, nn_plus());
    for_own<MOST>(width, [&](int k, int64_t j) { d[j] = wx[k] * (dx[k] - mean); });
}

template <typename Body> static __global__ void warps_kernel(int64_t rows, Body body)
{
    const int64_t step = (int64_t)gridDim.x * WARPS;
    await_stream();
    for (int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.y; i < rows; i += step)
        body(i);
}

/* Run body(i) for every row i, by a warp each. */
template <typename Body>
static mimo_status each_warp(const nn_runtime *runtime, const char *what, int64_t rows, Body body)
{
    if (rows == 0)
        return MIMO_OK;
    return nn_launch(runtime, what, warps_kernel<Body>, nn_blocks((rows + WARPS - 1) / WARPS),
                     dim3(NN_WARP, WARPS), rows, body);
}

template <int MOST> static mimo_status by_warps(const nn_runtime *runtime, const nn_scores &s)
{
    if constexpr (MOST < WIDE)
        if (s.width > MOST * NN_WARP)
            return by_warps<2 * MOST>(runtime, s);
    return each_warp(runtime, "softmax", s.panels * s.rows,
                     [=] __device__(int64_t i) { soften<MOST>(s, i); });
}

template <int MOST>
static mimo_status backward_by_warps(const nn_runtime *runtime, nn_real *d, const nn_real *w,
                                     int64_t rows, int64_t width)
{
    if constexpr (MOST < WIDE)
        if (width > MOST * NN_WARP)
            return backward_by_warps<2 * MOST>(runtime, d, w, rows, width);
    return each_warp(runtime, "softmax backward", rows, [=] __device__(int64_t i) {
        soften_backward<MOST>(d + i * width, w + i * width, width);
    });
}

/* -------------------------------------------- blocks ------------------------------------------ */

static mimo_status by_blocks(const nn_runtime *runtime, const nn_scores &s)
{
    int64_t width = s.width;
    return nn_each_row(runtime, "softmax", s.panels * s.rows, width, [=] __device__(int64_t i) {
        nn_real *row = s.data + i * width, most = (nn_real)-1e30;
        const nn_real *mask = mask_of(s, i);
        for (int64_t j = threadIdx.x; j < width; j += blockDim.x)
            if (!is_masked(mask, j))
                most = nn_larger()(most, row[j]);
        most = nn_reduce_block(most, nn_larger());
        nn_real sum = 0;
        for (int64_t j = threadIdx.x; j < width; j += blockDim.x) {
            row[j] = is_masked(mask, j) ? (nn_real)0 : exp(row[j] - most);
            sum += row[j];
        }
        nn_real scale = 1 / nn_reduce_block(sum, nn_plus());
        for (int64_t j = threadIdx.x; j < width; j += blockDim.x)
            row[j] *= scale;
    });
}

static mimo_status backward_by_blocks(const nn_runtime *runtime, nn_real *d, const nn_real *w,
                                      int64_t rows, int64_t width)
{
    return nn_each_row(runtime, "softmax backward", rows, width, [=] __device__(int64_t i) {
        nn_real *d_row = d + i * width;
        const nn_real *w_row = w + i * width;
        nn_real mean = nn_sum_row<nn_real>(width, [=](int64_t j) { return d_row[j] * w_row[j]; });
        for (int64_t j = threadIdx.x; j < width; j += blockDim.x)
            d_row[j] = w_row[j] * (d_row[j] - mean);
    });
}

mimo_status nn_cuda_softmax(const nn_runtime *runtime, const nn_scores *scores)
{
    return scores->width <= WIDE * NN_WARP ? by_warps<NARROW>(runtime, *scores)
                                           : by_blocks(runtime, *scores);
}

mimo_status nn_cuda_softmax_backward(const nn_runtime *runtime, nn_real *d, const nn_real *w,
                                     int64_t rows, int64_t width)
{
    return width <= WIDE * NN_WARP ? backward_by_warps<NARROW>(runtime, d, w, rows, width)
                                   : backward_by_blocks(runtime, d, w, rows, width);
}
