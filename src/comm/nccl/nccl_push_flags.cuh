// What the kernels of zero-copy share: flags, and the order of a call. buffer_state.h says how
// ranks keep apart. To be included by one .cu file each: everything here is its own copy.
#ifndef MIMO_COMM_NCCL_PUSH_FLAGS_CUH
#define MIMO_COMM_NCCL_PUSH_FLAGS_CUH

#include <algorithm>

#include "comm/nccl/nccl_push_kernel.h"
#include "device/cuda_launch.cuh"

namespace
{

constexpr uint32_t kSpinsPerLook = 1 << 12; // waits look at the abort word, over PCIe, this seldom

// ------------------------------------------ flags -------------------------------------------

__device__ uint64_t load_acquire(const uint64_t *flag)
{
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
    return value;
}

__device__ void store_relaxed(uint64_t *flag, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

__device__ void add_release(uint64_t *flag, uint64_t value)
{
    asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

// False: the wait was aborted.
__device__ bool wait_for(const uint64_t *flag, uint64_t value, const volatile uint32_t *abort)
{
    for (uint32_t spin = 1; load_acquire(flag) < value; spin++)
        if (spin % kSpinsPerLook == 0 && *abort)
            return false;
    return true;
}

// ------------------------------------------ a call ------------------------------------------

// READY releases nothing of this kernel, which has only begun; what came before on its stream is
// complete by then, so nothing here reads or writes the rows any more. Released, it leaves 1.1 us
// later (H200). Counters are read by all thread blocks before the last moves them on.
__device__ void say_ready(const mimo_push_head &head, const mimo_push_peer *sources)
{
    if (blockIdx.x == 0 && !head.idle)
        for (int i = threadIdx.x; i < head.sources; i += blockDim.x)
            store_relaxed(&sources[i].there->ready, sources[i].here->asked + 1);
}

// This thread block has read the counters that it needs, and takes no more pieces: it has seen the
// answer to whatever it asked of the own line last. So relaxed is enough.
__device__ void hand_in_ticket(const mimo_push_head &head)
{
    if (threadIdx.x == 0 && blockIdx.x < gridDim.x - 1)
        atomicAdd((unsigned long long *)&head.own->ready, 1ull);
}

// A thread block that wrote some of the pieces adds as much of the unit, the first what does not
// divide.
__device__ void say_done(const mimo_push_head &head, const mimo_push_peer *targets, uint32_t wrote)
{
    const uint32_t pieces = head.list[MIMO_PUSH_REMOTE].pieces;
    const uint32_t each = pieces > 0 ? MIMO_PUSH_UNIT / pieces : 0;
    const uint32_t part = wrote * each + (blockIdx.x == 0 ? MIMO_PUSH_UNIT - pieces * each : 0);
    if (part > 0)
        for (int i = threadIdx.x; i < head.targets; i += blockDim.x)
            add_release(&targets[i].there->done, part);
}

// By the last thread block. The others hand in their tickets also where a call is aborted, so that
// the own line is 0 behind every launch.
__device__ void await_rows(const mimo_push_head &head, const mimo_push_peer *peers)
{
    const mimo_push_peer *targets = peers, *sources = peers + head.targets;
    if (threadIdx.x == 0) {
        while (load_acquire(&head.own->ready) < gridDim.x - 1)
            ;
        *head.own = {};
    }
    __syncthreads();
    for (int i = threadIdx.x; i < head.sources; i += blockDim.x) {
        mimo_flags *flags = sources[i].here;
        wait_for(&flags->done, (flags->asked + 1) * MIMO_PUSH_UNIT, head.abort);
        flags->asked++;
    }
    for (int i = threadIdx.x; i < head.targets; i += blockDim.x)
        targets[i].here->served++;
}

// Which targets have said READY, of 32 at a time.
struct ReadyTargets {
    int first = -1; // of the 32
    uint32_t known = 0;
};

// By one warp: look at 32 targets from `first` on until the wanted one is ready. 0: never.
__device__ uint32_t look_at(const mimo_push_head &head, const mimo_push_peer *targets, int first,
                            uint32_t wanted)
{
    const int mine = first + (int)threadIdx.x;
    const mimo_flags *flags = mine < head.targets ? targets[mine].here : NULL;
    const uint64_t epoch = flags ? flags->served + 1 : 0;
    for (uint32_t spin = 1;; spin++) {
        uint32_t known = __ballot_sync(~0u, flags && load_acquire(&flags->ready) >= epoch);
        if (known & wanted)
            return known;
        if (spin % kSpinsPerLook == 0 && __any_sync(~0u, *head.abort != 0))
            return 0;
    }
}

// Wait until the rows of a target may be written; by all threads. False: never.
__device__ bool await_ready(const mimo_push_head &head, const mimo_push_peer *targets, int target,
                            ReadyTargets &ready)
{
    __shared__ uint32_t seen;
    const int first = target / 32 * 32;
    const uint32_t wanted = 1u << target % 32;
    if (head.idle || (ready.first == first && ready.known & wanted))
        return true;
    if (threadIdx.x < 32) {
        uint32_t known = look_at(head, targets, first, wanted);
        if (threadIdx.x == 0)
            seen = known;
    }
    __syncthreads();
    ready = {first, seen};
    __syncthreads(); // all have read it
    return ready.known & wanted;
}

// A call: move(wrote) moves rows and counts the pieces of remote ones; what it wrote is complete
// when it returns. Where it says false it was aborted, and has left the rows of a peer that may
// still read them alone.
template <class Move>
__device__ void run_call(const mimo_push_head &head, const mimo_push_peer *peers, Move move)
{
    uint32_t wrote = 0;
    await_stream();
    say_ready(head, peers + head.targets);
    const bool moved = move(wrote);
    __syncthreads(); // all threads have read the counters, and written
    hand_in_ticket(head);
    if (moved)
        say_done(head, peers, wrote);
    if (blockIdx.x == gridDim.x - 1)
        await_rows(head, peers);
}

// ----------------------------------------- launches -----------------------------------------

// A near program that is shorter still: what a launch carries takes the host time, a near one some
// 0.5 us.
struct Few {
    mimo_push_head head;
    mimo_push_peer peers[8];
    mimo_push_block blocks[8];
};

constexpr int kFewPeers = sizeof(Few::peers) / sizeof(mimo_push_peer);
constexpr int kFewBlocks = sizeof(Few::blocks) / sizeof(mimo_push_block);

// Calls with(as), `as` being the program as a kernel takes it.
template <class With> cudaError_t launch(const mimo_push_program &program, With with)
{
    const mimo_push_near &near = program.as.near;
    const mimo_push_list *list = near.head.list;
    if (program.room)
        return with(program.as.far);
    if (near.head.targets + near.head.sources > kFewPeers ||
        list[MIMO_PUSH_REMOTE].count + list[MIMO_PUSH_LOCAL].count > kFewBlocks)
        return with(near);
    Few few;
    few.head = near.head;
    std::copy_n(near.peers, kFewPeers, few.peers);
    std::copy_n(near.blocks, kFewBlocks, few.blocks);
    return with(few);
}

} // namespace

#endif
