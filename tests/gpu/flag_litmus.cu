#include "flag_litmus.h"

#include "comm/nccl/nccl_outbox.cuh"

namespace
{

// A warp's part of shared memory.
struct Desk {
    alignas(128) uint4 stage[LITMUS_BYTES / sizeof(uint4)];
    uint64_t full;
    Outbox box;
};

#if MIMO_HAS_BULK

// Payloads are of any length up to the entry's, so that short and long ones overtake each other.
__device__ uint32_t words_of(uint64_t n)
{
    const uint32_t most = LITMUS_BYTES / sizeof(uint4);
    return 1 + (uint32_t)(n * 2654435761u >> 7) % most;
}

__device__ uint4 word_of(uint64_t n, uint32_t i)
{
    return make_uint4((uint32_t)n, (uint32_t)(n >> 32), i, (uint32_t)n * 40503u ^ i);
}

__device__ void await_flag(const uint64_t *flag, uint64_t value)
{
    if (threadIdx.x == 0)
        while (load_acquire(flag) < value)
            ;
    __syncwarp();
}

__device__ void send(litmus_fifo &own, litmus_fifo &peer, uint64_t flags, Desk &desk)
{
    Poster poster(desk.box);
    for (uint64_t n = 0; n < flags; n++) {
        const uint32_t e = n % LITMUS_ENTRIES, words = words_of(n);
        await_reads<0>();
        __syncwarp();
        for (uint32_t i = threadIdx.x; i < words; i += 32)
            desk.stage[i] = word_of(n, i);
        order_bulk();
        __syncwarp();
        if (n >= LITMUS_ENTRIES)
            await_flag(&own.emptied[e], n + 1 - LITMUS_ENTRIES);
        if (threadIdx.x == 0) {
            order_bulk();
            store(peer.entry[e], desk.stage, words * sizeof(uint4));
            commit_stores();
            await_writes<0>();
            poster.post(&peer.filled[e], n + 1, true);
        }
    }
    if (threadIdx.x == 0)
        poster.close();
}

__device__ void receive(litmus_fifo &own, litmus_fifo &peer, uint64_t flags, Desk &desk,
                        unsigned long long *wrong)
{
    Poster poster(desk.box);
    for (uint64_t n = 0; n < flags; n++) {
        const uint32_t e = n % LITMUS_ENTRIES, words = words_of(n);
        await_flag(&own.filled[e], n + 1);
        if (threadIdx.x == 0) {
            expect(&desk.full, words * sizeof(uint4));
            order_bulk();
            load(desk.stage, own.entry[e], words * sizeof(uint4), &desk.full);
        }
        await(&desk.full, n % 2);
        if (threadIdx.x == 0)
            poster.post(&peer.emptied[e], n + 1, true);
        for (uint32_t i = threadIdx.x; i < words; i += 32) {
            const uint4 got = desk.stage[i], wanted = word_of(n, i);
            if (got.x != wanted.x || got.y != wanted.y || got.z != wanted.z || got.w != wanted.w)
                atomicAdd(wrong, 1ull);
        }
        order_bulk();
        __syncwarp();
    }
    if (threadIdx.x == 0)
        poster.close();
}

// The first half of the thread blocks sends.
__device__ void run(litmus_fifo *own, litmus_fifo *peer, uint64_t flags, unsigned long long *wrong,
                    Desk *desks)
{
    const uint32_t warp = threadIdx.y, fifo = blockIdx.x % LITMUS_BLOCKS * LITMUS_WARPS + warp;
    if (warp < LITMUS_WARPS && threadIdx.x == 0) {
        init_barrier(&desks[warp].full);
        open_box(desks[warp].box);
    }
    open_barriers();
    if (warp == LITMUS_WARPS)
        send_posts(LITMUS_WARPS, [=](int i) { return &desks[i].box; });
    else if (blockIdx.x < LITMUS_BLOCKS)
        send(own[fifo], peer[fifo], flags, desks[warp]);
    else
        receive(own[fifo], peer[fifo], flags, desks[warp], wrong);
}

#else

__device__ void run(litmus_fifo *, litmus_fifo *, uint64_t, unsigned long long *, Desk *)
{
}

#endif

__global__ void exchange(litmus_fifo *own, litmus_fifo *peer, uint64_t flags,
                         unsigned long long *wrong)
{
    __shared__ Desk desks[LITMUS_WARPS];
    run(own, peer, flags, wrong, desks);
}

} // namespace

cudaError_t flag_litmus(litmus_fifo *own, litmus_fifo *peer, uint64_t flags,
                        unsigned long long *wrong, cudaStream_t stream)
{
    exchange<<<2 * LITMUS_BLOCKS, dim3(32, LITMUS_WARPS + 1), 0, stream>>>(own, peer, flags, wrong);
    return cudaGetLastError();
}
