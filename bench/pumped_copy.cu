// A contiguous copy by the pump of the kernels that move rows of experts: what their speed is
// compared with.
#include "bench/pumped_copy.h"
#include "comm/nccl/nccl_pump.cuh"
#include "device/cuda_launch.cuh"

namespace
{

constexpr int kMovers = 7, kStages = 2;

#if MIMO_HAS_BULK

constexpr uint32_t kKept = 16;

// Chunks of one copy, dealt to warps.
struct Chunks {
    const pumped_copy &copy;
    int64_t first, step;

    __device__ int64_t offset(uint32_t number) const
    {
        return (first + number * step) * copy.chunk;
    }

    __device__ Next next(uint32_t number, PumpLoad &out) const
    {
        out = {copy.from + offset(number), (uint32_t)copy.chunk};
        return first + number * step < copy.count ? TAKEN : NO_MORE;
    }

    __device__ bool may_store(uint32_t) const
    {
        return true;
    }

    __device__ void store(uint32_t number, const char *stage) const
    {
        if (threadIdx.x % 32 == 0)
            ::store(copy.to + offset(number), stage, (uint32_t)copy.chunk);
    }
};

__global__ void __launch_bounds__(32 * (kMovers + 1), 1)
    copy_by_pumps(const __grid_constant__ pumped_copy copy)
{
    extern __shared__ __align__(128) char stages[];
    __shared__ PumpRing<kStages> rings[kMovers];
    __shared__ Posts<kMovers> posts;
    const int warp = threadIdx.x / 32;
    if (threadIdx.x < kMovers)
        open_ring(rings[threadIdx.x]);
    open_posts(posts);
    open_barriers();
    if (warp == kMovers) {
        post_flags(posts, [](int, uint32_t, uint32_t) {});
        return;
    }
    Pump<kStages, 1, 1, kKept> pump(
        rings[warp], stages + warp * kStages * copy.chunk, (uint32_t)copy.chunk,
        {&posts.written[warp], &posts.posted[warp], &posts.ended[warp]});
    Chunks chunks = {copy, warp * (int64_t)gridDim.x + blockIdx.x, kMovers * (int64_t)gridDim.x};
    pump.run(chunks);
    pump.end();
}

#else

__global__ void copy_by_pumps(const __grid_constant__ pumped_copy)
{
}

#endif

} // namespace

cudaError_t pumped_copy_launch(const pumped_copy *copy, int blocks, cudaStream_t stream)
{
    const int bytes = kMovers * kStages * (int)copy->chunk;
    const cudaError_t status =
        cudaFuncSetAttribute(copy_by_pumps, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (status != cudaSuccess)
        return status;
    copy_by_pumps<<<blocks, 32 * (kMovers + 1), bytes, stream>>>(*copy);
    return cudaGetLastError();
}
