// A set of a route: where the row of each pair lies, without the host.
//
//   route kernel  a cluster of 8 thread blocks, or one where the device has no clusters. Each warp
//                 takes a part of the pairs, by (token, choice)
//                   1. count the pairs of each expert in each warp; a pair's number in its warp
//                   2. add the counts of the warps before, in this block and in the others: a
//                      pair's *place* among this rank's pairs with its expert
//                   3. push ids, places and counts to all ranks
//                   4. the first block waits for those of all ranks. It adds up where each expert
//                      starts, and where each rank's pairs with it do
//   place kernel  a thread for each token of each rank: rows and programs (comm/expert_token.h).
//                 It waits for nobody
//
// So every rank knows the rows of all pairs by one addition each: O(P N k) of them, and no rank
// sorts or counts the ids of others.
#include <cooperative_groups.h>

#include "comm/expert_token.h"
#include "comm/nccl/nccl_expert_call.cuh"
#include "device/cuda_launch.cuh"

namespace
{

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kBatch = 4; // pairs that a lane reads at once
constexpr int kPlaceThreads = 128, kPlaceBlocks = 1024;

// --------------------------------------- the cluster ----------------------------------------

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
using Cluster = cooperative_groups::cluster_group;
__device__ Cluster this_cluster()
{
    return cooperative_groups::this_cluster();
}
#else
struct Cluster {
    __device__ void sync()
    {
        __syncthreads();
    }
    template <class T> __device__ T *map_shared_rank(T *at, int)
    {
        return at;
    }
};
__device__ Cluster this_cluster()
{
    return {};
}
#endif

// ------------------------------------- numbers of a block -----------------------------------

// In shared memory, [experts] each.
struct Counts {
    uint16_t *warps; // [kWarps]: pairs of a warp, then of the warps before it
    int32_t *block;  // pairs of this thread block
    int32_t *before; // of the thread blocks before it
    int32_t *rank;   // of all; later the rows of all ranks, rounded up
};

constexpr int kBytesOfExpert = kWarps * sizeof(uint16_t) + 3 * sizeof(int32_t);

__device__ Counts counts_in(char *shared, int experts)
{
    uint16_t *warps = (uint16_t *)shared;
    int32_t *block = (int32_t *)(warps + kWarps * experts);
    return {warps, block, block + experts, block + 2 * experts};
}

// The pairs of this warp.
struct Share {
    int first, end;
};

__device__ Share share_of_warp(const mimo_route_launch &it)
{
    const int pairs = it.tokens * it.group.shape.top_k, warps = gridDim.x * kWarps;
    const int each = (pairs + warps * 32 - 1) / (warps * 32) * 32;
    const int first = (blockIdx.x * kWarps + threadIdx.x / 32) * each;
    return {min(first, pairs), min(first + each, pairs)};
}

// What this rank tells is first written into its own inbox.
struct Told {
    uint16_t *id;
    uint32_t *place;
};

__device__ Told told_to(const mimo_expert_group &group, int peer)
{
    const int64_t first = (int64_t)group.rank * group.shape.max_tokens * group.shape.top_k;
    return {part_of<uint16_t>(group, peer, group.at.inbox_id) + first,
            part_of<uint32_t>(group, peer, group.at.inbox_place) + first};
}

// ------------------------------------------ counting ----------------------------------------

// The expert of a pair; -1: none.
__device__ int read_id(const mimo_route_launch &it, int pair)
{
    const int64_t id =
        it.wide ? ((const int64_t *)it.ids)[pair] : (int64_t)((const int32_t *)it.ids)[pair];
    const bool is_expert = id >= 0 && id < it.group.shape.experts;
    if (!is_expert && id != -1)
        atomicAdd(&it.group.counters->strays, 1u);
    return is_expert ? (int)id : -1;
}

// By a warp: the lanes with this lane's number, of `bits` bits. A ballot for each bit: match_any
// takes a turn for each different number.
__device__ uint32_t lanes_with(int number, int bits)
{
    uint32_t same = ~0u;
    for (int bit = 0; bit < bits; bit++) {
        const bool set = number >> bit & 1;
        const uint32_t with = __ballot_sync(~0u, set);
        same &= set ? with : ~with;
    }
    return same;
}

// By a warp: count a pair of each lane. Returns how many with its expert the warp had before it.
__device__ uint32_t count_pair(uint16_t *counts, int id, int bits)
{
    const uint32_t same = lanes_with(id, bits); // -1 differs from all experts in one bit
    const uint32_t below = same & ((1u << threadIdx.x % 32) - 1);
    const uint32_t had = id >= 0 ? counts[id] : 0;
    __syncwarp();
    if (id >= 0 && below == 0)
        counts[id] = (uint16_t)(had + __popc(same));
    __syncwarp();
    return had + __popc(below);
}

// Count the pairs of this warp, and note their ids and numbers.
__device__ void count_pairs(const mimo_route_launch &it, Share share, uint16_t *counts)
{
    const Told own = told_to(it.group, it.group.rank);
    const int bits = 32 - __clz(it.group.shape.experts);
    for (int first = share.first; first < share.end; first += 32 * kBatch) {
        int id[kBatch];
#pragma unroll
        for (int r = 0; r < kBatch; r++) {
            const int pair = first + r * 32 + threadIdx.x % 32;
            id[r] = pair < share.end ? read_id(it, pair) : -1;
        }
#pragma unroll
        for (int r = 0; r < kBatch; r++) {
            const int pair = first + r * 32 + threadIdx.x % 32;
            if (first + r * 32 >= share.end) // of the whole warp
                break;
            const uint32_t number = count_pair(counts, id[r], bits);
            if (pair < share.end) {
                own.id[pair] = (uint16_t)id[r];
                own.place[pair] = number;
            }
        }
    }
}

// counts.warps becomes the pairs of the warps before; counts.block their sum.
__device__ void add_warps(const Counts &counts, int experts)
{
    for (int e = threadIdx.x; e < experts; e += kThreads) {
        int sum = 0;
#pragma unroll
        for (int warp = 0; warp < kWarps; warp++) {
            uint16_t *at = &counts.warps[warp * experts + e];
            const int here = *at;
            *at = (uint16_t)sum;
            sum += here;
        }
        counts.block[e] = sum;
    }
}

__device__ void add_blocks(const Counts &counts, int experts, Cluster cluster)
{
    for (int e = threadIdx.x; e < experts; e += kThreads) {
        int before = 0, all = 0;
#pragma unroll
        for (int block = 0; block < MIMO_ROUTE_BLOCKS; block++)
            if (block < gridDim.x) {
                const int there = *cluster.map_shared_rank(&counts.block[e], block);
                before += block < blockIdx.x ? there : 0;
                all += there;
            }
        counts.before[e] = before;
        counts.rank[e] = all;
    }
}

// ------------------------------------------ telling -----------------------------------------

// A batch of pairs of each lane, as this rank tells them.
struct Batch {
    int id[kBatch];
    uint32_t place[kBatch];
};

__device__ Batch read_batch(const Told &own, const Counts &counts, int first, int end, int experts)
{
    const uint16_t *warp = counts.warps + threadIdx.x / 32 * experts;
    Batch batch;
#pragma unroll
    for (int r = 0; r < kBatch; r++) {
        const int pair = first + r * 32 + threadIdx.x % 32;
        batch.id[r] = pair < end ? own.id[pair] : MIMO_TOKEN_NONE;
        batch.place[r] = pair < end ? own.place[pair] : 0;
    }
#pragma unroll
    for (int r = 0; r < kBatch; r++)
        if (batch.id[r] != MIMO_TOKEN_NONE)
            batch.place[r] += warp[batch.id[r]] + counts.before[batch.id[r]];
    return batch;
}

__device__ void tell_batch(const Told &told, const Batch &batch, int first, int end)
{
#pragma unroll
    for (int r = 0; r < kBatch; r++) {
        const int pair = first + r * 32 + threadIdx.x % 32;
        if (pair < end) {
            told.id[pair] = (uint16_t)batch.id[r];
            told.place[pair] = batch.place[r];
        }
    }
}

// Ids and places, to all ranks. This rank is the last, as its own inbox has what the batch is read
// from.
__device__ void tell_pairs(const mimo_route_launch &it, Share share, const Counts &counts)
{
    const mimo_expert_group &group = it.group;
    const Told own = told_to(group, group.rank);
    for (int first = share.first; first < share.end; first += 32 * kBatch) {
        const Batch batch = read_batch(own, counts, first, share.end, group.shape.experts);
        for (int d = 1; d <= group.shape.ranks; d++) {
            const int peer = (group.rank + d) % group.shape.ranks;
            tell_batch(told_to(group, peer), batch, first, share.end);
        }
    }
}

// By the last thread block: how many pairs each expert has, and the rest.
__device__ void tell_counts(const mimo_route_launch &it, const Counts &counts)
{
    const mimo_expert_group &group = it.group;
    const int experts = group.shape.experts;
    for (int peer = 0; peer < group.shape.ranks; peer++) {
        int32_t *to = part_of<int32_t>(group, peer, group.at.inbox_count) + group.rank * experts;
        for (int e = threadIdx.x; e < experts; e += kThreads)
            to[e] = counts.rank[e];
        if (threadIdx.x == 0)
            part_of<mimo_inbox_head>(group, peer, group.at.inbox_head)[group.rank] = {it.tokens,
                                                                                      it.capacity};
    }
}

// Everything that this thread block told is there. One block sets the flags of all.
__device__ void set_arrived(const mimo_expert_group &group, uint64_t call)
{
    const int each = MIMO_ROUTE_BLOCKS / gridDim.x, first = blockIdx.x * each;
    __syncthreads();
    for (int i = threadIdx.x; i < group.shape.ranks * each; i += kThreads) {
        uint64_t *flags = part_of<uint64_t>(group, i / each, group.at.arrived);
        store_release(&flags[group.rank * MIMO_ROUTE_BLOCKS + first + i % each], call);
    }
}

// ------------------------------------------ knowing -----------------------------------------

// By all threads of a block: what all ranks told is here. False: the wait was ended.
__device__ bool await_arrived(const mimo_expert_group &group, uint64_t call)
{
    const uint64_t *flags = part_of<uint64_t>(group, group.rank, group.at.arrived);
    bool here = true;
    for (int i = threadIdx.x; i < group.shape.ranks * MIMO_ROUTE_BLOCKS && here; i += kThreads)
        for (uint32_t spin = 1; load_acquire(&flags[i]) < call && here; spin++)
            here = !gives_up(group, spin);
    return __syncthreads_and(here);
}

// By all lanes of a warp: the sum of the lanes up to this one.
__device__ uint32_t sum_up_to(uint32_t value)
{
    for (int step = 1; step < 32; step *= 2) {
        const uint32_t below = __shfl_up_sync(~0u, value, step);
        value += threadIdx.x % 32 >= step ? below : 0;
    }
    return value;
}

// By all threads of a block: values[0..count) becomes sums of the values up to each one. Sums wrap:
// only differences are used.
__device__ void scan(int32_t *values, int count)
{
    __shared__ uint32_t of_warp[kWarps];
    const int each = (count + kThreads - 1) / kThreads;
    const int first = min((int)threadIdx.x * each, count), end = min(first + each, count);
    uint32_t sum = 0;
    for (int i = first; i < end; i++)
        sum += (uint32_t)values[i];
    const uint32_t up_to = sum_up_to(sum);
    if (threadIdx.x % 32 == 31)
        of_warp[threadIdx.x / 32] = up_to;
    __syncthreads();
    if (threadIdx.x < 32)
        of_warp[threadIdx.x] = sum_up_to(of_warp[threadIdx.x]);
    __syncthreads();
    uint32_t at = up_to - sum + (threadIdx.x >= 32 ? of_warp[threadIdx.x / 32 - 1] : 0);
    for (int i = first; i < end; i++)
        values[i] = (int32_t)(at += (uint32_t)values[i]);
    __syncthreads();
}

// use(rank, pairs) for each rank in order: its pairs with an expert. Several loads are in flight at
// once.
template <class Use> __device__ void with_counts(const mimo_expert_group &group, int e, Use use)
{
    constexpr int kAhead = 8;
    const int ranks = group.shape.ranks;
    const int32_t *told = part_of<int32_t>(group, group.rank, group.at.inbox_count) + e;
    for (int first = 0; first < ranks; first += kAhead) {
        int32_t pairs[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; i++)
            pairs[i] = first + i < ranks ? __ldcg(&told[(first + i) * group.shape.experts]) : 0;
#pragma unroll
        for (int i = 0; i < kAhead; i++)
            if (first + i < ranks)
                use(first + i, pairs[i]);
    }
}

// Rows of each expert, with padding, into counts.rank.
__device__ void count_rows(const mimo_expert_group &group, const Counts &counts)
{
    const mimo_expert_shape &shape = group.shape;
    for (int e = threadIdx.x; e < shape.experts; e += kThreads) {
        uint32_t rows = 0;
        with_counts(group, e, [&](int, int32_t pairs) { rows += (uint32_t)pairs; });
        const uint32_t over = shape.alignment > 1 ? rows % shape.alignment : 0;
        counts.rank[e] = (int32_t)(rows + (over > 0 ? shape.alignment - over : 0));
    }
    __syncthreads();
}

// The rows of all experts before one.
__device__ uint32_t rows_before(const int32_t *sums, int e)
{
    return e > 0 ? (uint32_t)sums[e - 1] : 0;
}

// Rows that the tiles of an x need.
__device__ int32_t rows_needed(const int32_t *sums, int x, int held)
{
    return (int32_t)((uint32_t)sums[(x + 1) * held - 1] - rows_before(sums, x * held));
}

// Where an expert's rows begin and end in the tiles of its x, for each rank. `sums` are those of
// the rows.
__device__ void place_expert(const mimo_route_launch &it, const int32_t *sums, int e)
{
    const mimo_expert_shape &shape = it.group.shape;
    const int x = mimo_expert_x(&shape, e), local = e - x * shape.held;
    const uint32_t before = rows_before(sums, x * shape.held);
    int32_t at = (int32_t)(rows_before(sums, e) - before);
    with_counts(it.group, e, [&](int rank, int32_t pairs) {
        it.tables.starts[rank * shape.experts + e] = at;
        at += pairs;
    });
    if (x == it.group.rank / shape.etp) {
        it.tables.filled[local] = at;
        it.tables.ends[local] = (int32_t)((uint32_t)sums[e] - before);
    }
}

// By all threads of a block: the sizes of tiles, and what the report of the dispatch needs.
__device__ void measure_tiles(const mimo_route_launch &it, const int32_t *sums)
{
    const mimo_expert_shape &shape = it.group.shape;
    const mimo_inbox_head *heads =
        part_of<mimo_inbox_head>(it.group, it.group.rank, it.group.at.inbox_head);
    bool small = false;
    for (int rank = threadIdx.x; rank < shape.ranks; rank += kThreads) {
        const int x = rank / shape.etp, rows = rows_needed(sums, x, shape.held);
        const int32_t capacity = __ldcg(&heads[rank].capacity);
        it.tables.tokens[rank] = __ldcg(&heads[rank].tokens);
        it.tables.capacity[rank] = capacity;
        it.tables.needed[x] = rows;
        atomicMax(&it.group.counters->rows, rows);
        small = small || rows > capacity;
    }
    small = __syncthreads_or(small);
    if (threadIdx.x == 0) {
        it.group.counters->routes++;
        it.group.counters->overflows += small;
    }
}

__device__ void know(const mimo_route_launch &it, const Counts &counts)
{
    const mimo_expert_shape &shape = it.group.shape;
    count_rows(it.group, counts);
    scan(counts.rank, shape.experts);
    for (int e = threadIdx.x; e < shape.experts; e += kThreads)
        place_expert(it, counts.rank, e);
    measure_tiles(it, counts.rank);
}

// The set was ended: a route without tokens, by which no move waits for anything.
__device__ void forget(const mimo_route_launch &it)
{
    const mimo_expert_shape &shape = it.group.shape;
    for (int rank = threadIdx.x; rank < shape.ranks; rank += kThreads)
        it.tables.tokens[rank] = it.tables.capacity[rank] = 0;
    for (int x = threadIdx.x; x < shape.ep; x += kThreads)
        it.tables.needed[x] = 0;
    for (int local = threadIdx.x; local < shape.held; local += kThreads)
        it.tables.ends[local] = it.tables.filled[local] = 0;
}

// --------------------------------------- the kernels ----------------------------------------

__global__ void __launch_bounds__(kThreads, 1)
    route_kernel(const __grid_constant__ mimo_route_launch it)
{
    extern __shared__ __align__(16) char shared[];
    __shared__ bool ready;
    const mimo_expert_group &group = it.group;
    const int experts = group.shape.experts, warp = threadIdx.x / 32;
    const Counts counts = counts_in(shared, experts);
    const Share share = share_of_warp(it);
    Cluster cluster = this_cluster();
    await_stream();
    const uint64_t call = number_of_call(group);
    begin_call(group, call);
    for (int i = threadIdx.x; i < kWarps / 2 * experts; i += kThreads)
        ((uint32_t *)counts.warps)[i] = 0;
    __syncthreads();
    count_pairs(it, share, counts.warps + warp * experts);
    __syncthreads();
    add_warps(counts, experts);
    cluster.sync();
    add_blocks(counts, experts, cluster);
    if (warp == kWarps - 1) {
        const bool all = await_ready(group, call);
        if (threadIdx.x % 32 == 0)
            ready = all;
    }
    cluster.sync(); // blocks have read each other's counts
    if (ready) {
        tell_pairs(it, share, counts);
        if (blockIdx.x == gridDim.x - 1)
            tell_counts(it, counts);
        set_arrived(group, call);
    }
    if (blockIdx.x > 0)
        return;
    if (await_arrived(group, call))
        know(it, counts);
    else
        forget(it);
}

// What a rank knows of a token's pairs, by choice.
template <int kMost> struct Pairs {
    uint16_t id[kMost];
    int x[kMost];       // MIMO_TOKEN_NONE: no pair
    int32_t row[kMost]; // -1: no pair, or of another rank
};

// All loads come first, so that they are in flight together. `at` is the token's number, over all
// ranks.
template <int kMost>
__device__ Pairs<kMost> read_pairs(const mimo_route_launch &it, int rank, int64_t at)
{
    const mimo_expert_group &group = it.group;
    const mimo_expert_shape &shape = group.shape;
    const int here = group.rank / shape.etp, k = shape.top_k;
    const uint16_t *ids = part_of<uint16_t>(group, group.rank, group.at.inbox_id) + at * k;
    const uint32_t *places = part_of<uint32_t>(group, group.rank, group.at.inbox_place) + at * k;
    const int32_t *starts = it.tables.starts + rank * shape.experts;
    Pairs<kMost> pairs;
    uint32_t place[kMost];
#pragma unroll
    for (int j = 0; j < kMost; j++) {
        pairs.id[j] = j < k ? ids[j] : (uint16_t)MIMO_TOKEN_NONE;
        place[j] = j < k ? places[j] : 0;
    }
#pragma unroll
    for (int j = 0; j < kMost; j++) {
        const bool pair = pairs.id[j] != MIMO_TOKEN_NONE;
        pairs.x[j] = pair ? mimo_expert_x(&shape, pairs.id[j]) : (int)MIMO_TOKEN_NONE;
        const bool needed = pair && (rank == group.rank || pairs.x[j] == here);
        pairs.row[j] = needed ? starts[pairs.id[j]] + (int32_t)place[j] : -1;
    }
    return pairs;
}

// Whether a row lies behind the end of a tile: of any rank, of those of this rank's x.
struct Lost {
    bool any, here;
};

template <int kMost>
__device__ Lost find_lost(const mimo_route_launch &it, const Pairs<kMost> &pairs)
{
    const mimo_expert_shape &shape = it.group.shape;
    const int here = it.group.rank / shape.etp;
    Lost lost = {false, false};
    for (int t = 0; t < shape.etp; t++) {
#pragma unroll
        for (int j = 0; j < kMost; j++) {
            const bool held = pairs.row[j] >= 0;
            const int32_t rows = held ? it.tables.capacity[pairs.x[j] * shape.etp + t] : INT32_MAX;
            lost.any |= pairs.row[j] >= rows;
            lost.here |= pairs.row[j] >= rows && pairs.x[j] == here;
        }
    }
    return lost;
}

template <int kMost>
__device__ void write_rows(const mimo_route_launch &it, int64_t at, const Pairs<kMost> &pairs)
{
    const int k = it.group.shape.top_k;
#pragma unroll
    for (int j = 0; j < kMost; j++)
        if (j < k)
            it.tables.row[at * k + j] = pairs.row[j];
}

template <int kMost>
__device__ void write_xs(const mimo_route_launch &it, int token, const Pairs<kMost> &pairs)
{
    const int k = it.group.shape.top_k;
#pragma unroll
    for (int j = 0; j < kMost; j++)
        if (j < k)
            it.tables.x[token * k + j] = (uint16_t)pairs.x[j];
}

template <int kMost> __device__ void write_program(uint64_t *to, const uint64_t *program)
{
#pragma unroll
    for (int w = 0; w < mimo_words_of(kMost); w++)
        to[w] = program[w];
}

// A token of any rank: its rows, and the sum of those here.
template <int kMost> __device__ void place_token(const mimo_route_launch &it, int64_t at)
{
    const mimo_expert_shape &shape = it.group.shape;
    const int rank = (int)mimo_divide((uint32_t)at, shape.by_tokens);
    const int token = (int)(at - (int64_t)rank * shape.max_tokens);
    const Pairs<kMost> pairs = read_pairs<kMost>(it, rank, at);
    uint64_t program[2];
    mimo_token sorted;
    if (token >= it.tables.tokens[rank])
        return;
    const Lost lost = find_lost<kMost>(it, pairs);
    write_rows<kMost>(it, at, pairs);
    mimo_token_read(&sorted, pairs.id, kMost, kMost);
    mimo_partial_program(program, &sorted, &shape, it.group.rank / shape.etp, lost.here, kMost);
    write_program<kMost>(it.tables.partial + at * mimo_words_of(kMost), program);
}

// A token of this rank: where its pairs are, and the sum of what it gets.
template <int kMost> __device__ void place_own(const mimo_route_launch &it, int token)
{
    const mimo_expert_shape &shape = it.group.shape;
    const int rank = it.group.rank;
    const Pairs<kMost> pairs =
        read_pairs<kMost>(it, rank, (int64_t)rank * shape.max_tokens + token);
    uint64_t program[2];
    mimo_token sorted;
    if (token >= it.tables.tokens[rank])
        return;
    const Lost lost = find_lost<kMost>(it, pairs);
    write_xs<kMost>(it, token, pairs);
    mimo_token_read(&sorted, pairs.id, kMost, kMost);
    mimo_total_program(program, &sorted, &shape, lost.any, kMost);
    write_program<kMost>(it.tables.total + token * mimo_words_of(kMost), program);
}

// Tokens of all ranks, then once more those of this one: other threads find their other sums.
template <int kMost>
__global__ void __launch_bounds__(kPlaceThreads)
    place_kernel(const __grid_constant__ mimo_route_launch it)
{
    const mimo_expert_shape &shape = it.group.shape;
    await_stream();
    const uint64_t call = number_of_call(it.group);
    const int64_t tokens = (int64_t)shape.ranks * shape.max_tokens;
    for (int64_t i = (int64_t)blockIdx.x * kPlaceThreads + threadIdx.x;
         i < tokens + shape.max_tokens; i += (int64_t)gridDim.x * kPlaceThreads)
        if (i < tokens)
            place_token<kMost>(it, i);
        else
            place_own<kMost>(it, (int)(i - tokens));
    if (blockIdx.x == 0 && threadIdx.x == 0)
        mimo_shared_program(it.tables.shared, &shape);
    finish_call(it.group, call);
}

// ----------------------------------------- launches -----------------------------------------

constexpr int kRouteAttributes = 2;

void describe_route(cudaLaunchConfig_t &config, cudaLaunchAttribute *attributes, int blocks,
                    int shared_bytes)
{
    attributes[0] = attributes[1] = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = blocks;
    attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = shared_bytes;
    config.attrs = attributes;
    config.numAttrs = blocks > 1 ? kRouteAttributes : 0;
}

cudaError_t launch_route(const mimo_route_launch &launch, int blocks, cudaStream_t stream)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attributes[kRouteAttributes];
    void *arguments[] = {const_cast<mimo_route_launch *>(&launch)};
    describe_route(config, attributes, blocks, kBytesOfExpert * launch.group.shape.experts);
    config.stream = stream;
    return cudaLaunchKernelExC(&config, (const void *)route_kernel, arguments);
}

