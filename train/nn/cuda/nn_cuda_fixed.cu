/* The sums of the fixed order: fixed point, trees, and the squares of the norm. */
#include "train/nn/cuda/nn_cuda_fixed.cuh"

#include "train/nn/ops/nn_order.h"

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

constexpr int NN_SQUARE_CHUNK = 32 * NN_THREADS; /* elements that a block adds */

/* The sum of term(i) over i < n, by the threads of a block: thread t has every NN_THREADS-th. The
 * result is thread 0's. */
template <typename Term> static __device__ double sum_of_block(int64_t n, Term term)
{
    double sum = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < n; i += NN_THREADS)
        sum += term(i);
    return nn_reduce_block(sum, nn_plus());
}

/* Block (b, i) has the elements [b, b + 1) * NN_SQUARE_CHUNK of matrix i, row-major. */
static __global__ void chunk_squares(double *parts, nn_matrix x)
{
    int64_t first = (int64_t)blockIdx.x * NN_SQUARE_CHUNK, rest = x.rows * x.columns - first;
    uint32_t columns = (uint32_t)x.columns; /* sizes fit an int, and so do rows and columns */
    const nn_real *from = x.data + blockIdx.y * x.step + first / columns * x.stride;
    uint32_t column = (uint32_t)(first % columns);
    double sum = sum_of_block(rest < NN_SQUARE_CHUNK ? rest : NN_SQUARE_CHUNK, [=](int64_t i) {
        uint32_t at = column + (uint32_t)i;
        double value = (double)from[at / columns * x.stride + at % columns];
        return value * value;
    });
    if (threadIdx.x == 0)
        parts[blockIdx.y * (int64_t)gridDim.x + blockIdx.x] = sum;
}

static __global__ void add_chunks(double *sums, const double *parts, int64_t n)
{
    double all = sum_of_block(n, [=](int64_t i) { return parts[blockIdx.x * n + i]; });
    if (threadIdx.x == 0)
        sums[blockIdx.x] = all;
}

mimo_status nn_cuda_block_squares(const nn_runtime *runtime, double *sums, const nn_matrix *x,
                                  int64_t count)
{
    int64_t n = x->rows * x->columns, chunks = (n + NN_SQUARE_CHUNK - 1) / NN_SQUARE_CHUNK;
    nn_cuda_room *room = &nn_cuda_of(runtime)->columns;
    cudaStream_t stream = (cudaStream_t)runtime->stream;
    if (count == 0)
        return MIMO_OK;
    MIMO_TRY(nn_cuda_grow(runtime, room, (chunks * count + 1) * (int64_t)sizeof(double)));
    double *parts = (double *)room->data;
    if (chunks > 0)
        chunk_squares<<<dim3((unsigned)chunks, (unsigned)count), NN_THREADS, 0, stream>>>(parts,
                                                                                          *x);
    MIMO_TRY(nn_cuda_launched("block squares"));
    add_chunks<<<(unsigned)count, NN_THREADS, 0, stream>>>(sums, parts, chunks);
    return nn_cuda_launched("block squares");
}

mimo_status nn_cuda_plain_zeros(const nn_runtime *runtime, nn_real *x, int64_t n)
{
    return nn_each_element(runtime, "plain zeros", n, [=] __device__(int64_t i) {
        if (x[i] == 0)
            x[i] = 0;
    });
}
