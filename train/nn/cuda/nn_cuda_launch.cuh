/* Private: launches. Most kernels are a loop over elements or over rows, which the blocks share. A
 * function of the index is the body of the loop. */
#ifndef MIMO_NN_NN_CUDA_LAUNCH_CUH
#define MIMO_NN_NN_CUDA_LAUNCH_CUH

#include "device/cuda_launch.cuh"
#include "train/nn/cuda/nn_cuda.h"
#include "train/nn/ops/nn_groups.h"

constexpr int NN_WARP = 32, NN_THREADS = 256, NN_MOST_BLOCKS = 1 << 16;

static inline unsigned nn_blocks(int64_t wanted)
{
    return (unsigned)(wanted < NN_MOST_BLOCKS ? wanted : NN_MOST_BLOCKS);
}

/* Whole warps that cover a row, at most a full block. Only the width decides. */
static inline unsigned nn_row_threads(int64_t width)
{
    int64_t warps = (width + NN_WARP - 1) / NN_WARP * NN_WARP;
    return (unsigned)(warps < NN_THREADS ? warps : NN_THREADS);
}

/* Launch a kernel that calls await_stream: a step of training has thousands, and most are short. */
template <typename... As>
mimo_status nn_launch(const nn_runtime *runtime, const char *what, void (*kernel)(As...),
                      dim3 blocks, dim3 threads, const As &...as)
{
    (void)launch_early(kernel, blocks, threads, 0, (cudaStream_t)runtime->stream, as...);
    return nn_cuda_launched(what);
}

template <typename Body> __global__ void nn_elements_kernel(nn_rows rows, int64_t width, Body body)
{
    await_stream();
    int64_t n = nn_rows_filled(rows) * width, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        body(i);
}

/* Run body(i) for every element of the rows that are there. The launch is for `most` of them. */
template <typename Body>
mimo_status nn_each_filled_element(const nn_runtime *runtime, const char *what, nn_rows rows,
                                   int64_t width, Body body)
{
    if (rows.most == 0 || width == 0)
        return MIMO_OK;
    int64_t wanted = (rows.most * width + NN_THREADS - 1) / NN_THREADS;
    return nn_launch(runtime, what, nn_elements_kernel<Body>, nn_blocks(wanted), NN_THREADS, rows,
                     width, body);
}

/* Run body(i) for every i < n. */
template <typename Body>
mimo_status nn_each_element(const nn_runtime *runtime, const char *what, int64_t n, Body body)
{
    return nn_each_filled_element(runtime, what, nn_rows{n, NULL}, 1, body);
}

template <typename Body> __global__ void nn_rows_kernel(nn_rows rows, Body body)
{
    await_stream();
    int64_t n = nn_rows_filled(rows);
    for (int64_t i = blockIdx.x; i < n; i += gridDim.x)
        body(i);
}

/* Run body(i) for every row i that is there. All threads of one block run it together. `width`
 * decides how many threads a block has. The launch is for `most` rows. */
template <typename Body>
mimo_status nn_each_filled_row(const nn_runtime *runtime, const char *what, nn_rows rows,
                               int64_t width, Body body)
{
    if (rows.most == 0 || width == 0)
        return MIMO_OK;
    return nn_launch(runtime, what, nn_rows_kernel<Body>, nn_blocks(rows.most),
                     nn_row_threads(width), rows, body);
}

/* The same for every row i < rows. */
template <typename Body>
mimo_status nn_each_row(const nn_runtime *runtime, const char *what, int64_t rows, int64_t width,
                        Body body)
{
    return nn_each_filled_row(runtime, what, nn_rows{rows, NULL}, width, body);
}

#endif
