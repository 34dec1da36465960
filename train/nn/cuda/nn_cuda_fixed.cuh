/* Private: sums in fixed point on a device. Threads add up their terms, and put them into a sum
 * that others add to as well: integers add in any order. A sum that leaves the range, or a part of
 * it, becomes NN_FIXED_BROKEN and stays so. */
#ifndef MIMO_NN_NN_CUDA_FIXED_CUH
#define MIMO_NN_NN_CUDA_FIXED_CUH

#include "train/nn/cuda/nn_cuda_columns.cuh"
#include "train/nn/cuda/nn_cuda_reduce.cuh"
#include "train/nn/ops/nn_fixed.h"

/* (double)sum stays below NN_FIXED_END in absolute value: doubles are 512 apart there. */
constexpr int64_t NN_FIXED_MOST = ((int64_t)1 << 62) - 257;

static __device__ inline bool nn_fixed_is_whole(int64_t sum)
{
    return (uint64_t)(sum + NN_FIXED_MOST) <= (uint64_t)(2 * NN_FIXED_MOST);
}

/* nn_fixed_sum of a float. A float times 2^40 is exact, or infinite. */
static __device__ inline int64_t nn_fixed_sum_float(int64_t sum, float x)
{
    float scaled = x * 0x1p40f;
    int64_t added = (int64_t)((uint64_t)sum + (uint64_t)__float2ll_rn(scaled));
    return fabsf(scaled) < 0x1p62f && nn_fixed_is_whole(added) ? added : NN_FIXED_BROKEN;
}

/* One sum of two. */
struct nn_fixed_plus {
    __device__ int64_t operator()(int64_t a, int64_t b) const
    {
        int64_t added = (int64_t)((uint64_t)a + (uint64_t)b);
        bool whole = nn_fixed_is_whole(a) && nn_fixed_is_whole(b);
        return whole && nn_fixed_is_whole(added) ? added : NN_FIXED_BROKEN;
    }
};

/* Add `part` to *to, which other threads add to as well. A thread that finds the sum out of the
 * range breaks it, also where others have added to it since. */
static __device__ inline void nn_fixed_add(int64_t *to, int64_t part)
{
    unsigned long long *shared = (unsigned long long *)to;
    if (part == 0)
        return;
    int64_t old = part == NN_FIXED_BROKEN ? NN_FIXED_BROKEN
                                          : (int64_t)atomicAdd(shared, (unsigned long long)part);
    if (nn_fixed_plus()(old, part) == NN_FIXED_BROKEN)
        atomicExch(shared, (unsigned long long)NN_FIXED_BROKEN);
}

/* The sum of term(t) over t in [begin, end), as nn_sum_slices: slice 0 gets each column's sum. */
template <typename Term> __device__ int64_t nn_fix_slices(int64_t begin, int64_t end, Term term)
{
    __shared__ int64_t parts[NN_SLICES][NN_WARP];
    int64_t sum = 0;
    for (int64_t t = begin + threadIdx.y; t < end; t += NN_SLICES)
        sum = nn_fixed_sum(sum, (double)term(t));
    __syncthreads(); /* wait until the parts of the last call are read */
    parts[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    for (int s = 1; threadIdx.y == 0 && s < NN_SLICES; s++)
        sum = nn_fixed_plus()(sum, parts[s][threadIdx.x]);
    return sum;
}

template <typename Term>
__global__ void nn_fixed_chunks_kernel(int64_t *sums, int64_t rows, int64_t width, Term term)
{
    int64_t j = (int64_t)blockIdx.x * NN_WARP + threadIdx.x, chunk = blockIdx.y;
    int64_t begin = rows * chunk / gridDim.y, end = rows * (chunk + 1) / gridDim.y;
    int64_t sum =
        nn_fix_slices(begin, end, [=](int64_t i) { return j < width ? term(i, j) : (nn_real)0; });
    if (threadIdx.y == 0 && j < width)
        nn_fixed_add(&sums[j], sum);
}

/* sums[j] += term(i, j), term by term, for i < rows, j < width. */
template <typename Term>
mimo_status nn_fix_columns(const nn_runtime *runtime, int64_t *sums, int64_t rows, int64_t width,
                           Term term)
{
    if (rows == 0 || width == 0)
        return MIMO_OK;
    int64_t wanted = (rows + NN_CHUNK_ROWS - 1) / NN_CHUNK_ROWS;
    int64_t chunks = wanted < NN_MOST_CHUNKS ? wanted : NN_MOST_CHUNKS;
    dim3 grid((unsigned)((width + NN_WARP - 1) / NN_WARP), (unsigned)chunks);
    nn_fixed_chunks_kernel<<<grid, dim3(NN_WARP, NN_SLICES), 0, (cudaStream_t)runtime->stream>>>(
        sums, rows, width, term);
    return nn_cuda_launched("sums of columns in fixed point");
}

#endif
