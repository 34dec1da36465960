// `rows`: each token's row goes once to each rank that has experts of it, straight into its lowest
// row there, which the receiver copies to the token's other rows. One kernel does both: what is
// copied was just written, and the link and the memory are busy at the same time.
//
// A thread block has movers, a poster that sets the flags of peers behind what they wrote, and a
// warp for values by pair. Movers copy in bulk, except rows that are no multiples of 16 bytes, and
// except on devices before Hopper.
#include "comm/nccl/nccl_pairs.cuh"
#include "comm/nccl/nccl_pump.cuh"
#include "comm/nccl/nccl_row_items.cuh"

namespace
{

constexpr int kMovers = 7;
constexpr int kStages = 2;       // rows of a mover in shared memory
constexpr uint32_t kKept = 16;   // items of a mover whose flags may be still to be set
constexpr int kPoster = kMovers; // its number; the last warp moves values by pair
constexpr int kWarps = kMovers + 2;

// --------------------------------------- loads and stores -----------------------------------

template <class Word> __device__ void copy_words(char *to, const char *from, int64_t bytes)
{
    for (int64_t at = lane_of(); at < bytes / (int64_t)sizeof(Word); at += 32)
        ((Word *)to)[at] = __ldcg((const Word *)from + at);
}

// Copy a chunk by one warp. Peers wrote it perhaps, so it is not read through the first cache.
__device__ void copy_chunk(char *to, const char *from, int64_t bytes)
{
    const uint64_t all = (uint64_t)to | (uint64_t)from | (uint64_t)bytes;
    if (all % 16 == 0)
        copy_words<uint4>(to, from, bytes);
    else if (all % 8 == 0)
        copy_words<uint2>(to, from, bytes);
    else if (all % 4 == 0)
        copy_words<unsigned int>(to, from, bytes);
    else if (all % 2 == 0)
        copy_words<unsigned short>(to, from, bytes);
    else
        copy_words<unsigned char>(to, from, bytes);
}

// A mover's items of one tensor, one after the other, each with its flags.
__device__ void move_by_words(RowItems &items, const Call &call, Peers &peers, Sent &sent)
{
    const RowFlags flags(call);
    const char *from;
    for (;;) {
        const RowItems::Found found = items.next(sent, from);
        if (found == RowItems::NONE)
            return;
        if (found == RowItems::WAITS)
            continue;
        if (items.is_remote(sent) && !peers.may_write(call)) {
            items.stop();
            continue;
        }
        for (int j = 0; j < call.shape.top_k; j++)
            items.for_rows(sent, j, [&](char *to) { copy_chunk(to, from, sent.bytes); });
        order_flags();
        flags.set(sent, lane_of());
        __syncwarp();
    }
}

// ------------------------------------------- padding ----------------------------------------

__device__ void zero_bytes(char *to, int64_t bytes)
{
    const bool wide = ((uint64_t)to | (uint64_t)bytes) % 16 == 0;
    for (int64_t at = lane_of() * 16; wide && at < bytes; at += 32 * 16)
        *(uint4 *)(to + at) = make_uint4(0, 0, 0, 0);
    for (int64_t at = lane_of(); !wide && at < bytes; at += 32)
        to[at] = 0;
}

// The rows between experts, as far as the tile has them.
__device__ void zero_padding(const Call &call, const mimo_moves_tensor &tensor, int worker,
                             int workers)
{
    for (int l = worker; l < call.shape.held; l += workers) {
        const int64_t first = call.tables.filled[l];
        const int64_t end = min(call.tables.ends[l], call.tables.capacity[call.group.rank]);
        if (first < end)
            zero_bytes(tensor.to + first * tensor.row_bytes, (end - first) * tensor.row_bytes);
    }
}

// ------------------------------------------ warps -------------------------------------------

// The tensors of a call.
struct Tensors {
    const mimo_moves_tensor *list;
    int count;
    bool bulk; // rows move in bulk, where they can
};

struct Mover {
    Sent kept[kKept]; // items on their way
    Sent sent;        // one that is moved by words
};

struct Shared {
    Mover movers[kMovers];
    Posts<kMovers> posts;
#if MIMO_HAS_BULK
    PumpRing<kStages> rings[kMovers];
#endif
};

__device__ void move_pairs(const Call &call, const Tensors &tensors)
{
    const Worker worker = {(int)blockIdx.x, (int)gridDim.x};
    Peers peers;
    if (blockIdx.x == 0)
        peers.may_write(call); // also where this rank writes nothing: calls are compared
    for (int i = 0; i < tensors.count; i++) {
        const mimo_moves_tensor &tensor = tensors.list[i];
        if (!tensor.by_pair)
            continue;
        if (tensor.row_bytes == sizeof(float))
            move_pair_rows<float>(call, tensors.list, i, worker, peers);
        else
            move_pair_rows<double>(call, tensors.list, i, worker, peers);
        zero_padding(call, tensor, blockIdx.x, gridDim.x);
    }
}

#if MIMO_HAS_BULK

__device__ bool is_bulk(const mimo_moves_tensor &tensor, int rank)
{
    const uint64_t all = (uint64_t)tensor.from | (uint64_t)tensor.to | (uint64_t)tensor.row_bytes |
                         (uint64_t)tensor.there[rank] | (uint64_t)tensor.at;
    return all % 16 == 0;
}

// What a pump asks about the items of a tensor.
struct PumpedRows {
    RowItems &items;
    const Call &call;
    Peers &peers;
    Sent *kept;

