// `combine` in bulk, for Hopper and later: each rank adds what it has of a token and sends the sum
// to the token's rank, which adds the sums. Rows are multiples of 16 bytes.
//
// A thread block is a pipeline. Its producer looks for tokens, waits for parts of peers and loads
// in bulk what is added: *jobs*, each a chunk of a token. Two groups of warps add, in turn. What
// goes to a peer they leave in shared memory. The storer writes it to the peer in bulk, and the
// poster sets the flags behind it. So warps that add wait for nothing but loads, and a wait of the
// producer holds nothing back: see Order.
#ifndef MIMO_COMM_NCCL_COMBINE_BULK_CUH
#define MIMO_COMM_NCCL_COMBINE_BULK_CUH

#include <algorithm>

#include "comm/nccl/nccl_pairs.cuh"
#include "comm/nccl/nccl_pump.cuh"
#include "comm/nccl/nccl_return_items.cuh"
#include "comm/nccl/nccl_sums.cuh"

namespace
{

#if MIMO_HAS_BULK

constexpr int kGroups = 2, kGroupWarps = 8;
constexpr int kAdders = kGroups * kGroupWarps;
constexpr int kProducer = kAdders, kStorer = kAdders + 1, kPoster = kAdders + 2;
constexpr int kVectors = kGroupWarps * 32; // words of 16 bytes of a job, at most
constexpr int kJobs = 16;                  // on their way
constexpr int kOuts = 4;                   // buffers of sums that are written to peers
constexpr uint32_t kKept = 32; // of these sums, those whose flags may be still to be set
constexpr int kVector = 16;

// How a row is cut: into pieces with a flag each, and these into chunks. In words of 16 bytes.
struct Cut {
    int vectors, piece, pieces, chunk;

    __device__ Cut(const Call &call, const mimo_moves_tensor &tensor, int fill, int most)
    {
        const int items = max(1, most_tokens(call) * call.shape.ranks);
        vectors = (int)(tensor.row_bytes / kVector);
        pieces = min(max(1, (fill + items - 1) / items), MIMO_EXPERT_PIECES);
        piece = max(1, (vectors + pieces - 1) / pieces);
        pieces = (vectors + piece - 1) / piece;
        const int chunks = (piece + most - 1) / most;
        chunk = (piece + chunks - 1) / chunks;
    }

    __device__ int end(int number) const
    {
        return min(vectors, (number + 1) * piece);
    }
};

// ------------------------------------------- shared -----------------------------------------

enum JobKind { TO_PEER, RESULT, LOST, END };

// A chunk that is added.
struct Job {
    JobKind kind;
    int first, vectors; // its first slot in the ring, and words
    uint32_t out;       // TO_PEER: the number of the sum that goes to a peer
    Program partial, total;
    char *to; // RESULT, LOST: where the result goes
};

// A sum that goes to a peer.
struct Out {
    char *to;
    uint32_t bytes;
    int rank;     // whose flag is set behind it; -1: none
    int64_t flag; // its offset there
};

struct Shared {
    Job jobs[kJobs];
    int used[kJobs]; // slots
    Out outs[kKept];
    Posts<1> posts;
    uint32_t all_outs; // their number, once it is known; before, ~0
    Program shared;
    uint64_t full[kJobs], empty[kJobs];         // mbarriers: loaded; added
    uint64_t out_full[kOuts], out_empty[kOuts]; // the sum is there; it was read
};

// What a launch is told beside the call.
struct Ring {
    int vectors; // of a slot
    int slots;
};

__device__ void init_barrier_of(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
}

__device__ void arrive(uint64_t *barrier)
{
    asm volatile(
        "mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
        : "memory");
}

// Whether a phase has ended, without a wait.
__device__ bool has_ended(uint64_t *barrier, uint32_t phase)
{
    uint32_t ended;
    asm volatile("{\n"
                 ".reg .pred ended;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, ended;\n"
                 "}\n"
                 : "=r"(ended)
                 : "r"(shared_address(barrier)), "r"(phase)
                 : "memory");
    return ended != 0;
}

// Order bulk copies that follow after this thread's writes to shared memory.
__device__ void order_shared()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ void open_shared(const Call &call, Shared &shared)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < kJobs; i++) {
            init_barrier_of(&shared.full[i], 1);
            init_barrier_of(&shared.empty[i], kGroupWarps);
        }
        for (int i = 0; i < kOuts; i++) {
            init_barrier_of(&shared.out_full[i], kGroupWarps);
            init_barrier_of(&shared.out_empty[i], 1);
        }
        shared.all_outs = ~0u;
        shared.shared = Program::read(call, call.tables.shared, 0);
    }
    open_posts(shared.posts);
    open_barriers();
}

