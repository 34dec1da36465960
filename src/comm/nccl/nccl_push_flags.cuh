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

__device__ void or_relaxed(uint64_t *flag, uint64_t bits)
{
    asm volatile("red.relaxed.sys.global.or.b64 [%0], %1;" ::"l"(flag), "l"(bits) : "memory");
}

// `done` once it counts `calls` calls; 0 where the wait was aborted.
__device__ uint64_t await_done(const uint64_t *done, uint64_t calls, const mimo_push_note *note)
{
    for (uint32_t spin = 1;; spin++) {
        const uint64_t seen = load_acquire(done);
        if ((seen & ~MIMO_PUSH_REFUSED) >= calls * MIMO_PUSH_UNIT)
            return seen;
        if (spin % kSpinsPerLook == 0 && note->abort)
            return 0;
    }
}

// ----------------------------------------- refusals -----------------------------------------

// For the host: the first one of the buffer. `other` 0: the peer refused.
__device__ void note_refusal(const mimo_push_head &head, const mimo_push_peer &peer, uint64_t mine,
                             uint64_t other)
{
    if (atomicExch((unsigned long long *)&head.own->served, 1ull) > 0)
        return;
    mimo_refusal *refusal = &head.note->refusal;
    refusal->mine = mine;
    refusal->other = other;
    refusal->ahead = peer.here - head.own;
    __threadfence_system();
    *(volatile uint32_t *)&refusal->met = 1;
}

constexpr int kRefusalShift = 32; // in `ready` of the own line: refusals, above the tickets

// By any thread of a block that still has a part of DONE to say to this target, and tickets to hand
// in: both come after this.
__device__ void refuse(const mimo_push_head &head, const mimo_push_peer &target, uint64_t mine,
                       uint64_t other)
{
    note_refusal(head, target, mine, other);
    or_relaxed(&target.there->done, MIMO_PUSH_REFUSED);
    atomicAdd((unsigned long long *)&head.own->ready, 1ull << kRefusalShift);
}

// ------------------------------------------ a call ------------------------------------------

// READY releases nothing of this kernel, which has only begun; what came before on its stream is
// complete by then, so nothing here reads or writes the rows any more. Released, it leaves 1.1 us
// later (H200). Counters are read by all thread blocks before the last moves them on.
__device__ void say_ready(const mimo_push_head &head, const mimo_push_peer *sources)
{
    if (blockIdx.x == 0 && !head.idle)
        for (int i = threadIdx.x; i < head.sources; i += blockDim.x)
            store_relaxed(&sources[i].there->ready,
                          mimo_ready_word(sources[i].here->asked + 1, head.signature));
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

// By one thread: all tickets are in, and what blocks counted begins at 0 again. True: some block
// refused a target.
__device__ bool take_tickets(mimo_flags *own)
{
    uint64_t tickets;
    do
        tickets = load_acquire(&own->ready);
    while ((uint32_t)tickets < gridDim.x - 1);
    own->ready = own->done = own->asked = 0;
    return tickets >> kRefusalShift > 0;
}

// Whether it is true in any of the first `count` threads, or in the first, which is told. By all
// threads. Few are in one warp, and the block need not meet: that took 0.1 us of each call, and 0.9
// us where a call had 32 thread blocks (H200).
__device__ bool is_any(bool mine, int count)
{
    if (count > 32)
        return __syncthreads_or(mine);
    return threadIdx.x < 32 && __any_sync(~0u, mine);
}

// By the last thread block. The others hand in their tickets also where a call is aborted, so that
// the own line is 0 behind every launch. Where a call was refused, later ones may wait for a peer
// that calls no more: they are aborted.
__device__ void await_rows(const mimo_push_head &head, const mimo_push_peer *peers)
{
    const mimo_push_peer *targets = peers, *sources = peers + head.targets;
    bool refused = false;
    if (threadIdx.x == 0)
        refused = take_tickets(head.own);
    __syncthreads();
    for (int i = threadIdx.x; i < head.sources; i += blockDim.x) {
        mimo_flags *flags = sources[i].here;
        const uint64_t call = flags->asked + 1;
        if (await_done(&flags->done, call, head.note) & MIMO_PUSH_REFUSED) {
            note_refusal(head, sources[i], mimo_ready_word(call, head.signature), 0);
            refused = true;
        }
        flags->asked = call;
    }
    for (int i = threadIdx.x; i < head.targets; i += blockDim.x)
        targets[i].here->served++;
    if (is_any(refused, head.sources) && threadIdx.x == 0)
        head.note->abort = 1;
}

// Which targets have said READY, of 32 at a time, and which of them by another call.
struct ReadyTargets {
    int first = -1; // of the 32
    uint32_t known = 0, refused = 0;
};

enum Answer {
    NEVER,   // aborted
    REFUSED, // no row is to be written
    WRITE,
};

// By one warp: look at 32 targets from `first` on until the wanted one is ready. Nothing is known:
// it never is. Those that were found to call differently are refused, all of them: as long as the
// wanted one is not written, this thread block has a part of DONE to say to each.
__device__ ReadyTargets look_at(const mimo_push_head &head, const mimo_push_peer *targets,
                                int first, uint32_t wanted)
{
    const int i = first + (int)threadIdx.x;
    const mimo_flags *flags = i < head.targets ? targets[i].here : NULL;
    const uint64_t mine = flags ? mimo_ready_word(flags->served + 1, head.signature) : 0;
    for (uint32_t spin = 1;; spin++) {
        const uint64_t word = flags ? load_acquire(&flags->ready) : 0;
        const bool ready = flags && mimo_ready_call(word) >= mimo_ready_call(mine);
        const uint32_t known = __ballot_sync(~0u, ready);
        if (known & wanted) {
            const bool differs = ready && word != mine;
            if (differs)
                refuse(head, targets[i], mine, word);
            return {first, known, __ballot_sync(~0u, differs)};
        }
        if (spin % kSpinsPerLook == 0 && __any_sync(~0u, head.note->abort != 0))
            return {first, 0, 0};
    }
}

// Wait until the rows of a target may be written; by all threads.
__device__ Answer await_ready(const mimo_push_head &head, const mimo_push_peer *targets, int target,
                              ReadyTargets &ready)
{
    __shared__ uint32_t seen, refused;
    const int first = target / 32 * 32;
    const uint32_t wanted = 1u << target % 32;
    if (head.idle)
        return WRITE;
    if (ready.first != first || !(ready.known & wanted)) {
        if (threadIdx.x < 32) {
            const ReadyTargets looked = look_at(head, targets, first, wanted);
            if (threadIdx.x == 0) {
                seen = looked.known;
                refused = looked.refused;
            }
        }
        __syncthreads();
        ready = {first, seen, refused};
        __syncthreads(); // all have read it
    }
    return !(ready.known & wanted) ? NEVER : ready.refused & wanted ? REFUSED : WRITE;
}

// A call: move(wrote) moves rows and counts the pieces of remote ones, those included that a target
// is refused; what it wrote is complete when it returns. Where it says false it was aborted, and
// has left the rows of a peer that may still read them alone.
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
