// `combine` in bulk, for Hopper and later: each rank adds what it has of a token and sends the sum
// to the token's rank, which adds the sums. Rows are multiples of 16 bytes.
//
// A thread block is a pipeline:
//
//   scouts   look for tokens, wait for parts of peers, and write a *recipe* of each token
//   loader   loads in bulk what is added: *jobs*, each a chunk of a token
//   adders   two groups of warps, which take jobs in turn. A sum for a peer stays in shared memory
//   storer   writes it to the peer in bulk
//   poster   sets the flags behind it; one more warp adds values by pair
//
// So adders wait for loads alone, and a scout that waits for a peer holds nothing back: the loader
// takes the recipes of the other one. One warp that did the work of scouts and loader took 2 us a
// job, and adders waited for it half of the time (H200).
#ifndef MIMO_COMM_NCCL_COMBINE_BULK_CUH
#define MIMO_COMM_NCCL_COMBINE_BULK_CUH

#include <algorithm>

#include "comm/nccl/nccl_combine_load.cuh"
#include "comm/nccl/nccl_pairs.cuh"
#include "comm/nccl/nccl_sums.cuh"

namespace
{

#if MIMO_HAS_BULK

// ------------------------------------------- adders -----------------------------------------

template <class T, class W, int kBelow> class Adder
{
  public:
    __device__ Adder(const Call &call, Shared &shared, char *slots, char *outs, const Ring &ring)
        : call(call), shared(shared), slots(slots), outs(outs), ring(ring)
    {
    }

    // Groups take jobs in turn.
    __device__ void run(int group)
    {
        for (uint32_t number = group;; number += kGroups) {
            await(&shared.full[number % kJobs], number / kJobs % 2);
            const Job job = shared.jobs[number % kJobs];
            if (job.kind == END)
                return;
            add(job, threadIdx.x - group * kVectors);
            __syncwarp();
            if (lane_of() == 0)
                arrive(&shared.empty[number % kJobs]);
        }
    }

  private:
    static constexpr int kElements = kVector / sizeof(T), kPlanes = sizeof(W) / sizeof(T);
    using Type = typename Added<T>::Type;
    using Vector = Values<Type, kElements>;

    const Call &call;
    Shared &shared;
    char *slots, *outs;
    Ring ring;

    __device__ void add(const Job &job, int at)
    {
        const bool mine = at < job.vectors;
        const RecipeKind kind = job.kind;
        Vector sum = {};
        if (mine && kind != LOST)
            sum = add_rows(job, at);
        if (mine && kind == RESULT)
            sum = add_parts(job, at, sum);
        if (mine && kind == LOST)
            for (Type &value : sum.at)
                value = NAN;
        if (mine && kind != TO_PEER)
            __stcs((uint4 *)job.to + at, pack<T>(sum, 0));
        if (kind == TO_PEER)
            leave(job, at, sum);
    }

    // This thread's word of a slot.
    __device__ const char *word(int slot, int at) const
    {
        return slots + ((int64_t)slot * ring.vectors + at) * kVector;
    }

    // This rank's rows. The next one is read while one is added. The loop is not unrolled: adders
    // waited for instructions then.
    __device__ Vector add_rows(const Job &job, int at) const
    {
        const int rows = job.rows, pitch = ring.vectors * kVector;
        const char *from = word(job.first, at);
        uint64_t adds = job.row_adds;
        Sum<Type, kElements, MIMO_PROGRAM_BELOW> sum;
        uint4 next = rows > 0 ? *(const uint4 *)from : uint4();
#pragma unroll 1
        for (int i = 0; i < rows; i++, adds >>= 4) {
            Vector leaf;
            unpack<T>(leaf, next, 0);
            from += pitch;
            if (i + 1 < rows)
                next = *(const uint4 *)from;
            sum.visit(leaf, (int)adds & 15, i == 0);
        }
        return sum.top;
    }

    // The parts of an own token, of which `own` is this rank's, rounded as if it had travelled.
    __device__ Vector add_parts(const Job &job, int at, Vector own) const
    {
        const uint8_t *adds = shared.recipes[job.recipe].part_adds;
        const int parts = job.parts, pitch = ring.vectors * kVector;
        const char *from = word(job.first + job.rows, at);
        Sum<Type, kElements, kBelow> sum;
        round_to<W>(own);
#pragma unroll 1
        for (int n = 0; n < parts; n++, from += kPlanes * pitch) {
            const int word = adds[n];
            Vector part = own;
            if (!(word & OWN_PART))
#pragma unroll
                for (int plane = 0; plane < kPlanes; plane++)
                    unpack<W>(part, *(const uint4 *)(from + plane * pitch),
                              plane * (kElements / kPlanes));
            sum.visit(part, word & ~OWN_PART, n == 0);
        }
        return sum.top;
    }

    // Leave a sum for the storer.
    __device__ void leave(const Job &job, int at, const Vector &sum)
    {
        const uint32_t buffer = job.out % kOuts;
        char *to = outs + (int64_t)buffer * kVectors * kPlanes * kVector;
        await(&shared.out_empty[buffer], job.out / kOuts % 2 ^ 1);
        if (at < job.vectors)
#pragma unroll
            for (int plane = 0; plane < kPlanes; plane++)
                *(uint4 *)(to + (int64_t)(plane * job.vectors + at) * kVector) =
                    pack<W>(sum, plane * (kElements / kPlanes));
        order_shared();
        __syncwarp();
        if (lane_of() == 0)
            arrive(&shared.out_full[buffer]);
    }
};

// ------------------------------------------- storer -----------------------------------------

// Writes sums to peers, and publishes how many are written. By one warp; its first lane copies.
class Storer
{
  public:
    __device__ Storer(const Call &call, Shared &shared, const char *outs, uint32_t buffer_bytes)
        : call(call), shared(shared), outs(outs), buffer_bytes(buffer_bytes)
    {
    }

