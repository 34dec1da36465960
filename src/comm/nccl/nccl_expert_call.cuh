// The steps that all kernels of a dispatch share (nccl_experts.h). Each .cu file that includes this
// has its own copy of everything.
#ifndef MIMO_COMM_NCCL_EXPERT_CALL_CUH
#define MIMO_COMM_NCCL_EXPERT_CALL_CUH

#include "comm/nccl/nccl_experts.h"
#include "comm/nccl/nccl_progress.cuh"
#include "comm/nccl/nccl_refusal.cuh"

namespace
{

// ------------------------------------------ peers -------------------------------------------

// Where a part of the symmetric memory of a rank begins.
template <class T> __device__ T *part_of(const mimo_expert_group &group, int rank, int64_t offset)
{
    return (T *)(group.memory[rank] + offset);
}

// What this rank's page holds about a peer, and what the peer's page holds about this rank.
__device__ mimo_flags *about(const mimo_expert_group &group, int peer)
{
    return group.flags[group.rank] + peer;
}

__device__ mimo_flags *at_peer(const mimo_expert_group &group, int peer)
{
    return group.flags[peer] + group.rank;
}

// --------------------------------------- one call -------------------------------------------

// The number of the call that this kernel makes.
__device__ uint64_t number_of_call(const mimo_expert_group &group)
{
    return group.counters->call + 1;
}

// The call has begun here: let all peers write. The store is relaxed: work before this kernel on
// the stream is complete and this kernel has written nothing, so there is nothing to release.
__device__ void begin_call(const mimo_expert_group &group, uint64_t call)
{
    if (blockIdx.x == 0 && threadIdx.x == 0)
        say_begun(group.words, call);
    if (blockIdx.x == 0)
        for (int peer = threadIdx.x; peer < group.shape.ranks; peer += blockDim.x)
            if (peer != group.rank)
                store_relaxed(&at_peer(group, peer)->ready,
                              mimo_ready_value(call, group.signature));
}

// Refuse a call: all ranks end it, and use the buffer no more.
__device__ void refuse(const mimo_expert_group &group, int peer, const Refused &refused)
{
    note_refusal(about(group, group.rank), group.note, refused);
    for (int other = 0; other < group.shape.ranks; other++)
        if (other != group.rank)
            or_relaxed(&at_peer(group, other)->done, MIMO_PUSH_REFUSED);
    *(volatile uint32_t *)&group.note->abort = 1;
}

// Whether waits are to end: the host said so, or a rank refused a call. Reads across PCIe.
__device__ bool is_stopped(const mimo_expert_group &group)
{
    for (int peer = 0; peer < group.shape.ranks; peer++)
        if (load_acquire(&about(group, peer)->done) & MIMO_PUSH_REFUSED) {
            const uint64_t mine = mimo_ready_value(number_of_call(group), group.signature);
            note_refusal(about(group, group.rank), group.note, {mine, 0, peer - group.rank});
            *(volatile uint32_t *)&group.note->abort = 1;
        }
    return *(const volatile uint32_t *)&group.note->abort != 0;
}

// A wait calls this in each iteration, from 1; true: it is to end.
__device__ bool gives_up(const mimo_expert_group &group, uint32_t spin)
{
    return spin % kSpinsPerAbortCheck == 0 && is_stopped(group);
}

// By one thread: wait until a peer lets this rank write for the call. False: store nothing more. A
// peer that is in a later call has got all that it waited for in this one: it is asked nothing.
__device__ bool await_ready_of(const mimo_expert_group &group, int peer, uint64_t call)
{
    const uint64_t mine = mimo_ready_value(call, group.signature);
    for (uint32_t spin = 1;; spin++) {
        const uint64_t value = load_acquire(&about(group, peer)->ready);
        if (value == mine || mimo_ready_call(value) > call)
            return true;
        if (mimo_ready_call(value) == call) {
            refuse(group, peer, {mine, value, peer - group.rank});
            return false;
        }
        if (gives_up(group, spin))
            return false;
    }
}

// By all lanes of a warp: the same for all peers.
__device__ bool await_ready(const mimo_expert_group &group, uint64_t call)
{
    bool ready = true;
    for (int peer = threadIdx.x % 32; peer < group.shape.ranks; peer += 32)
        ready = (peer == group.rank || await_ready_of(group, peer, call)) && ready;
    return __all_sync(~0u, ready);
}

// By one thread: wait for a flag of 32 bits. False: the wait was ended.
__device__ bool await_flag(const mimo_expert_group &group, const uint32_t *flag, uint64_t call)
{
    for (uint32_t spin = 1; load_acquire(flag) != (uint32_t)call; spin++)
        if (gives_up(group, spin))
            return false;
    return true;
}

// By all threads of a thread block, as its last step. The last thread block counts the call: all
// have read the number by then.
__device__ void finish_call(const mimo_expert_group &group, uint64_t call)
{
    mimo_expert_counters *counters = group.counters;
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    __threadfence();
    if (atomicAdd(&counters->finished, 1u) == gridDim.x - 1) {
        counters->finished = 0;
        counters->call = call;
        say_ended(group.words, call);
    }
}

} // namespace

#endif