cudaError_t launch_place(const mimo_route_launch &launch, cudaStream_t stream)
{
    const mimo_expert_shape &shape = launch.group.shape;
    const int64_t tokens = ((int64_t)shape.ranks + 1) * shape.max_tokens;
    const int64_t blocks = (tokens + kPlaceThreads - 1) / kPlaceThreads;
    const dim3 grid((unsigned)(blocks < 1 ? 1 : blocks < kPlaceBlocks ? blocks : kPlaceBlocks));
    void (*kernel)(mimo_route_launch) = shape.words == 1 ? place_kernel<MIMO_PROGRAM_LEAVES_1>
                                                         : place_kernel<MIMO_PROGRAM_LEAVES_2>;
    return launch_early(kernel, grid, dim3(kPlaceThreads), 0, stream, launch);
}

} // namespace

// Shapes of several dispatches: the largest one counts, and no call may take less back.
static cudaError_t allow_shared(int bytes)
{
    cudaFuncAttributes code;
    cudaError_t status = cudaFuncGetAttributes(&code, route_kernel);
    if (status != cudaSuccess || code.maxDynamicSharedSizeBytes >= bytes)
        return status;
    status = cudaFuncSetAttribute(route_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    (void)cudaGetLastError(); // it is the caller's to report
    return status;
}

// Whether a cluster of the route kernel ever fits the current device: a part of one may have too
// few multiprocessors that are near each other.
static cudaError_t has_clusters(bool *out, int shared_bytes)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attributes[kRouteAttributes];
    int fit = 0;
    cudaError_t status = runs_hopper_code(out, (const void *)route_kernel);
    if (status != cudaSuccess || !*out)
        return status;
    describe_route(config, attributes, MIMO_ROUTE_BLOCKS, shared_bytes);
    status = cudaOccupancyMaxActiveClusters(&fit, route_kernel, &config);
    if (status != cudaSuccess)
        (void)cudaGetLastError(); // then there are none
    *out = status == cudaSuccess && fit > 0;
    return cudaSuccess;
}

