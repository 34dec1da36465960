// Flags of peers that the warps of a thread block want to be set, and one more warp that sets them.
// A release of a flag waits for all writes of the multiprocessor that are on their way, so only
// that warp waits. Hopper and later. Each .cu file that includes this has its own copy of
// everything.
#ifndef MIMO_COMM_NCCL_OUTBOX_CUH
#define MIMO_COMM_NCCL_OUTBOX_CUH

#include "comm/nccl/nccl_bulk.cuh"
#include "comm/nccl/nccl_flags.cuh"

namespace
{

constexpr uint32_t kPosts = 8;

// The flags of one warp, in shared memory. The warp writes everything except `sent`.
struct Outbox {
    struct {
        uint64_t *flag, value;
    } posts[kPosts];         // post n is at n % kPosts
    uint32_t posted, urgent; // posts so far; those that must be sent without waiting for more
    uint32_t closed;         // not 0: nothing more is posted
    uint32_t sent;
};

#if MIMO_HAS_BULK

__device__ void open_box(Outbox &box)
{
    box.posted = box.urgent = box.closed = box.sent = 0;
}

// The end of a box that posts. Only one thread calls this.
class Poster
{
  public:
    __device__ explicit Poster(Outbox &box) : box(box)
    {
    }

    // Set *flag behind all that this thread has seen written or read. Without `now` that can wait
    // for later posts, flush() or close().
    __device__ void post(uint64_t *flag, uint64_t value, bool now)
    {
        uint32_t sent;
        while (posted - (sent = load_acquire_shared(&box.sent)) == kPosts)
            ;
        box.posts[posted % kPosts] = {flag, value};
        store_release_shared(&box.posted, ++posted);
        if (now || posted - sent > kPosts / 2)
            flush();
    }

    __device__ void flush()
    {
        store_release_shared(&box.urgent, posted);
    }

    __device__ void close()
    {
        flush();
        store_release_shared(&box.closed, 1);
    }

  private:
    Outbox &box;
    uint32_t posted = 0;
};

// By one warp, a lane for each of up to 32 boxes: set flags that are posted, until all boxes are
// closed. A post is released to its lane, and the lane's fence covers what it has acquired. So what
// the poster saw written or read comes before its flag. Completion of a bulk copy alone does not
// order a flag of another GPU behind it: without the fence, rows were wrong (two H100).
template <class BoxOf> __device__ void send_posts(uint32_t count, BoxOf box_of)
{
    Outbox *box = box_of(threadIdx.x);
    bool open = threadIdx.x < count;
    uint32_t sent = 0;
    while (__any_sync(~0u, open)) {
        const bool closed = open && load_acquire_shared(&box->closed);
        const uint32_t urgent = open ? load_acquire_shared(&box->urgent) : sent;
        if (__any_sync(~0u, (int32_t)(urgent - sent) > 0)) {
            const uint32_t posted = open ? load_acquire_shared(&box->posted) : sent;
            fence_system();
            for (; sent != posted; sent++)
                store_relaxed(box->posts[sent % kPosts].flag, box->posts[sent % kPosts].value);
            if (open)
                store_release_shared(&box->sent, sent);
        }
        open = open && !closed;
    }
}

#endif

} // namespace

#endif