    __device__ Next next(uint32_t number, PumpLoad &out)
    {
        Sent &sent = kept[number % kKept];
        const RowItems::Found found = items.next(sent, out.from);
        if (found != RowItems::HERE)
            return found == RowItems::NONE ? NO_MORE : LATER;
        out.bytes = sent.bytes;
        order_bulk(); // behind the flag that said so
        return TAKEN;
    }

    __device__ bool may_store(uint32_t number)
    {
        if (!items.is_remote(kept[number % kKept]))
            return !peers.refused();
        if (!peers.may_write(call)) {
            items.stop();
            return false;
        }
        order_bulk(); // behind READY
        return true;
    }

    __device__ void store(uint32_t number, const char *stage) const
    {
        const Sent &sent = kept[number % kKept];
        items.for_rows(sent, lane_of(), [&](char *to) { ::store(to, stage, sent.bytes); });
    }
};

#endif

// By one mover: the items of all tensors that it takes.
__device__ void move_rows(const Call &call, const Tensors &tensors, Shared &shared, char *stages)
{
    const int warp = threadIdx.x / 32;
    const int worker = warp * gridDim.x + blockIdx.x, workers = kMovers * gridDim.x;
    Mover &mover = shared.movers[warp];
    Peers peers;
#if MIMO_HAS_BULK
    const PumpCounts counts = {&shared.posts.written[warp], &shared.posts.posted[warp],
                               &shared.posts.ended[warp]};
    Pump<kStages, 1, 1, kKept> pump(shared.rings[warp], stages + warp * kStages * kStage,
                                    (uint32_t)kStage, counts);
#endif
    for (int i = 0; i < tensors.count; i++) {
        const mimo_moves_tensor &tensor = tensors.list[i];
        if (tensor.by_pair)
            continue;
        RowItems items(call, tensors.list, i, worker, workers);
#if MIMO_HAS_BULK
        if (tensors.bulk && is_bulk(tensor, call.group.rank)) {
            PumpedRows pumped = {items, call, peers, mover.kept};
            pump.run(pumped);
        } else
#endif
            move_by_words(items, call, peers, mover.sent);
        zero_padding(call, tensor, worker, workers);
    }
#if MIMO_HAS_BULK
    pump.end();
#endif
}

#if MIMO_HAS_BULK

__device__ void open_shared(Shared &shared)
{
    if (threadIdx.x < kMovers)
        open_ring(shared.rings[threadIdx.x]);
    open_posts(shared.posts);
    open_barriers();
}

// By the poster: the flags of items [first, end) of a mover, two items at a time.
__device__ void set_flags(const RowFlags &flags, const Mover &mover, uint32_t first, uint32_t end)
{
    for (; first < end; first += 2) {
        const uint32_t number = first + lane_of() / 16;
        const int none = MIMO_EXPERT_MOST_TOP_K;
        flags.set(mover.kept[number % kKept], number < end ? lane_of() % 16 : none);
    }
}

__device__ void run_poster(const Call &call, Shared &shared)
{
    const RowFlags flags(call);
    post_flags(shared.posts, [&](int writer, uint32_t first, uint32_t end) {
        set_flags(flags, shared.movers[writer], first, end);
    });
}

#else

__device__ void open_shared(Shared &)
{
}

__device__ void run_poster(const Call &, Shared &)
{
}

#endif

// ------------------------------------------ kernel ------------------------------------------

// Arguments of a launch. The host needs time for each of them, so few tensors have a kernel of
// their own.
template <int kMost> struct Arguments {
    mimo_moves moves;
    int32_t count;
    bool bulk;
    mimo_moves_tensor tensors[kMost];
};

template <int kMost>
__global__ void __launch_bounds__(kWarps * 32, 1)
    move_to_experts(const __grid_constant__ Arguments<kMost> arguments)
{
    extern __shared__ __align__(128) char stages[];
    __shared__ Shared shared;
    const int warp = threadIdx.x / 32;
    await_stream();
    const Call call(arguments.moves);
    const Tensors tensors = {arguments.tensors, arguments.count, arguments.bulk};
    begin_call(call.group, call.number);
    open_shared(shared);
    if (warp < kMovers)
        move_rows(call, tensors, shared, stages);
    else if (warp == kPoster)
        run_poster(call, shared);
    else
        move_pairs(call, tensors);
    finish_call(call.group, call.number);
}

// ------------------------------------------- host -------------------------------------------

constexpr int kFew = 3; // tensors
constexpr int kStageBytes = kMovers * kStages * (int)kStage;

cudaError_t runs_bulk(bool *out)
{
    return runs_hopper_code_with(out, (const void *)move_to_experts<kFew>,
                                 kStageBytes + sizeof(Shared));
}

template <int kMost>
cudaError_t enqueue(const mimo_moves_call &call, int blocks, cudaStream_t stream)
{
    Arguments<kMost> arguments = {call.moves, call.count, false, {}};
    for (int i = 0; i < call.count; i++)
        arguments.tensors[i] = call.tensors[i];
    const cudaError_t status = runs_bulk(&arguments.bulk);
    if (status != cudaSuccess)
        return status;
    return launch_early(move_to_experts<kMost>, blocks, kWarps * 32,
                        arguments.bulk ? kStageBytes : 0, stream, arguments);
}

template <int kMost> cudaError_t allow_shared_memory()
{
    return cudaFuncSetAttribute(move_to_experts<kMost>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                kStageBytes);
}

} // namespace

cudaError_t mimo_rows_launch(const mimo_moves_call *call, int blocks, cudaStream_t stream)
{
    const cudaError_t status = mimo_moves_gate_launch(&call->moves, stream);
    if (status != cudaSuccess)
        return status;
    return call->count <= kFew ? enqueue<kFew>(*call, blocks, stream)
                               : enqueue<MIMO_MOVES_TENSORS>(*call, blocks, stream);
}

cudaError_t mimo_rows_load(void)
{
    bool bulk;
    cudaError_t status = runs_bulk(&bulk);
    if (status == cudaSuccess)
        status = mimo_moves_gate_load();
    if (status == cudaSuccess)
        status = load_kernels(move_to_experts<kFew>, move_to_experts<MIMO_MOVES_TENSORS>);
    if (status == cudaSuccess && bulk)
        status = allow_shared_memory<kFew>();
    if (status == cudaSuccess && bulk)
        status = allow_shared_memory<MIMO_MOVES_TENSORS>();
    return status;
}
