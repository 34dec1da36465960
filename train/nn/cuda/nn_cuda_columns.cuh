/* Private: sums of the columns of rows. Blocks write the sums of chunks of rows into a workspace.
 * The block that comes last adds up the sums of all chunks. The sizes alone decide the chunks, and
 * the order in which numbers are added. */
#ifndef MIMO_NN_NN_CUDA_COLUMNS_CUH
#define MIMO_NN_NN_CUDA_COLUMNS_CUH

#include "core/check.h"
#include "train/nn/cuda/nn_cuda_launch.cuh"

constexpr int NN_SLICES = NN_THREADS / NN_WARP, NN_CHUNK_ROWS = 64, NN_MOST_CHUNKS = 64;

/* The sum over t in [begin, end) of term(t). A block has 32 columns and eight slices of threads; a
 * slice takes every eighth t. All threads of a block call it. Slice 0 gets each column's sum. */
template <typename Term> __device__ nn_real nn_sum_slices(int64_t begin, int64_t end, Term term)
{
    __shared__ nn_real parts[NN_SLICES][NN_WARP];
    nn_real sum = 0;
    for (int64_t t = begin + threadIdx.y; t < end; t += NN_SLICES)
        sum += term(t);
    __syncthreads(); /* wait until the parts of the last call are read */
    parts[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = 0;
    for (int s = 0; s < NN_SLICES; s++)
        sum += parts[s][threadIdx.x];
    return sum;
}

/* Where chunks meet. `arrived` counts the chunks of each 32 columns that have their sums; it is 0
 * before and after a kernel. */
struct nn_chunk_sums {
    nn_real *partial; /* [chunks][width] */
    unsigned *arrived;
};

/* Whether all chunks have their sums, of which slice 0 has written those of this one. Called by a
 * block. */
static __device__ inline bool nn_is_last_chunk(unsigned *arrived)
{
    __shared__ bool last;
    if (threadIdx.y == 0) {
        __threadfence();
        __syncwarp();
    }
    if (threadIdx.y == 0 && threadIdx.x == 0) {
        last = atomicAdd(arrived, 1) == gridDim.y - 1;
        if (last)
            *arrived = 0;
        __threadfence();
    }
    __syncthreads();
    return last;
}

template <typename Term>
__global__ void nn_chunks_kernel(nn_real *sums, nn_chunk_sums chunks, int64_t rows, int64_t width,
                                 Term term)
{
    int64_t j = (int64_t)blockIdx.x * NN_WARP + threadIdx.x, chunk = blockIdx.y;
    int64_t begin = rows * chunk / gridDim.y, end = rows * (chunk + 1) / gridDim.y;
    await_stream();
    nn_real sum = nn_sum_slices(begin, end, [=](int64_t i) { return j < width ? term(i, j) : 0; });
    if (threadIdx.y == 0 && j < width)
        chunks.partial[chunk * width + j] = sum;
    if (!nn_is_last_chunk(&chunks.arrived[blockIdx.x]))
        return;
    /* Not what this multiprocessor has cached. */
    sum = nn_sum_slices(0, gridDim.y, [=](int64_t c) {
        return j < width ? __ldcg(&chunks.partial[c * width + j]) : 0;
    });
    if (threadIdx.y == 0 && j < width)
        sums[j] += sum;
}

/* Room for the sums of chunks, and counts that are 0. */
static inline mimo_status nn_reserve_chunks(nn_chunk_sums *out, const nn_runtime *runtime,
                                            int64_t chunks, int64_t width, int64_t blocks)
{
    nn_cuda *context = nn_cuda_of(runtime);
    int64_t bytes = blocks * (int64_t)sizeof(unsigned);
    bool grows = bytes > context->arrived.bytes;
    MIMO_TRY(nn_cuda_grow(runtime, &context->columns, chunks * width * (int64_t)sizeof(nn_real)));
    MIMO_TRY(nn_cuda_grow(runtime, &context->arrived, bytes));
    out->partial = (nn_real *)context->columns.data;
    out->arrived = (unsigned *)context->arrived.data;
    if (grows)
        (void)cudaMemsetAsync(out->arrived, 0, (size_t)bytes, (cudaStream_t)runtime->stream);
    return nn_cuda_launched("counts of chunks");
}

/* sums[j] += the sum of term(i, j) over i < rows, for j < width. */
template <typename Term>
mimo_status nn_sum_columns(const nn_runtime *runtime, nn_real *sums, int64_t rows, int64_t width,
                           Term term)
{
    if (rows == 0 || width == 0)
        return MIMO_OK;
    int64_t wanted = (rows + NN_CHUNK_ROWS - 1) / NN_CHUNK_ROWS;
    int64_t chunks = wanted < NN_MOST_CHUNKS ? wanted : NN_MOST_CHUNKS;
    dim3 grid((unsigned)((width + NN_WARP - 1) / NN_WARP), (unsigned)chunks);
    nn_chunk_sums meet;
    MIMO_TRY(nn_reserve_chunks(&meet, runtime, chunks, width, grid.x));
    return nn_launch(runtime, "sums of columns", nn_chunks_kernel<Term>, grid,
                     dim3(NN_WARP, NN_SLICES), sums, meet, rows, width, term);
}

#endif
