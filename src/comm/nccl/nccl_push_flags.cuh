// What the kernels of zero-copy share: flags, and the steps of a call. buffer_state.h describes how
// the flags synchronise ranks. Each .cu file that includes this has its own copy of everything.
#ifndef MIMO_COMM_NCCL_PUSH_FLAGS_CUH
#define MIMO_COMM_NCCL_PUSH_FLAGS_CUH

#include <algorithm>

#include "comm/nccl/nccl_progress.cuh"
#include "comm/nccl/nccl_push_kernel.h"
#include "comm/nccl/nccl_refusal.cuh"
#include "device/cuda_launch.cuh"

namespace
{

// Wait until `done` counts `calls` calls. Returns its value; 0 where the wait was aborted.
__device__ uint64_t await_done(const uint64_t *done, uint64_t calls, const mimo_push_note *note)
{
    for (uint32_t spin = 1;; spin++) {
        const uint64_t value = load_acquire(done);
        if ((value & ~MIMO_PUSH_REFUSED) >= calls * MIMO_PUSH_UNIT)
            return value;
        if (spin % kSpinsPerAbortCheck == 0 && note->abort)
            return 0;
    }
}

// ----------------------------------------- refusals -----------------------------------------

// `other` 0: the peer refused.
__device__ void note_refusal(const mimo_push_head &head, const mimo_push_peer &peer, uint64_t mine,
                             uint64_t other)
{
    note_refusal(head.own, head.note, {mine, other, peer.here - head.own});
}

constexpr int kRefusalShift = 32; // in own->ready: refusals, in the bits above the tickets

// Refuse a target. Called by a thread whose thread block has neither added its fraction of DONE for
// this target nor handed in its ticket: both must come after this.
__device__ void refuse(const mimo_push_head &head, const mimo_push_peer &target, uint64_t mine,
                       uint64_t other)
{
    note_refusal(head, target, mine, other);
    or_relaxed(&target.there->done, MIMO_PUSH_REFUSED);
    atomicAdd((unsigned long long *)&head.own->ready, 1ull << kRefusalShift);
}

// ------------------------------------------ a call ------------------------------------------

// Set READY on the sources. The store is relaxed: this kernel has not touched the rows yet, and all
// work before it on the stream is complete, so there is nothing to release. A releasing store would
// leave 1.1 us later (H200). The last thread block increments the counters only after all thread
// blocks have read them.
__device__ void set_ready(const mimo_push_head &head, const mimo_push_peer *sources)
{
    if (blockIdx.x == 0 && !head.idle)
        for (int i = threadIdx.x; i < head.sources; i += blockDim.x)
            store_relaxed(&sources[i].there->ready,
                          mimo_ready_value(sources[i].here->receives + 1, head.signature));
}

// This thread block has read the counters that it needs and takes no more pieces: the answer to its
// last request has arrived. So the addition may be relaxed.
__device__ void hand_in_ticket(const mimo_push_head &head)
{
    if (threadIdx.x == 0 && blockIdx.x < gridDim.x - 1)
        atomicAdd((unsigned long long *)&head.own->ready, 1ull);
}

// Add this thread block's fraction of DONE: MIMO_PUSH_UNIT / pieces for each piece that it wrote.
// The first thread block also adds the remainder of that division.
__device__ void add_done(const mimo_push_head &head, const mimo_push_peer *targets, uint32_t wrote)
{
    const uint32_t pieces = head.list[MIMO_PUSH_REMOTE].pieces;
    const uint32_t each = pieces > 0 ? MIMO_PUSH_UNIT / pieces : 0;
    const uint32_t fraction = wrote * each + (blockIdx.x == 0 ? MIMO_PUSH_UNIT - pieces * each : 0);
    if (fraction > 0)
        for (int i = threadIdx.x; i < head.targets; i += blockDim.x)
            add_release(&targets[i].there->done, fraction);
}

// By one thread: wait for all tickets, then reset the counters of thread blocks to 0. Returns true
// where a thread block refused a target.
__device__ bool collect_tickets(mimo_flags *own)
{
    uint64_t tickets;
    do
        tickets = load_acquire(&own->ready);
    while ((uint32_t)tickets < gridDim.x - 1);
    own->ready = own->done = own->receives = 0;
    return tickets >> kRefusalShift > 0;
}

// Whether `mine` is true in the first thread, or in any of the first `count` threads. Called by all
// threads; only the first thread's result counts. Up to 32 of them are one warp, which needs no
// barrier of the thread block: the barrier took 0.1 us of each call, and 0.9 us with 32 thread
// blocks (H200).
__device__ bool is_any(bool mine, int count)
{
    if (count > 32)
        return __syncthreads_or(mine);
    return threadIdx.x < 32 && __any_sync(~0u, mine);
}

// By the last thread block: wait for the sources' rows and count the call. The other thread blocks
// hand in their tickets where a call is aborted as well, so the counters are 0 after every launch.
// After a refusal a peer may make no more calls, and later calls would wait for it: they are
// aborted.
__device__ void await_rows(const mimo_push_head &head, const mimo_push_peer *peers)
{
    const mimo_push_peer *targets = peers, *sources = peers + head.targets;
    bool refused = false;
    if (threadIdx.x == 0)
        refused = collect_tickets(head.own);
    __syncthreads();
    for (int i = threadIdx.x; i < head.sources; i += blockDim.x) {
        mimo_flags *flags = sources[i].here;
        const uint64_t call = flags->receives + 1;
        if (await_done(&flags->done, call, head.note) & MIMO_PUSH_REFUSED) {
            note_refusal(head, sources[i], mimo_ready_value(call, head.signature), 0);
            refused = true;
        }
        flags->receives = call;
    }
    for (int i = threadIdx.x; i < head.targets; i += blockDim.x)
        targets[i].here->sends++;
    if (is_any(refused, head.sources) && threadIdx.x == 0)
        head.note->abort = 1;
    if (threadIdx.x == 0)
        say_ended(head.progress);
}

// Which of 32 targets have set READY, and which of these were refused.
struct ReadyTargets {
    int first = -1;                  // of the 32
    uint32_t ready = 0, refused = 0; // a bit for each
};

enum Answer {
    ABORTED,
    REFUSED, // write no row
    WRITE,
};

// By one warp: read READY of 32 targets from `first` on until the wanted one is ready. No bit is
// set in the result where the wait was aborted. Every target found to have called differently is
// refused at once: this thread block has not yet added its fraction of DONE for any of them, as its
// wanted target is not written.
__device__ ReadyTargets poll_targets(const mimo_push_head &head, const mimo_push_peer *targets,
                                     int first, uint32_t wanted)
{
    const int i = first + (int)threadIdx.x;
    const mimo_flags *flags = i < head.targets ? targets[i].here : NULL;
    const uint64_t mine = flags ? mimo_ready_value(flags->sends + 1, head.signature) : 0;
    for (uint32_t spin = 1;; spin++) {
        const uint64_t value = flags ? load_acquire(&flags->ready) : 0;
        const bool ready = flags && mimo_ready_call(value) >= mimo_ready_call(mine);
        const uint32_t all_ready = __ballot_sync(~0u, ready);
        if (all_ready & wanted) {
            const bool differs = ready && value != mine;
            if (differs)
                refuse(head, targets[i], mine, value);
            return {first, all_ready, __ballot_sync(~0u, differs)};
        }
        if (spin % kSpinsPerAbortCheck == 0 && __any_sync(~0u, head.note->abort != 0))
            return {first, 0, 0};
    }
}

// Wait until the rows of a target may be written. By all threads.
__device__ Answer await_ready(const mimo_push_head &head, const mimo_push_peer *targets, int target,
                              ReadyTargets &targets_ready)
{
    __shared__ uint32_t shared_ready, shared_refused;
    const int first = target / 32 * 32;
    const uint32_t wanted = 1u << target % 32;
    if (head.idle)
        return WRITE;
    if (targets_ready.first != first || !(targets_ready.ready & wanted)) {
        if (threadIdx.x < 32) {
            const ReadyTargets polled = poll_targets(head, targets, first, wanted);
            if (threadIdx.x == 0) {
                shared_ready = polled.ready;
                shared_refused = polled.refused;
            }
        }
        __syncthreads();
        targets_ready = {first, shared_ready, shared_refused};
        __syncthreads(); // all threads have read it
    }
    if (!(targets_ready.ready & wanted))
        return ABORTED;
    return targets_ready.refused & wanted ? REFUSED : WRITE;
}

// One call. move(wrote) moves rows and counts the remote pieces, those of refused targets included.
// All its writes are complete when it returns. It returns false where it was aborted: then it has
// not written to peers that may still use their rows.
template <class Move>
__device__ void run_call(const mimo_push_head &head, const mimo_push_peer *peers, Move move)
{
    uint32_t wrote = 0;
    await_stream();
    if (blockIdx.x == 0 && threadIdx.x == 0)
        say_begun(head.progress);
    set_ready(head, peers + head.targets);
    const bool moved = move(wrote);
    __syncthreads(); // all threads have read the counters, and written
    hand_in_ticket(head);
    if (moved)
        add_done(head, peers, wrote);
    if (blockIdx.x == gridDim.x - 1)
        await_rows(head, peers);
}

// ----------------------------------------- launches -----------------------------------------

// The host needs time for the arguments of a launch, 0.5 us for those of a mimo_push_small. So
// programs with even fewer peers, blocks and bases have shorter arguments.

// A small program.
struct Tiny {
    mimo_push_head head;
    mimo_push_peer peers[8];
    mimo_push_block blocks[8];
    char *bases[9];
};

// A large program.
struct Listed {
    mimo_push_head head;
    const mimo_push_peer *peers;
    const mimo_push_block *blocks;
    char *bases[9];
};

constexpr int kTinyPeers = sizeof(Tiny::peers) / sizeof(mimo_push_peer);
constexpr int kTinyBlocks = sizeof(Tiny::blocks) / sizeof(mimo_push_block);
constexpr int kTinyBases = sizeof(Tiny::bases) / sizeof(char *);

template <class With> cudaError_t launch_large(const mimo_push_program &program, With with)
{
    const mimo_push_large &large = program.as.large;
    if (program.base_count > kTinyBases)
        return with(large);
    Listed listed = {large.head, large.peers, large.blocks, {}};
    std::copy_n(large.bases, kTinyBases, listed.bases);
    return with(listed);
}

// Calls with(as), where `as` is the program in the form that a kernel takes.
template <class With> cudaError_t launch(const mimo_push_program &program, With with)
{
    const mimo_push_small &small = program.as.small;
    const mimo_push_block_list *list = small.head.list;
    if (program.lists)
        return launch_large(program, with);
    if (small.head.targets + small.head.sources > kTinyPeers ||
        list[MIMO_PUSH_REMOTE].count + list[MIMO_PUSH_LOCAL].count > kTinyBlocks ||
        program.base_count > kTinyBases)
        return with(small);
    Tiny tiny;
    tiny.head = small.head;
    std::copy_n(small.peers, kTinyPeers, tiny.peers);
    std::copy_n(small.blocks, kTinyBlocks, tiny.blocks);
    std::copy_n(small.bases, kTinyBases, tiny.bases);
    return with(tiny);
}

} // namespace

#endif
