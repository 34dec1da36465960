/* Arithmetic on numbers in CUDA memory: scaling, sums, and widening of 16-bit floats. */
#include <algorithm>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "device/cuda_kernels.h"

namespace
{

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 4096;

// The type that a dtype is computed in: 16-bit floats in f32, integers as unsigned ones, whose
// overflow wraps.
__device__ float load(const float *x)
{
    return *x;
}
__device__ double load(const double *x)
{
    return *x;
}
__device__ float load(const __half *x)
{
    return __half2float(*x);
}
__device__ float load(const __nv_bfloat16 *x)
{
    return __bfloat162float(*x);
}
__device__ uint32_t load(const uint32_t *x)
{
    return *x;
}
__device__ uint64_t load(const uint64_t *x)
{
    return *x;
}
template <class T> __device__ void store(T *x, T value)
{
    *x = value;
}
__device__ void store(__half *x, float value)
{
    *x = __float2half_rn(value);
}
__device__ void store(__nv_bfloat16 *x, float value)
{
    *x = __float2bfloat16_rn(value);
}

template <class T> __global__ void scale(T *data, int64_t count, double factor)
{
    auto narrow = (decltype(load(data)))factor;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x)
        store(data + i, load(data + i) * narrow);
}

// A row of thread blocks takes every gridDim.y-th stretch.
template <class T> __global__ void accumulate(mimo_addends addends)
{
    for (int64_t s = blockIdx.y; s < addends.stretches; s += gridDim.y) {
        T *data = (T *)addends.data + s * addends.pitch;
        const T *term = (const T *)addends.terms + s * addends.pitch;
        for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < addends.count;
             i += (int64_t)gridDim.x * blockDim.x) {
            auto sum = load(data + i);
            for (int64_t p = 0; p < addends.n; p++)
                sum += load(term + p * addends.step + i);
            store(data + i, sum);
        }
    }
}

template <class To, class From> __global__ void convert(To *to, const From *from, int64_t count)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x)
        store(to + i, load(from + i));
}

// Sum over the block, in a tree whose shape is fixed; thread 0 has it.
__device__ double block_sum(double mine)
{
    __shared__ double sums[kThreads];
    sums[threadIdx.x] = mine;
    for (int half = kThreads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    return sums[0];
}

template <class T> __global__ void square_sums(double *partial, const T *data, int64_t count)
{
    double sum = 0;
    for (int64_t i = blockIdx.x * (int64_t)kThreads + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * kThreads) {
        double x = (double)load(data + i);
        sum += x * x;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

__global__ void total(double *partial, int n)
{
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += kThreads)
        sum += partial[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[0] = sum;
}

unsigned blocks_for(int64_t count, int64_t most)
{
    return (unsigned)std::min((count + kThreads - 1) / kThreads, most);
}

} // namespace

cudaError_t mimo_cuda_scale(void *data, int64_t count, mimo_dtype dtype, double factor,
                            cudaStream_t stream)
{
    unsigned blocks = blocks_for(count, kMostBlocks);
    switch (dtype) {
    case MIMO_F32:
        scale<<<blocks, kThreads, 0, stream>>>((float *)data, count, factor);
        break;
    case MIMO_F64:
        scale<<<blocks, kThreads, 0, stream>>>((double *)data, count, factor);
        break;
    case MIMO_F16:
        scale<<<blocks, kThreads, 0, stream>>>((__half *)data, count, factor);
        break;
    case MIMO_BF16:
        scale<<<blocks, kThreads, 0, stream>>>((__nv_bfloat16 *)data, count, factor);
        break;
    case MIMO_I32:
    case MIMO_I64:
    case MIMO_F8:
        return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}

template <class T>
static cudaError_t accumulate_as(const mimo_addends *addends, cudaStream_t stream)
{
    unsigned wide = blocks_for(addends->count, kMostBlocks);
    dim3 blocks(wide, (unsigned)std::min(addends->stretches, kMostBlocks / wide));
    accumulate<T><<<blocks, kThreads, 0, stream>>>(*addends);
    return cudaGetLastError();
}

cudaError_t mimo_cuda_accumulate(const mimo_addends *addends, cudaStream_t stream)
{
    switch (addends->dtype) {
    case MIMO_F32:
        return accumulate_as<float>(addends, stream);
    case MIMO_F64:
        return accumulate_as<double>(addends, stream);
    case MIMO_F16:
        return accumulate_as<__half>(addends, stream);
    case MIMO_BF16:
        return accumulate_as<__nv_bfloat16>(addends, stream);
    case MIMO_I32:
        return accumulate_as<uint32_t>(addends, stream);
    case MIMO_I64:
        return accumulate_as<uint64_t>(addends, stream);
    case MIMO_F8:
        break;
    }
    return cudaErrorInvalidValue;
}

cudaError_t mimo_cuda_sum_squares(double *partials, const void *data, int64_t count,
                                  mimo_dtype dtype, cudaStream_t stream)
{
    unsigned blocks = blocks_for(count, MIMO_CUDA_PARTIALS);
    switch (dtype) {
    case MIMO_F32:
        square_sums<<<blocks, kThreads, 0, stream>>>(partials, (const float *)data, count);
        break;
    case MIMO_F64:
        square_sums<<<blocks, kThreads, 0, stream>>>(partials, (const double *)data, count);
        break;
    case MIMO_F16:
        square_sums<<<blocks, kThreads, 0, stream>>>(partials, (const __half *)data, count);
        break;
    case MIMO_BF16:
        square_sums<<<blocks, kThreads, 0, stream>>>(partials, (const __nv_bfloat16 *)data, count);
        break;
    case MIMO_I32:
    case MIMO_I64:
    case MIMO_F8:
        return cudaErrorInvalidValue;
    }
    total<<<1, kThreads, 0, stream>>>(partials, (int)blocks);
    return cudaGetLastError();
}

cudaError_t mimo_cuda_widen(float *to, const void *from, int64_t count, mimo_dtype dtype,
                            cudaStream_t stream)
{
    unsigned blocks = blocks_for(count, kMostBlocks);
    switch (dtype) {
    case MIMO_F16:
        convert<<<blocks, kThreads, 0, stream>>>(to, (const __half *)from, count);
        return cudaGetLastError();
    case MIMO_BF16:
        convert<<<blocks, kThreads, 0, stream>>>(to, (const __nv_bfloat16 *)from, count);
        return cudaGetLastError();
    case MIMO_F32:
    case MIMO_F64:
    case MIMO_I32:
    case MIMO_I64:
    case MIMO_F8:
        break;
    }
    return cudaErrorInvalidValue;
}

cudaError_t mimo_cuda_narrow(void *to, const float *from, int64_t count, mimo_dtype dtype,
                             cudaStream_t stream)
{
    unsigned blocks = blocks_for(count, kMostBlocks);
    switch (dtype) {
    case MIMO_F16:
        convert<<<blocks, kThreads, 0, stream>>>((__half *)to, from, count);
        return cudaGetLastError();
    case MIMO_BF16:
        convert<<<blocks, kThreads, 0, stream>>>((__nv_bfloat16 *)to, from, count);
        return cudaGetLastError();
    case MIMO_F32:
    case MIMO_F64:
    case MIMO_I32:
    case MIMO_I64:
    case MIMO_F8:
        break;
    }
    return cudaErrorInvalidValue;
}