// Found once for a device and thread: a thread block fills a multiprocessor whatever the shape.
static cudaError_t blocks_of_device(int *blocks, const mimo_expert_shape &shape)
{
    static thread_local int last = -1, found;
    int device;
    bool clusters;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess && device != last) {
        status = has_clusters(&clusters, kBytesOfExpert * shape.experts);
        found = clusters ? (int)MIMO_ROUTE_BLOCKS : 1;
        last = status == cudaSuccess ? device : -1;
    }
    *blocks = found;
    return status;
}

cudaError_t mimo_route_kernels_load(int *blocks, const mimo_expert_shape *shape)
{
    cudaError_t status = load_kernels(route_kernel, place_kernel<MIMO_PROGRAM_LEAVES_1>,
                                      place_kernel<MIMO_PROGRAM_LEAVES_2>);
    if (status == cudaSuccess)
        status = allow_shared(kBytesOfExpert * shape->experts);
    return status == cudaSuccess ? blocks_of_device(blocks, *shape) : status;
}

cudaError_t mimo_route_kernels(const mimo_route_launch *launch, cudaStream_t stream)
{
    int blocks;
    cudaError_t status = blocks_of_device(&blocks, launch->group.shape);
    if (status == cudaSuccess)
        status = launch_route(*launch, launch->blocks > 0 ? launch->blocks : blocks, stream);
    return status == cudaSuccess ? launch_place(*launch, stream) : status;
}
