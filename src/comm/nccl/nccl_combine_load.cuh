// The warps of `combine` in bulk that find out what is added, and load it (nccl_combine_bulk.cuh).
// Elements of T are added, parts travel as W. Hopper and later.
#ifndef MIMO_COMM_NCCL_COMBINE_LOAD_CUH
#define MIMO_COMM_NCCL_COMBINE_LOAD_CUH

#include "comm/nccl/nccl_combine_shared.cuh"

#if MIMO_HAS_BULK

namespace
{

// Load n of a recipe. A part of several planes lies plane by plane in each chunk.
template <class T, class W>
__device__ Source source_of(const Call &call, const Program &shared, const Recipe &it, int n)
{
    constexpr int kPlanes = sizeof(W) / sizeof(T);
    if (n < it.rows)
        return {it.tensor->from + it.row[it.of.partial.leaf(n)] * it.tensor->row_bytes, kVector, 0};
    if (n >= it.loads)
        return {NULL, 0, 0};
    const int number = (n - it.rows) / kPlanes, plane = (n - it.rows) % kPlanes;
    const Part part = part_of_sum(call, it.of.partial, it.of.total, shared, number);
    const int64_t slot = return_slot(call, it.index, it.token, part.slot);
    const char *at = call.group.memory[call.group.rank] + slot_offset(call, slot);
    return {part.own ? NULL : at, kVector * kPlanes, plane};
}

// ------------------------------------------- scouts -----------------------------------------

template <class T, class W> class Scout
{
  public:
    __device__ Scout(const Call &call, Shared &shared, int number)
        : call(call), shared(shared), number(number)
    {
    }

    // The items of a tensor. False: the call has stopped. What the tables say about the next item
    // is on its way while this one waits.
    __device__ bool run(const mimo_moves_tensor &tensor, int index, const Cut &cut)
    {
        const int worker = number * gridDim.x + blockIdx.x, workers = kScouts * gridDim.x;
        Order order(call, worker, workers, tensor.row_bytes > 0 ? cut.pieces : 0, false, kLag);
        Token token, next;
        for (bool more = take(token, order); more; token = next) {
            more = take(next, order);
            if (!token.of.moves())
                continue;
            if (token.of.own && !await_parts(call, index, token.item, token.of, shared.shared))
                return false;
            write(token, tensor, index, cut);
        }
        return true;
    }

    __device__ void end()
    {
        if (lane_of() == 0)
            store_release_shared(&shared.scouted[number], 1);
    }

  private:
    static constexpr int kPlanes = sizeof(W) / sizeof(T);

    struct Token {
        Item item;
        Programs of;
        int row; // of this lane's choice
    };

    const Call &call;
    Shared &shared;
    int number;
    uint32_t written = 0;

    // False: there is none left.
    __device__ bool take(Token &out, Order &order) const
    {
        if (!order.next(out.item))
            return false;
        out.of = Programs(call, out.item);
        out.row = row_of_lane(call, out.item);
        return true;
    }

    __device__ void write(const Token &token, const mimo_moves_tensor &tensor, int index,
                          const Cut &cut)
    {
        while (written - load_acquire_shared(&shared.freed[number]) >= kRecipes)
            ;
        __syncwarp();
        Recipe &it = shared.recipes[number * kRecipes + written++ % kRecipes];
        if (lane_of() < call.shape.top_k)
            it.row[lane_of()] = token.row;
        if (lane_of() == 0)
            describe(it, token, tensor, index);
        if (lane_of() == 1) {
            it.at = token.item.piece * cut.piece;
            it.end = cut.end(token.item.piece);
            it.chunk = cut.chunk;
        }
        __syncwarp();
        list(it);
        if (lane_of() == 0)
            store_release_shared(&shared.written[number], written);
    }

    __device__ void describe(Recipe &it, const Token &token, const mimo_moves_tensor &tensor,
                             int index) const
    {
        const Programs &of = token.of;
        const bool lost = of.own && of.total.lost();
        it.kind = lost ? LOST : of.own ? RESULT : TO_PEER;
        it.rows = lost ? 0 : of.partial.leaves();
        it.parts = of.parts(call);
        it.loads = it.rows + it.parts * kPlanes;
        it.of = of;
        it.tensor = &tensor;
        it.index = index;
        it.token = token.item.token;
        it.to = tensor.to + token.item.token * tensor.row_bytes;
        it.rank = token.item.source;
        if (of.own)
            return;
        const int64_t slot = own_slot(call, index, token.item, of);
        it.to = part_of<char>(call.group, it.rank, slot_offset(call, slot));
        it.flag = return_flag(call, slot, token.item.piece);
    }

    // What all lanes find out.
    __device__ void list(Recipe &it) const
    {
        const int lane = lane_of();
        const uint64_t mine = lane < it.rows ? (uint64_t)it.of.partial.adds(lane) << 4 * lane : 0;
        const uint64_t row_adds = __reduce_or_sync(~0u, (uint32_t)mine) |
                                  (uint64_t)__reduce_or_sync(~0u, (uint32_t)(mine >> 32)) << 32;
        it.listed[lane] = source_of<T, W>(call, shared.shared, it, lane);
        for (int n = lane; n < it.parts; n += 32) {
            const bool own = part_of_sum(call, it.of.partial, it.of.total, shared.shared, n).own;
            it.part_adds[n] =
                (uint8_t)(adds_of_part(call, it.of.total, shared.shared, n) | (own ? OWN_PART : 0));
        }
        if (lane == 0)
            it.row_adds = row_adds;
        __syncwarp();
    }
};

// ------------------------------------------- loader -----------------------------------------

template <class T, class W> class Loader
{
  public:
    __device__ Loader(const Call &call, Shared &shared, char *slots, const Ring &ring)
        : call(call), shared(shared), slots(slots), ring(ring), free_slots(ring.slots)
    {
    }

    __device__ void run()
    {
        for (bool more = true; more;) {
            more = false;
#pragma unroll
            for (int scout = 0; scout < kScouts; scout++) {
                const bool ended = see(&shared.scouted[scout]) != 0; // looked at before `written`
                const bool found = see(&shared.written[scout]) != taken[scout];
                if (found)
                    load_recipe(scout * kRecipes + taken[scout]++ % kRecipes);
                more = more || found || !ended;
            }
            while (over != jobs && has_ended(&shared.empty[over % kJobs], over / kJobs % 2))
                end_job();
        }
        for (int group = 0; group < kGroups; group++)
            give_out({END, kEnd, 0, 0, 0, 0, 0, 0, 0, NULL}, begin_job(0), 0);
        if (lane_of() == 0)
            store_release_shared(&shared.all_outs, outs);
    }

  private:
    static constexpr int kPlanes = sizeof(W) / sizeof(T);

    const Call &call;
    Shared &shared;
    char *slots;
    Ring ring;
    int free_slots, next_slot = 0;
    uint32_t jobs = 0, over = 0; // given out; known to be added
    uint32_t taken[kScouts] = {}, freed[kScouts] = {};
    uint32_t outs = 0, posted = 0;

    // The same in all lanes, which are ordered behind it.
    __device__ static uint32_t see(const uint32_t *word)
    {
        const uint32_t value = __shfl_sync(~0u, load_acquire_shared(word), 0);
        __syncwarp();
        return value;
    }

    // The oldest job is added.
    __device__ void end_job()
    {
        const Job &job = shared.jobs[over % kJobs];
        const int scout = job.recipe / kRecipes;
        free_slots += shared.used[over % kJobs];
#pragma unroll
        for (int i = 0; i < kScouts; i++)
            if (scout == i)
                freed[i] += job.last;
        if (lane_of() < kScouts)
            store_release_shared(&shared.freed[lane_of()], lane_of() == 0 ? freed[0] : freed[1]);
        over++;
        if (jobs == over)
            next_slot = 0;
        __syncwarp();
    }

    // Wait until a job has room. Returns its place; its slots begin at next_slot.
    __device__ int begin_job(int needed)
    {
        for (;;) {
            const bool wraps = next_slot + needed > ring.slots;
            const int used = needed + (wraps ? ring.slots - next_slot : 0);
            if (jobs - over < kJobs && used <= free_slots) {
                const int place = jobs++ % kJobs;
                next_slot = wraps ? 0 : next_slot;
                free_slots -= used;
                if (lane_of() == 0)
                    shared.used[place] = used;
                return place;
            }
            await(&shared.empty[over % kJobs], over / kJobs % 2);
            end_job();
        }
    }

    __device__ void give_out(const Job &job, int place, int loads)
    {
        if (lane_of() == 0) {
            shared.jobs[place] = job;
            expect(&shared.full[place], loads * job.vectors * kVector);
        }
        __syncwarp();
    }

    __device__ void load_recipe(int number)
    {
        const Recipe &it = shared.recipes[number];
        const int loads = it.loads, end = it.end, chunk = it.chunk;
        const bool has_own = it.parts > 0 && it.rows > 0; // its part is in no slot
        const Source first = it.listed[lane_of()];
        if (it.parts > 0)
            order_bulk(); // behind the flags of the parts
        for (int at = it.at; at < end; at += chunk) {
            const int count = min(chunk, end - at), last = at + count == end;
            if (it.kind == TO_PEER)
                keep_out(it, at, count, last);
            const int place = begin_job(loads);
            give_out({it.kind, number, last, it.rows, it.parts, it.row_adds, next_slot, count,
                      outs - 1, it.to + at * kVector},
                     place, loads - (has_own ? kPlanes : 0));
            load(first, place, lane_of(), at, count);
            for (int n = kListed; n < loads; n += 32)
                load(source_of<T, W>(call, shared.shared, it, n + lane_of()), place, n + lane_of(),
                     at, count);
            next_slot += loads;
        }
    }

    // Words [at, at + count) of a source, to slot n of a job.
    __device__ void load(const Source &source, int place, int n, int at, int count) const
    {
        if (source.base)
            ::load(slots + (next_slot + n) * ring.vectors * kVector,
                   source.base + (int64_t)at * source.word + source.plane * count * kVector,
                   count * kVector, &shared.full[place]);
    }

    // Where the next sum goes, and the flag behind its last chunk.
    __device__ void keep_out(const Recipe &it, int at, int count, bool last)
    {
        while (outs - posted >= kKept)
            posted = see(&shared.posts.posted[0]);
        if (lane_of() == 0)
            shared.outs[outs % kKept] = {it.to + (int64_t)at * kPlanes * kVector,
                                         (uint32_t)(count * kPlanes * kVector), last ? it.rank : -1,
                                         it.flag};
        outs++;
    }
};

} // namespace

#endif

#endif
