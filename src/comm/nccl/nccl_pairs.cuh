// Values by pair, such as weights and their gradients: [tokens, k] of tokens, [rows] of experts.
// One warp moves those of a round of tokens at a time, by loads and stores, and sets the flags of
// the round itself. They travel through `pairs` of the memory that ranks share.
#ifndef MIMO_COMM_NCCL_PAIRS_CUH
#define MIMO_COMM_NCCL_PAIRS_CUH

#include "comm/nccl/nccl_moves.cuh"
#include "core/sum_program.h"

namespace
{

// Which rounds a warp takes.
struct Worker {
    int number, count;
};

// The tokens of one round of a source.
struct PairRound {
    int source, first, count; // count: at most 32, one of each lane
};

// Call run(round) for the rounds of a source that this worker takes, up to the first false.
template <class Run>
__device__ bool for_rounds(const Call &call, int source, const Worker &worker, Run run)
{
    const int tokens = call.tables.tokens[source];
    for (int first = worker.number * kRound; first < tokens; first += worker.count * kRound)
        if (!run(PairRound{source, first, min(kRound, tokens - first)}))
            return false;
    return true;
}

// Call run(token, j, at) for the pairs of a round, by all lanes; `at` counts pairs of the source.
template <class Run> __device__ void for_pairs(const Call &call, const PairRound &round, Run run)
{
    const int k = call.shape.top_k;
    for (int n = lane_of(); n < round.count * k; n += 32)
        run(round.first + n / k, n % k, (int64_t)round.first * k + n);
}

// The row of pair `at` of a source.
__device__ int row_of_pair(const Call &call, int source, int64_t at)
{
    return call.tables.row[(int64_t)source * call.shape.max_tokens * call.shape.top_k + at];
}

// Call run(rank) once for each peer that has a row of this lane's token of the round.
template <class Run> __device__ void for_peers_of_token(const Call &call, int token, Run run)
{
    const int k = call.shape.top_k;
    const uint16_t *x = call.tables.x + (int64_t)token * k;
    for (int j = 0; j < k; j++) {
        bool first = x[j] != kNoX;
        for (int before = 0; before < j; before++)
            first = first && x[before] != x[j];
        if (first)
            for_peers_of(call, x[j], run);
    }
}

// The writes of all lanes come before the flags that these lanes set behind it.
__device__ void order_flags()
{
    __syncwarp();
    fence_system();
}

// Where the values of a source's pairs lie on a rank.
template <class Value>
__device__ Value *inbox_of(const Call &call, int index, int rank, int source, int64_t at)
{
    return part_of<Value>(call.group, rank,
                          pairs_of(call, index, source) + at * (int64_t)sizeof(uint64_t));
}

// ------------------------------------------- rows -------------------------------------------

template <class Value> struct PairRows {
    const Call &call;
    const mimo_moves_tensor &tensor;
    int index;

    __device__ Value *inbox(int rank, int source, int64_t at) const
    {
        return inbox_of<Value>(call, index, rank, source, at);
    }

    __device__ void place(int64_t row, Value value) const
    {
        if (row >= 0 && row < call.tables.capacity[call.group.rank])
            ((Value *)tensor.to)[row] = value;
    }

    // To all peers: each takes those that it has rows of.
    __device__ bool send(const PairRound &round) const
    {
        for_pairs(call, round, [&](int token, int j, int64_t at) {
            const Value value = ((const Value *)tensor.from)[at];
            for (int rank = 0; rank < call.shape.ranks; rank++)
                if (rank != call.group.rank)
                    *inbox(rank, call.group.rank, at) = value;
            if (call.tables.x[at] == own_x(call))
                place(row_of_pair(call, call.group.rank, at), value);
        });
        order_flags();
        if (lane_of() < round.count)
            for_peers_of_token(call, round.first + lane_of(), [&](int rank) {
                call.set(rank, row_flag(call, index, call.group.rank, round.first + lane_of(), 0));
            });
        return true;
    }

    // Whether this lane's token has no row here, or its values have arrived.
    __device__ bool has_arrived(const PairRound &round) const
    {
        const int k = call.shape.top_k, token = round.first + lane_of();
        bool here = false;
        for (int j = 0; j < k && lane_of() < round.count; j++)
            here = here || row_of_pair(call, round.source, (int64_t)token * k + j) >= 0;
        return !here || call.has(row_flag(call, index, round.source, token, 0));
    }

    __device__ bool receive(const PairRound &round) const
    {
        if (!await_all(call, [&] { return has_arrived(round); }))
            return false;
        for_pairs(call, round, [&](int, int, int64_t at) {
            const int row = row_of_pair(call, round.source, at);
            if (row >= 0)
                place(row, __ldcg(inbox(call.group.rank, round.source, at)));
        });
        return true;
    }
};

template <class Value>
__device__ void move_pair_rows(const Call &call, const mimo_moves_tensor *tensors, int index,
                               const Worker &worker, Peers &peers)
{
    const PairRows<Value> pairs = {call, tensors[index], index};
    bool goes_on = for_rounds(call, call.group.rank, worker, [&](const PairRound &round) {
        return peers.may_write(call) && pairs.send(round);
    });
    for (int n = 1; n < call.shape.ranks && goes_on; n++)
        goes_on = for_rounds(call, (call.group.rank + n) % call.shape.ranks, worker,
                             [&](const PairRound &round) { return pairs.receive(round); });
}

// ------------------------------------------ combine -----------------------------------------

template <class Value> struct PairSums {
    const Call &call;
    const mimo_moves_tensor &tensor;
    int index;

    __device__ Value *inbox(int rank, int source, int64_t at) const
    {
        return inbox_of<Value>(call, index, rank, source, at);
    }

    __device__ const uint64_t *partial_of(int source, int token) const
    {
        return call.tables.partial +
               ((int64_t)source * call.shape.max_tokens + token) * call.shape.words;
    }

    // Of a peer's tokens, into its memory.
    __device__ bool send(const PairRound &round) const
    {
        for_pairs(call, round, [&](int, int, int64_t at) {
            const int row = row_of_pair(call, round.source, at);
            if (row >= 0 && row < call.tables.capacity[call.group.rank])
                *inbox(round.source, call.group.rank, at) = ((const Value *)tensor.from)[row];
        });
        order_flags();
        post(round);
        return true;
    }

    // A flag of this lane's token, in this rank's slot there.
    __device__ void post(const PairRound &round) const
    {
        const int token = round.first + lane_of(), k = call.shape.top_k;
        bool here = false;
        for (int j = 0; j < k && lane_of() < round.count; j++)
            here = here || row_of_pair(call, round.source, (int64_t)token * k + j) >= 0;
        if (!here)
            return;
        const int n = mimo_program_ordinal(partial_of(round.source, token), call.shape.words);
        const int slot = n * call.shape.etp + call.group.rank % call.shape.etp;
        call.set(round.source, return_flag(call, return_slot(call, index, token, slot), 0));
    }

    // The number of this x among those of the token.
    __device__ int ordinal_of(int token, int x) const
    {
        const int k = call.shape.top_k;
        const uint16_t *all = call.tables.x + (int64_t)token * k;
        int ordinal = 0;
        for (int j = 0; j < k; j++) {
            bool counts = all[j] < x;
            for (int before = 0; before < j; before++)
                counts = counts && all[before] != all[j];
            ordinal += counts;
        }
        return ordinal;
    }

    __device__ bool is_lost(int x, int row) const
    {
        const int etp = call.shape.etp;
        bool lost = false;
        for (int rank = x * etp; rank < (x + 1) * etp; rank++)
            lost = lost || row >= call.tables.capacity[rank];
        return lost;
    }

    // Whether all parts of a pair have arrived.
    __device__ bool has_arrived(int token, int x) const
    {
        const int first = ordinal_of(token, x) * call.shape.etp - x * call.shape.etp;
        bool all = true;
        for_peers_of(call, x, [&](int rank) {
            const int64_t slot = return_slot(call, index, token, first + rank);
            all = all && call.has(return_flag(call, slot, 0));
        });
        return all;
    }

    __device__ Value part(int rank, int64_t at, int row) const
    {
        return rank == call.group.rank ? ((const Value *)tensor.from)[row]
                                       : __ldcg(inbox(call.group.rank, rank, at));
    }

    // The parts of a pair from the ranks of its x, by their tree.
    __device__ Value sum(int x, int64_t at, int row) const
    {
        const mimo_expert_shape &shape = call.shape;
        const uint64_t *program = call.tables.shared;
        Value open[MIMO_PROGRAM_BELOW + 2];
        int depth = 0;
        for (int v = 0; v < shape.etp; v++) {
            const int t = mimo_program_leaf(program, shape.words, v);
            open[depth++] = part(x * shape.etp + t, at, row);
            for (int n = mimo_program_adds(program, shape.words, v); n > 0; n--, depth--)
                open[depth - 2] += open[depth - 1];
        }
        return open[0];
    }

    // Of this rank's own tokens.
    __device__ bool receive(const PairRound &round) const
    {
        const int pairs = round.count * call.shape.top_k;
        for (int n = lane_of(); __any_sync(~0u, n < pairs); n += 32) {
            const int64_t at = (int64_t)round.first * call.shape.top_k + n;
            const int token = round.first + n / call.shape.top_k;
            const int x = n < pairs ? call.tables.x[at] : kNoX;
            const int row = x == kNoX ? -1 : row_of_pair(call, call.group.rank, at);
            const bool lost = x != kNoX && is_lost(x, row);
            if (!await_all(call, [&] { return x == kNoX || lost || has_arrived(token, x); }))
                return false;
            if (n < pairs)
                ((Value *)tensor.to)[at] = lost        ? (Value)NAN
                                           : x == kNoX ? (Value)0
                                                       : sum(x, at, row);
        }
        return true;
    }
};

template <class Value>
__device__ void move_pair_sums(const Call &call, const mimo_moves_tensor *tensors, int index,
                               const Worker &worker, Peers &peers)
{
    const PairSums<Value> pairs = {call, tensors[index], index};
    bool goes_on = true;
    for (int n = 1; n < call.shape.ranks && goes_on; n++)
        goes_on = for_rounds(
            call, (call.group.rank + n) % call.shape.ranks, worker,
            [&](const PairRound &round) { return peers.may_write(call) && pairs.send(round); });
    if (goes_on)
        for_rounds(call, call.group.rank, worker,
                   [&](const PairRound &round) { return pairs.receive(round); });
}

} // namespace

#endif
