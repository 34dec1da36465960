// Flags of peers behind rows that warps write. A warp that set a flag itself would wait for all its
// writes to cross the link and back, 4.4 us a row (two H200). So writers publish in shared memory
// how many of their items are written, and one more warp, the poster, sets the flags of all.
//
// Why a peer that sees a flag sees the row: the writer has awaited the bulk copies, which makes
// them visible to it, and releases its count to the thread block. The poster acquires the count,
// and its fence orders what it has acquired before the flags that it sets behind it.
//
// nccl_outbox.cuh carries the flags themselves, for writers with several kinds of them. Here an
// item has a flag on any number of ranks, which the poster finds out.
#ifndef MIMO_COMM_NCCL_POST_CUH
#define MIMO_COMM_NCCL_POST_CUH

#include "comm/nccl/nccl_flags.cuh"
#include "comm/nccl/nccl_shared_words.cuh"

namespace
{

// Of each writer. It writes the first and the last, the poster the other one.
template <int kWriters> struct Posts {
    uint32_t written[kWriters]; // items whose writes are complete
    uint32_t posted[kWriters];  // of these, those whose flags are set
    uint32_t ended[kWriters];   // not 0: nothing more is written
};

// By all threads of the thread block, before a barrier of it.
template <int kWriters> __device__ void open_posts(Posts<kWriters> &posts)
{
    for (int i = threadIdx.x; i < kWriters; i += blockDim.x)
        posts.written[i] = posts.posted[i] = posts.ended[i] = 0;
}

// By the poster, one warp: set flags until all writers have ended. set(writer, first, end) sets
// those of items [first, end), by all lanes.
template <int kWriters, class Set> __device__ void post_flags(Posts<kWriters> &posts, Set set)
{
    static_assert(kWriters <= 32, "a lane for each writer");
    const int lane = threadIdx.x % 32;
    const bool mine = lane < kWriters;
    uint32_t posted = 0;
    for (bool ended = false; !ended;) {
        // In this order: what is written before the end is seen with it.
        ended = __all_sync(~0u, !mine || load_acquire_shared(&posts.ended[lane]));
        const uint32_t written = mine ? load_acquire_shared(&posts.written[lane]) : posted;
        uint32_t writers = __ballot_sync(~0u, written != posted);
        if (writers != 0)
            fence_system();
        __syncwarp();
        for (; writers != 0; writers &= writers - 1) {
            const int writer = __ffs(writers) - 1;
            set(writer, __shfl_sync(~0u, posted, writer), __shfl_sync(~0u, written, writer));
        }
        __syncwarp();
        if (written != posted)
            store_release_shared(&posts.posted[lane], posted = written);
    }
}

} // namespace

#endif
