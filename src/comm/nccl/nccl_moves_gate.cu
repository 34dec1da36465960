// The gate of a move: one warp that waits, ahead of the kernel that moves rows, until that one has
// something to do. So a call that peers are late for leaves its multiprocessors to other kernels.
//
// Why nobody waits for ever: the gate sets READY itself, as the kernel behind it would. It waits
// for READY of one peer alone, which needs nothing of this call to set it.
#include "comm/nccl/nccl_expert_call.cuh"
#include "comm/nccl/nccl_moves_kernel.h"
#include "device/cuda_launch.cuh"

namespace
{

constexpr int kWarp = 32;

__device__ bool has_begun(const mimo_expert_group &group, int peer, uint64_t call)
{
    return peer < group.shape.ranks && peer != group.rank &&
           mimo_ready_call(load_acquire(&about(group, peer)->ready)) >= call;
}

__global__ void __launch_bounds__(kWarp)
    await_first_peer(const __grid_constant__ mimo_expert_group group)
{
    await_stream();
    const uint64_t call = number_of_call(group);
    begin_call(group, call);
    for (uint32_t spin = 1;; spin++)
        for (int first = 0; first < group.shape.ranks; first += kWarp)
            if (__any_sync(~0u, has_begun(group, first + (int)threadIdx.x, call) ||
                                    gives_up(group, spin)))
                return;
}

} // namespace

cudaError_t mimo_moves_gate_launch(const mimo_moves *moves, cudaStream_t stream)
{
    if (!moves->gated || moves->group.shape.ranks == 1)
        return cudaSuccess;
    return launch_early(await_first_peer, 1, kWarp, 0, stream, moves->group);
}

cudaError_t mimo_moves_gate_load(void)
{
    return load_kernels(await_first_peer);
}