    __device__ void run()
    {
        while (await_out()) {
            const bool writes = peers.may_write(call);
            if (stored == 0)
                order_bulk(); // behind READY
            if (lane_of() == 0)
                write(writes);
            stored++;
            __syncwarp();
        }
        if (lane_of() == 0)
            store_release_shared(&shared.posts.ended[0], 1);
    }

  private:
    static constexpr uint32_t kBehind = 4; // sums whose writes are on their way

    const Call &call;
    Shared &shared;
    const char *outs;
    uint32_t buffer_bytes;
    Peers peers;
    uint32_t stored = 0, emptied = 0;

    // False: there is no more. A warp that waits here has published what it wrote.
    __device__ bool await_out()
    {
        bool more = true;
        if (lane_of() == 0 && !is_full()) {
            await_reads<0>();
            empty(stored);
            await_writes<0>();
            publish(stored);
            while (more && !is_full())
                more = load_acquire_shared(&shared.all_outs) != stored;
        }
        return __shfl_sync(~0u, more, 0);
    }

    __device__ bool is_full()
    {
        return has_ended(&shared.out_full[stored % kOuts], stored / kOuts % 2);
    }

    __device__ void write(bool writes)
    {
        Out &out = shared.outs[stored % kKept];
        if (MIMO_MOVES_BROKEN(MIMO_BUG_POST_BEFORE_WRITE)) {
            publish(stored + 1);
            __nanosleep(1000000);
        }
        if (writes)
            ::store(out.to, outs + stored % kOuts * buffer_bytes, out.bytes);
        else
            out.rank = -1;
        commit_stores();
        await_reads<kOuts - 2>();
        empty(stored - (kOuts - 3));
        if (stored + 1 > kBehind) {
            await_writes<kBehind>();
            publish(stored + 1 - kBehind);
        }
    }

    // Buffers of the sums before number `end` were read.
    __device__ void empty(uint32_t end)
    {
        for (; (int32_t)(end - emptied) > 0; emptied++)
            arrive(&shared.out_empty[emptied % kOuts]);
    }