// ------------------------------------------ producer ----------------------------------------

// Elements of T are added; parts travel as W.
template <class T, class W> class Producer
{
  public:
    __device__ Producer(const Call &call, Shared &shared, char *slots, const Ring &ring)
        : call(call), shared(shared), slots(slots), ring(ring), free_slots(ring.slots)
    {
    }

    // The items of a tensor. False: the call has stopped.
    __device__ bool run(const mimo_moves_tensor &tensor, int index, int fill)
    {
        const Cut cut(call, tensor, fill, ring.vectors);
        Order order(call, blockIdx.x, gridDim.x, cut.pieces, false);
        for (Item item; tensor.row_bytes > 0 && order.next(item);) {
            const Programs of(call, item);
            if (!of.moves())
                continue;
            if (of.own && !await_parts(call, index, item, of, shared.shared))
                return false;
            order_bulk(); // behind the flags
            const int row = row_of_lane(call, item), end = cut.end(item.piece);
            for (int at = item.piece * cut.piece; at < end; at += cut.chunk)
                add_chunk({tensor, index, item, of, row}, at, min(cut.chunk, end - at),
                          at + cut.chunk >= end);
        }
        return true;
    }

    __device__ void end()
    {
        for (int group = 0; group < kGroups; group++) {
            const int at = begin_job(0);
            if (lane_of() == 0) {
                shared.jobs[at].kind = END;
                expect(&shared.full[at], 0);
            }
        }
        if (lane_of() == 0)
            store_release_shared(&shared.all_outs, outs);
    }

  private:
    static constexpr int kPlanes = sizeof(W) / sizeof(T);

    struct Token {
        const mimo_moves_tensor &tensor;
        int index;
        const Item &item;
        const Programs &of;
        int row; // of this lane's choice
    };

    const Call &call;
    Shared &shared;
    char *slots;
    Ring ring;
    int free_slots, next_slot = 0;
    uint32_t jobs = 0, ended = 0; // given out; known to be added
    uint32_t outs = 0;

    // Wait until a job has room. Returns its place.
    __device__ int begin_job(int needed)
    {
        while (jobs - ended == kJobs || free_slots < needed) {
            await(&shared.empty[ended % kJobs], ended / kJobs % 2);
            free_slots += shared.used[ended++ % kJobs];
        }
        const int at = jobs++ % kJobs;
        free_slots -= needed;
        __syncwarp();
        if (lane_of() == 0)
            shared.used[at] = needed;
        return at;
    }

    __device__ char *slot(int first, int n) const
    {
        const int at = first + n;
        return slots + (int64_t)(at < ring.slots ? at : at - ring.slots) * ring.vectors * kVector;
    }

    // Words [at, at + count) of a token's sum.
    __device__ void add_chunk(const Token &token, int at, int count, bool last)
    {
        const Programs &of = token.of;
        const bool lost = of.own && of.total.lost();
        const int leaves = lost ? 0 : of.partial.leaves(), parts = of.parts(call) * kPlanes;
        const int place = begin_job(leaves + parts), first = next_slot;
        next_slot = (first + leaves + parts) % ring.slots;
        if (!of.own)
            keep_out(token, at, count, last);
        const int own_parts = of.own && parts > 0 && leaves > 0 ? kPlanes : 0;
        if (lane_of() == 0) {
            Job &job = shared.jobs[place];
            job.kind = lost ? LOST : of.own ? RESULT : TO_PEER;
            job.first = first;
            job.vectors = count;
            job.out = outs - 1;
            job.partial = of.partial;
            job.total = of.total;
            job.to = token.tensor.to + token.item.token * token.tensor.row_bytes + at * kVector;
            expect(&shared.full[place], (leaves + parts - own_parts) * count * kVector);
        }
        __syncwarp();
        load_rows(token, place, first, at, count);
        load_parts(token, place, first + leaves, at, count);
    }

    __device__ void load_rows(const Token &token, int place, int first, int at, int count) const
    {
        const int v = lane_of(), leaves = token.of.partial.leaves();
        const bool mine = v < leaves && !(token.of.own && token.of.total.lost());
        const int64_t row = __shfl_sync(~0u, token.row, mine ? token.of.partial.leaf(v) : 0);
        if (mine)
            ::load(slot(first, v), token.tensor.from + row * token.tensor.row_bytes + at * kVector,
                   count * kVector, &shared.full[place]);
    }

    // A part of several planes lies plane by plane within each chunk.
    __device__ void load_parts(const Token &token, int place, int first, int at, int count) const
    {
        const char *memory = call.group.memory[call.group.rank];
        for (int n = lane_of(); n < token.of.parts(call) * kPlanes; n += 32) {
            const int number = n / kPlanes, plane = n - number * kPlanes;
            const Part part =
                part_of_sum(call, token.of.partial, token.of.total, shared.shared, number);
            const int64_t from =
                slot_offset(call, return_slot(call, token.index, token.item.token, part.slot));
            if (!part.own)
                ::load(slot(first, n),
                       memory + from + (int64_t)(at * kPlanes + plane * count) * kVector,
                       count * kVector, &shared.full[place]);
        }
    }

    // Where the next sum goes, and the flag behind its last chunk.
    __device__ void keep_out(const Token &token, int at, int count, bool last)
    {
        const int64_t place = own_slot(call, token.index, token.item, token.of);
        const int rank = token.item.source;
        while (outs - __shfl_sync(~0u, load_acquire_shared(&shared.posts.posted[0]), 0) >= kKept)
            ;
        if (lane_of() == 0)
            shared.outs[outs % kKept] = {part_of<char>(call.group, rank, slot_offset(call, place)) +
                                             (int64_t)at * kPlanes * kVector,
                                         (uint32_t)(count * kPlanes * kVector), last ? rank : -1,
                                         return_flag(call, place, token.item.piece)};
        __syncwarp();
        outs++;
    }
};

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
            const Job &job = shared.jobs[number % kJobs];
            await(&shared.full[number % kJobs], number / kJobs % 2);
            if (job.kind == END)
                return;
            add(job, (threadIdx.x - group * kVectors) % kVectors, number);
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

    __device__ void add(const Job &job, int at, uint32_t number)
    {
        const bool mine = at < job.vectors;
        Vector sum = {};
        if (mine && job.kind != LOST)
            sum = add_rows(job, at);
        if (mine && job.kind == RESULT)
            sum = add_parts(job, at, sum);
        if (mine && job.kind == LOST)
            for (Type &value : sum.at)
                value = NAN;
        if (mine && job.kind != TO_PEER)
            __stcs((uint4 *)job.to + at, pack<T>(sum, 0));
        if (job.kind == TO_PEER)
            leave(job, at, sum);
        __syncwarp();
        if (lane_of() == 0)
            arrive(&shared.empty[number % kJobs]);
    }

    __device__ uint4 word(int n, int at) const
    {
        const int slot = n < ring.slots ? n : n - ring.slots;
        return *(const uint4 *)(slots + ((int64_t)slot * ring.vectors + at) * kVector);
    }

    // This rank's rows. They are read before they are added, eight at a time.
    __device__ Vector add_rows(const Job &job, int at) const
    {
        constexpr int kRead = MIMO_PROGRAM_LEAVES_1;
        const Program program = job.partial;
        const int leaves = program.leaves(), first = job.first;
        Sum<Type, kElements, MIMO_PROGRAM_BELOW> sum;
        for (int begin = 0; begin < leaves; begin += kRead) {
            uint4 words[kRead];
#pragma unroll
            for (int i = 0; i < kRead; i++)
                if (begin + i < leaves)
                    words[i] = word(first + begin + i, at);
#pragma unroll
            for (int i = 0; i < kRead; i++)
                if (begin + i < leaves) {
                    Vector leaf;
                    unpack<T>(leaf, words[i], 0);
                    sum.visit(leaf, program.adds(begin + i));
                }
        }
        return sum.top;
    }

    // The parts of an own token, of which `own` is this rank's, rounded as if it had travelled.
    __device__ Vector add_parts(const Job &job, int at, Vector own) const
    {
        const Program total = job.total, shared_sum = shared.shared;
        const Program partial = job.partial;
        const int leaves = partial.leaves(), parts = total.leaves() * call.shape.etp;
        Sum<Type, kElements, kBelow> sum;
        round_to<W>(own);
        for (int number = 0; number < parts; number++) {
            Vector part = own;
            if (!part_of_sum(call, partial, total, shared_sum, number).own)
#pragma unroll
                for (int plane = 0; plane < kPlanes; plane++)
                    unpack<W>(part, word(job.first + leaves + number * kPlanes + plane, at),
                              plane * (kElements / kPlanes));
            sum.visit(part, adds_of_part(call, total, shared_sum, number));
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

    // False: there is no more. Whoever waits has published what it wrote.
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
        order_bulk(); // behind READY
        if (MIMO_MOVES_BROKEN(MIMO_BUG_POST_BEFORE_WRITE)) {
            publish(stored + 1);
            __nanosleep(1000000);
        }
        if (writes)
            ::store(out.to, outs + stored % kOuts * buffer_bytes, out.bytes);
        else
            out.rank = -1;
        commit_stores();
        await_reads<1>();
        empty(stored);
        if (stored + 1 > kBehind) {
            await_writes<kBehind>();
            publish(stored + 1 - kBehind);
        }
    }

    // Buffers of the sums before number `end` were read.
    __device__ void empty(uint32_t end)
    {
        for (; emptied != end; emptied++)
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

__device__ void add_pairs(const Call &call, const mimo_moves_call &program)
{
    Peers peers;
    for (int i = 0; i < program.count; i++)
        if (program.tensors[i].by_pair && program.tensors[i].row_bytes == sizeof(float))
            move_pair_sums<float>(call, program.tensors, i, peers);
        else if (program.tensors[i].by_pair)
            move_pair_sums<double>(call, program.tensors, i, peers);
}

#if MIMO_HAS_BULK

template <class T, class W>
__device__ void produce(const Call &call, const mimo_moves_call &program, Shared &shared,
                        char *slots, const Ring &ring)
{
    Producer<T, W> producer(call, shared, slots, ring);
    bool goes_on = true;
    for (int i = 0; i < program.count && goes_on; i++)
        if (!program.tensors[i].by_pair)
            goes_on = producer.run(program.tensors[i], i, program.moves.fill);
    producer.end();
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
    else if (warp == kProducer)
        produce<T, W>(call, arguments.call, shared, slots, ring);
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

constexpr int kThreads = 20 * 32; // adders, producer, storer, poster; one warp for values by pair

template <class T, class W, int kBelow>
__global__ void __launch_bounds__(kThreads, 1)
    combine_in_bulk(const __grid_constant__ Arguments arguments)
{
    extern __shared__ __align__(128) char memory[];
    await_stream();
    const Call call(arguments.call.moves);
    set_ready(call.group, call.number);
    run<T, W, kBelow>(call, arguments, memory);
    finish_call(call.group, call.number);
}

// ------------------------------------------- host -------------------------------------------

constexpr int kRingBytes = 160 << 10, kMostVectors = 256, kBuffers = 4;

// Slots that a job may take: rows of a token, and parts that come back.
int most_leaves(const mimo_expert_shape &shape, int planes)
{
    return shape.top_k + shape.returns * planes;
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
    const int vectors = std::min(kMostVectors, fit);
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
