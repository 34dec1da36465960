/* Private: reductions over the threads of a block. Only the number of threads decides the order.
 * Every thread of the block calls them and gets the result. */
#ifndef MIMO_NN_NN_CUDA_REDUCE_CUH
#define MIMO_NN_NN_CUDA_REDUCE_CUH

#include "train/nn/cuda/nn_cuda_launch.cuh"

struct nn_plus {
    template <typename T> __device__ T operator()(T a, T b) const
    {
        return a + b;
    }
};

/* A NaN in b is never taken, as in nn_max on the host. */
struct nn_larger {
    template <typename T> __device__ T operator()(T a, T b) const
    {
        return b > a ? b : a;
    }
};

struct nn_smaller {
    template <typename T> __device__ T operator()(T a, T b) const
    {
        return b < a ? b : a;
    }
};

/* Over the threads of a warp, which all call it. */
template <typename T, typename Combine> __device__ T nn_reduce_warp(T x, Combine combine)
{
    for (unsigned distance = NN_WARP / 2; distance > 0; distance /= 2)
        x = combine(x, __shfl_xor_sync(0xffffffffu, x, distance));
    return x;
}

template <typename T, typename Combine> __device__ T nn_reduce_block(T x, Combine combine)
{
    __shared__ T parts[NN_THREADS / NN_WARP];
    unsigned lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
    x = nn_reduce_warp(x, combine);
    __syncthreads(); /* wait until the parts of the last call are read */
    if (lane == 0)
        parts[warp] = x;
    __syncthreads();
    x = parts[0];
    for (unsigned w = 1; w < blockDim.x / NN_WARP; w++)
        x = combine(x, parts[w]);
    return x;
}

/* The sum of term(j) over j < n. A thread takes every blockDim.x-th j. */
template <typename T, typename Term> __device__ T nn_sum_row(int64_t n, Term term)
{
    T sum = 0;
    for (int64_t j = threadIdx.x; j < n; j += blockDim.x)
        sum += term(j);
    return nn_reduce_block(sum, nn_plus());
}

/* The largest of x[j], j < n, and at least `least`. */
template <typename T> __device__ T nn_largest_of_row(const T *x, int64_t n, T least)
{
    for (int64_t j = threadIdx.x; j < n; j += blockDim.x)
        least = nn_larger()(least, x[j]);
    return nn_reduce_block(least, nn_larger());
}

#endif
