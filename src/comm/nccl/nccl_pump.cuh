// A warp that moves items by bulk copies: from memory into a ring of stages in shared memory, and
// from there to any number of places. Loads run ahead of stores. A stage is loaded again once its
// last stores have read it; that these are written is awaited later, and then published for the
// poster of the thread block (nccl_post.cuh). Hopper and later.
//
// A pump never waits for a peer while it holds something back. Where the next item is not there
// yet, it first stores what it has loaded, awaits the writes and publishes them. Otherwise two
// ranks could wait for rows of each other that both have written and not posted.
#ifndef MIMO_COMM_NCCL_PUMP_CUH
#define MIMO_COMM_NCCL_PUMP_CUH

#include "comm/nccl/nccl_bulk.cuh"
#include "comm/nccl/nccl_moves_bugs.h"
#include "comm/nccl/nccl_post.cuh"

#if MIMO_HAS_BULK

namespace
{

// Whether there is a next item: LATER says that a peer has not written it yet.
enum Next { NO_MORE, LATER, TAKEN };

// What a pump loads.
struct PumpLoad {
    const char *from;
    uint32_t bytes; // a multiple of 16, at most those of a stage
};

// What a pump has of shared memory.
template <int kStages> struct PumpRing {
    uint64_t full[kStages]; // mbarriers: the stage is loaded
};

// Where a pump publishes: its entries of Posts.
struct PumpCounts {
    uint32_t *written, *posted, *ended;
};

// By one thread of the warp, before open_barriers().
template <int kStages> __device__ void open_ring(PumpRing<kStages> &ring)
{
    for (uint64_t &full : ring.full)
        init_barrier(&full);
}

// kAhead: items that are loaded ahead of the one that is stored. kBehind: items whose writes are on
// their way. Items of all runs of a pump have consecutive numbers, from 0. Every lane calls
//
//   Next next(number, load)      take the next item, and keep what its store and flags need
//   bool may_store(number)       false: nothing is stored, and next() says NO_MORE from now on
//   void store(number, stage)    issue bulk stores from a stage, in any lanes
//
// An item is kept until its flags are posted, and up to kKept items are kept.
template <int kStages, int kAhead, int kBehind, uint32_t kKept> class Pump
{
    static_assert(kAhead < kStages && kBehind <= kStages, "the ring is long enough");

  public:
    __device__ Pump(PumpRing<kStages> &ring, char *stages, uint32_t stage_bytes, PumpCounts counts)
        : ring(ring), stages(stages), stage_bytes(stage_bytes), counts(counts)
    {
    }

    // All writes are complete and published when it returns.
    template <class Items> __device__ void run(Items &items)
    {
        for (Next more = TAKEN; more != NO_MORE || stored != loaded;) {
            while (more != NO_MORE && loaded - stored <= kAhead && (more = load(items)) == TAKEN)
                ;
            if (stored == loaded)
                complete();
            else
                store_next(items);
        }
        complete();
    }

    __device__ void end()
    {
        if (threadIdx.x % 32 == 0)
            store_release_shared(counts.ended, 1);
    }

  private:
    PumpRing<kStages> &ring;
    char *stages;
    uint32_t stage_bytes;
    PumpCounts counts;
    uint32_t loaded = 0, stored = 0; // items; item n is in stage n % kStages

    // Whether the flags of an item are posted that would be kept where the next one is.
    __device__ bool has_room() const
    {
        return loaded - __shfl_sync(~0u, load_acquire_shared(counts.posted), 0) < kKept;
    }

    template <class Items> __device__ Next load(Items &items)
    {
        PumpLoad from;
        const Next more = has_room() ? items.next(loaded, from) : LATER;
        if (more != TAKEN)
            return more;
        const uint32_t stage = loaded++ % kStages;
        await_reads<kStages - kAhead - 1>();
        __syncwarp();
        if (threadIdx.x % 32 == 0) {
            expect(&ring.full[stage], from.bytes);
            ::load(stages + stage * stage_bytes, from.from, from.bytes, &ring.full[stage]);
        }
        return TAKEN;
    }

    template <class Items> __device__ void store_next(Items &items)
    {
        const uint32_t number = stored++, stage = number % kStages;
        await(&ring.full[stage], number / kStages % 2);
        if (MIMO_MOVES_BROKEN(MIMO_BUG_POST_BEFORE_WRITE)) {
            publish(stored);
            __nanosleep(1000000);
        }
        if (items.may_store(number))
            items.store(number, stages + stage * stage_bytes);
        commit_stores();
        if (stored > kBehind) {
            await_writes<kBehind>();
            publish(stored - kBehind);
        }
    }

    __device__ void complete()
    {
        await_writes<0>();
        publish(stored);
    }

    __device__ void publish(uint32_t written)
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            store_release_shared(counts.written, written);
    }
};

} // namespace

#endif

#endif
