/* Private: sums of the columns of rows, in two steps without atomics. First, blocks write the sums
 * of chunks of rows into a workspace. Then the sums of the chunks are added in order. Only the
 * sizes decide the chunks. */
#ifndef MIMO_NN_NN_CUDA_COLUMNS_CUH
#define MIMO_NN_NN_CUDA_COLUMNS_CUH

#include "core/check.h"
#include "nn/cuda/nn_cuda_launch.cuh"

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

template <typename Term>
__global__ void nn_chunks_kernel(nn_real *partial, int64_t rows, int64_t width, Term term)
{
    int64_t j = (int64_t)blockIdx.x * NN_WARP + threadIdx.x, chunk = blockIdx.y;
    int64_t begin = rows * chunk / gridDim.y, end = rows * (chunk + 1) / gridDim.y;
    nn_real sum = nn_sum_slices(begin, end, [=](int64_t i) { return j < width ? term(i, j) : 0; });
    if (threadIdx.y == 0 && j < width)
        partial[chunk * width + j] = sum;
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
    nn_cuda_room *room = &nn_cuda_of(runtime)->columns;
    MIMO_TRY(nn_cuda_grow(runtime, room, chunks * width * (int64_t)sizeof *sums));
    nn_real *partial = (nn_real *)room->data;
    dim3 grid((unsigned)((width + NN_WARP - 1) / NN_WARP), (unsigned)chunks);
    nn_chunks_kernel<<<grid, dim3(NN_WARP, NN_SLICES), 0, (cudaStream_t)runtime->stream>>>(
        partial, rows, width, term);
    MIMO_TRY(nn_cuda_launched("sums of columns"));
    return nn_each_element(runtime, "sums of columns", width, [=] __device__(int64_t j) {
        nn_real sum = 0;
        for (int64_t chunk = 0; chunk < chunks; chunk++)
            sum += partial[chunk * width + j];
        sums[j] += sum;
    });
}

#endif
