/* The sums of the fixed order: fixed point, trees, and the squares of the norm. */
#include "nn/cuda/nn_cuda_fixed.cuh"

#include "nn/nn_order.h"

mimo_status nn_cuda_add_columns_fixed(const nn_runtime *runtime, int64_t *sums, const nn_real *x,
                                      int64_t rows, int64_t width)
{
    return nn_fix_columns(runtime, sums, rows, width,
                          [=] __device__(int64_t i, int64_t j) { return x[i * width + j]; });
}

/* As entry_gradients of nn_cuda_lookup.cu. No other block has the same entry and columns. */
static __global__ void fixed_entries(int64_t *sums, const nn_real *dy, nn_lookup l, nn_uses uses)
{
    int64_t j = (int64_t)blockIdx.y * NN_WARP + threadIdx.x;
    for (int64_t k = blockIdx.x; k < uses.count; k += gridDim.x) {
        int64_t begin = uses.begin[k] * l.repeat, end = uses.begin[k + 1] * l.repeat;
        int64_t sum = nn_fix_slices(begin, end, [=](int64_t t) {
            int64_t row = uses.order[t / l.repeat] * l.repeat + t % l.repeat;
            return j < l.width ? dy[row * l.width + j] : (nn_real)0;
        });
        if (threadIdx.y == 0 && j < l.width)
            nn_fixed_add(&sums[uses.entry[k] * l.width + j], sum);
    }
}

mimo_status nn_cuda_lookup_backward_fixed(const nn_runtime *runtime, int64_t *sums,
                                          const nn_real *dy, const nn_lookup *lookup,
                                          const nn_uses *uses)
{
    if (uses->count == 0 || lookup->width == 0)
        return MIMO_OK;
    dim3 grid(nn_blocks(uses->count), (unsigned)((lookup->width + NN_WARP - 1) / NN_WARP));
    fixed_entries<<<grid, dim3(NN_WARP, NN_SLICES), 0, (cudaStream_t)runtime->stream>>>(
        sums, dy, *lookup, *uses);
    return nn_cuda_launched("lookup backward in fixed point");
}

/* A thread has all parts of its elements. Equal subtrees meet on a stack. */
mimo_status nn_cuda_tree(const nn_runtime *runtime, nn_real *to, nn_real *parts, int64_t count,
                         int64_t n)
{
    constexpr int most_depth = 7; /* log2(NN_MOST_PARTS) + 1 */
    static_assert(NN_MOST_PARTS == 1 << (most_depth - 1), "the stack of a tree");
    return nn_each_element(runtime, "tree", n, [=] __device__(int64_t i) {
        nn_real stack[most_depth];
        int depth = 0;
        for (int64_t p = 0; p < count; p++) {
            nn_real sum = parts[p * n + i];
            for (int64_t number = p + 1; number % 2 == 0; number /= 2)
                sum = stack[--depth] + sum;
            stack[depth++] = sum;
        }
        to[i] = stack[0];
    });
}

/* Doubles that are not negative are ordered as their bits. */
static __global__ void fixed_largest(unsigned long long *most, const int64_t *sums, int64_t n)
{
    double largest = 0;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        largest = nn_larger()(largest, fabs((double)sums[i]));
    largest = nn_reduce_block(largest, nn_larger());
    if (threadIdx.x == 0)
        atomicMax(most, (unsigned long long)__double_as_longlong(largest));
}

mimo_status nn_cuda_fixed_largest(const nn_runtime *runtime, double *most, const int64_t *sums,
                                  int64_t n)
{
    constexpr int64_t most_blocks = 1024;
    MIMO_TRY(nn_each_element(runtime, "fixed largest", 1, [=] __device__(int64_t) { *most = 0; }));
    if (n == 0)
        return MIMO_OK;
    int64_t wanted = (n + NN_THREADS - 1) / NN_THREADS;
    fixed_largest<<<nn_blocks(wanted < most_blocks ? wanted : most_blocks), NN_THREADS, 0,
                    (cudaStream_t)runtime->stream>>>((unsigned long long *)most, sums, n);
    return nn_cuda_launched("fixed largest");
}

constexpr int NN_SETTLE_FIRST = 1024;

static __global__ void settle_first(int64_t *sums, int64_t n, double factor)
{
    int64_t i = threadIdx.x, sum = i < n ? sums[i] : 0;
    __syncthreads(); /* all are read before one is written */
    if (i < n)
        ((nn_real *)sums)[i] = (nn_real)((double)sum * factor);
}

/* Elements [m, 2 m) are written over the sums [m / 2, m), which launches before have read. */
mimo_status nn_cuda_settle(const nn_runtime *runtime, int64_t *sums, int64_t n, double factor)
{
    nn_real *to = (nn_real *)sums;
    if (n == 0)
        return MIMO_OK;
    settle_first<<<1, NN_SETTLE_FIRST, 0, (cudaStream_t)runtime->stream>>>(sums, n, factor);
    MIMO_TRY(nn_cuda_launched("settle"));
    for (int64_t m = NN_SETTLE_FIRST; m < n; m *= 2)
        MIMO_TRY(
            nn_each_element(runtime, "settle", n - m < m ? n - m : m, [=] __device__(int64_t i) {
                double sum = (double)sums[m + i];
                to[m + i] = (nn_real)(sum * factor);
            }));
    return MIMO_OK;
}

constexpr int NN_SQUARE_LANES = NN_THREADS, NN_SQUARES_AT_ONCE = 16;

/* One block. A thread is a lane; it reads several elements ahead, and adds them in order. */
static __global__ void block_squares(double *sum, nn_matrix x)
{
    __shared__ double lanes[NN_SQUARE_LANES];
    int64_t n = x.rows * x.columns;
    double lane = 0;
    for (int64_t i = threadIdx.x; i < n; i += NN_SQUARES_AT_ONCE * NN_SQUARE_LANES) {
        double value[NN_SQUARES_AT_ONCE];
#pragma unroll
        for (int e = 0; e < NN_SQUARES_AT_ONCE; e++) {
            int64_t at = i + e * NN_SQUARE_LANES;
            value[e] = at < n ? (double)x.data[at / x.columns * x.stride + at % x.columns] : 0;
        }
#pragma unroll
        for (int e = 0; e < NN_SQUARES_AT_ONCE; e++)
            lane += value[e] * value[e]; /* beyond the end it adds 0, which changes nothing */
    }
    lanes[threadIdx.x] = lane;
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    double all = 0;
    for (int l = 0; l < NN_SQUARE_LANES; l++)
        all += lanes[l];
    *sum = all;
}

mimo_status nn_cuda_block_squares(const nn_runtime *runtime, double *sum, const nn_matrix *x)
{
    block_squares<<<1, NN_SQUARE_LANES, 0, (cudaStream_t)runtime->stream>>>(sum, *x);
    return nn_cuda_launched("block squares");
}

mimo_status nn_cuda_plain_zeros(const nn_runtime *runtime, nn_real *x, int64_t n)
{
    return nn_each_element(runtime, "plain zeros", n, [=] __device__(int64_t i) {
        if (x[i] == 0)
            x[i] = 0;
    });
}
