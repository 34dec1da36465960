// Rows by lists: their sums, and their copies. What adds in the order of a list is slow: a thread
// keeps values that wait for their partner in local memory.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "device/cuda_kernels.h"
#include "device/cuda_launch.cuh"

namespace
{

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 4096;

template <class T> struct Widened {
    using Sum = float;
};
template <> struct Widened<double> {
    using Sum = double;
};

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
__device__ void store(float *x, float value)
{
    *x = value;
}
__device__ void store(double *x, double value)
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

// What mimo_row_sums says, by value: the list lies in device memory.
struct Sums {
    mimo_sum_list list;
    int64_t first, count, width;
};

// One column of a sum.
template <class To, class From>
__device__ void add_column(To *to, const From *from, const Sums &it, int64_t sum, int64_t column)
{
    using Sum = typename Widened<From>::Sum;
    Sum open[MIMO_SUM_OPEN];
    int depth = 0;
    open[0] = 0;
    for (int64_t term = it.list.begin[sum]; term < it.list.begin[sum + 1]; term++) {
        open[depth++] = load(from + it.list.leaf[term] * it.width + column);
        for (int adds = it.list.adds[term]; adds > 0; adds--, depth--)
            open[depth - 2] += open[depth - 1];
    }
    store(to + (sum - it.first) * it.width + column, open[0]);
}

template <class To, class From> __global__ void add_rows(To *to, const From *from, Sums it)
{
    for (int64_t i = blockIdx.x; i < it.count; i += gridDim.x)
        for (int64_t column = threadIdx.x; column < it.width; column += blockDim.x)
            add_column(to, from, it, it.first + i, column);
}

__global__ void repeat_rows(mimo_row_repeats it)
{
    char *tile = static_cast<char *>(it.tile);
    for (int64_t n = blockIdx.x; n < it.count; n += gridDim.x) {
        const char *from = tile + it.row[it.begin[n]] * it.row_bytes;
        for (int64_t q = it.begin[n] + 1; q < it.begin[n + 1]; q++)
            for (int64_t b = threadIdx.x; b < it.row_bytes; b += blockDim.x)
                tile[it.row[q] * it.row_bytes + b] = from[b];
    }
}

unsigned blocks_for(int64_t count)
{
    return static_cast<unsigned>(count < kMostBlocks ? count : kMostBlocks);
}

template <class To, class From> cudaError_t add(const mimo_row_sums *sums, cudaStream_t stream)
{
    const Sums it = {*sums->list, sums->first, sums->count, sums->width};
    add_rows<<<blocks_for(sums->count), kThreads, 0, stream>>>(
        static_cast<To *>(sums->to), static_cast<const From *>(sums->from), it);
    return cudaGetLastError();
}

template <class From> cudaError_t add_from(const mimo_row_sums *sums, cudaStream_t stream)
{
    switch (sums->to_dtype) {
    case MIMO_F32:
        return add<float, From>(sums, stream);
    case MIMO_F16:
        return add<__half, From>(sums, stream);
    case MIMO_BF16:
        return add<__nv_bfloat16, From>(sums, stream);
    case MIMO_F64:
    case MIMO_I32:
    case MIMO_I64:
    case MIMO_F8:
        break;
    }
    return cudaErrorInvalidValue;
}

template <class From> cudaError_t load_from()
{
    return load_kernels(add_rows<float, From>, add_rows<__half, From>,
                        add_rows<__nv_bfloat16, From>);
}

} // namespace

cudaError_t mimo_cuda_add_rows(const mimo_row_sums *sums, cudaStream_t stream)
{
    switch (sums->from_dtype) {
    case MIMO_F32:
        return add_from<float>(sums, stream);
    case MIMO_F64:
        return add<double, double>(sums, stream);
    case MIMO_F16:
        return add_from<__half>(sums, stream);
    case MIMO_BF16:
        return add_from<__nv_bfloat16>(sums, stream);
    case MIMO_I32:
    case MIMO_I64:
    case MIMO_F8:
        break;
    }
    return cudaErrorInvalidValue;
}

cudaError_t mimo_cuda_repeat_rows(const mimo_row_repeats *repeats, cudaStream_t stream)
{
    repeat_rows<<<blocks_for(repeats->count), kThreads, 0, stream>>>(*repeats);
    return cudaGetLastError();
}

cudaError_t mimo_cuda_load_row_lists(void)
{
    cudaError_t status = load_kernels(add_rows<double, double>, repeat_rows);
    if (status == cudaSuccess)
        status = load_from<float>();
    if (status == cudaSuccess)
        status = load_from<__half>();
    return status == cudaSuccess ? load_from<__nv_bfloat16>() : status;
}