    __device__ void publish(uint32_t written)
    {
        store_release_shared(&shared.posts.written[0], written);
    }
};

__device__ void run_poster(const Call &call, Shared &shared)
{
    post_flags(shared.posts, [&](int, uint32_t first, uint32_t end) {
        for (uint32_t number = first + lane_of(); number < end; number += 32) {
            const Out &out = shared.outs[number % kKept];
            if (out.rank >= 0)
                call.set(out.rank, out.flag);
        }
    });
}

#endif

// ------------------------------------------ kernel ------------------------------------------

struct Arguments {
    mimo_moves_call call;
    int vectors, slots; // of the ring
};

#if MIMO_HAS_BULK

__device__ void add_pairs(const Call &call, const mimo_moves_call &program)
{
    const Worker worker = {(int)blockIdx.x, (int)gridDim.x};
    Peers peers;
    if (blockIdx.x == 0)
        peers.may_write(call); // also where this rank writes nothing: calls are compared
    for (int i = 0; i < program.count; i++)
        if (program.tensors[i].by_pair && program.tensors[i].row_bytes == sizeof(float))
            move_pair_sums<float>(call, program.tensors, i, worker, peers);
        else if (program.tensors[i].by_pair)
            move_pair_sums<double>(call, program.tensors, i, worker, peers);
}

template <class T, class W>
__device__ void run_scout(const Call &call, const Arguments &arguments, Shared &shared, int number)
{
    const mimo_moves_call &program = arguments.call;
    Scout<T, W> scout(call, shared, number);
    bool goes_on = true;
    for (int i = 0; i < program.count && goes_on; i++)
        if (!program.tensors[i].by_pair)
            goes_on =
                scout.run(program.tensors[i], i,
                          Cut(call, program.tensors[i], program.moves.fill, arguments.vectors));
    scout.end();
}

template <class T, class W, int kBelow>
__device__ void run(const Call &call, const Arguments &arguments, char *memory)
{
    constexpr int kOutBytes = kVectors * kVector * (sizeof(W) / sizeof(T));
    __shared__ Shared shared;
    char *outs = memory, *slots = memory + kOuts * kOutBytes;
    const int warp = threadIdx.x / 32;
    const Ring ring = {arguments.vectors, arguments.slots};
    open_shared(call, shared);
    if (warp < kAdders)
        Adder<T, W, kBelow>(call, shared, slots, outs, ring).run(warp / kGroupWarps);
    else if (warp < kLoader)
        run_scout<T, W>(call, arguments, shared, warp - kAdders);
    else if (warp == kLoader)
        Loader<T, W>(call, shared, slots, ring).run();
    else if (warp == kStorer)
        Storer(call, shared, outs, kOutBytes).run();
    else if (warp == kPoster)
        run_poster(call, shared);
    else
        add_pairs(call, arguments.call);
}

#else

template <class T, class W, int kBelow> __device__ void run(const Call &, const Arguments &, char *)
{
}

#endif

constexpr int kThreads = 20 * 32; // the last warp adds values by pair

template <class T, class W, int kBelow>
__global__ void __launch_bounds__(kThreads, 1)
    combine_in_bulk(const __grid_constant__ Arguments arguments)
{
    extern __shared__ __align__(128) char memory[];
    await_stream();
    const Call call(arguments.call.moves);
    begin_call(call.group, call.number);
    run<T, W, kBelow>(call, arguments, memory);
    finish_call(call.group, call.number);
}

// ------------------------------------------- host -------------------------------------------

constexpr int kRingBytes = 176 << 10, kMostVectors = 224, kBuffers = 4;
constexpr int kStaticBytes = 18 << 10; // of Shared, at most
#if MIMO_HAS_BULK
static_assert(kMostVectors == kVectors && kBuffers == kOuts && kThreads == (kPoster + 2) * 32 &&
                  sizeof(Shared) <= kStaticBytes,
              "the kernel has the same");
#endif

// Slots that a job may take: rows of a token, and parts that come back.
int most_leaves(const mimo_expert_shape &shape, int planes)
{
    return shape.top_k + shape.returns * planes;
}

// Words of the longest chunk, where rows are cut as evenly as possible.
int longest_chunk(const mimo_moves_call &call)
{
    int64_t longest = 1;
    for (int i = 0; i < call.count; i++) {
        const int64_t vectors = call.tensors[i].by_pair ? 0 : call.tensors[i].row_bytes / 16;
        const int64_t chunks = (vectors + kMostVectors - 1) / kMostVectors;
        longest = std::max(longest, chunks > 0 ? (vectors + chunks - 1) / chunks : 0);
    }
    return (int)longest;
}

template <class T, class W, int kBelow> constexpr int shared_bytes()
{
    return kRingBytes + kBuffers * kMostVectors * 16 * (int)(sizeof(W) / sizeof(T));
}

template <class T, class W, int kBelow>
cudaError_t enqueue(const mimo_moves_call &call, int blocks, cudaStream_t stream)
{
    const int planes = sizeof(W) / sizeof(T);
    const int fit = kRingBytes / 16 / most_leaves(call.moves.group.shape, planes);
    const int vectors = std::min(longest_chunk(call), fit);
    const Arguments arguments = {call, vectors, kRingBytes / 16 / vectors};
    return launch_early(combine_in_bulk<T, W, kBelow>, blocks, kThreads,
                        shared_bytes<T, W, kBelow>(), stream, arguments);
}

template <class T, class W, int kBelow> cudaError_t allow_shared_memory()
{
    return cudaFuncSetAttribute(combine_in_bulk<T, W, kBelow>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                shared_bytes<T, W, kBelow>());
}

} // namespace

#endif
