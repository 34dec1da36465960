// What both kernels that move rows of experts share: the steps of a call, the flags that peers set,
// and the order of items. Each .cu file that includes this has its own copy of everything.
#ifndef MIMO_COMM_NCCL_MOVES_CUH
#define MIMO_COMM_NCCL_MOVES_CUH

#include "comm/nccl/nccl_expert_call.cuh"
#include "comm/nccl/nccl_moves_bugs.h"
#include "comm/nccl/nccl_moves_kernel.h"
#include "device/cuda_launch.cuh"

namespace
{

constexpr int kRound = 32;        // tokens of a rank that are dealt together
constexpr int kLag = 16;          // rounds that sums are behind what peers wait for
constexpr uint16_t kNoX = 0xffff; // a choice that is no pair

__device__ int lane_of()
{
    return threadIdx.x % 32;
}

// ------------------------------------------ a call ------------------------------------------

// The call that a launch makes. All threads have the same values.
struct Call {
    const mimo_expert_group &group;
    const mimo_expert_shape &shape;
    const mimo_route_tables &tables;
    uint64_t number;
    char *own; // the symmetric memory of this rank

    __device__ explicit Call(const mimo_moves &moves)
        : group(moves.group), shape(moves.group.shape), tables(moves.tables),
          number(number_of_call(moves.group)), own(part_of<char>(moves.group, moves.group.rank, 0))
    {
    }

    __device__ uint32_t flag() const
    {
        return (uint32_t)number;
    }

    // Whether a flag of this rank is set.
    __device__ bool has(int64_t offset) const
    {
        const uint32_t value = load_acquire((const uint32_t *)(own + offset));
        return value == flag() ||
               (MIMO_MOVES_BROKEN(MIMO_BUG_FLAG_OF_THE_CALL_BEFORE) && value == flag() - 1);
    }

    // Behind fence_system().
    __device__ void set(int rank, int64_t offset) const
    {
        store_relaxed(part_of<uint32_t>(group, rank, offset), flag());
    }
};

// How often a warp has looked in vain, and whether it has to give up.
struct Patience {
    uint32_t turns = 0;

    __device__ bool ends(const Call &call)
    {
        return __any_sync(~0u, gives_up(call.group, ++turns));
    }
};

// Wait until done() is true in all lanes. False: the call was refused or aborted.
template <class Done> __device__ bool await_all(const Call &call, Done done)
{
    for (Patience patience;;) {
        const bool mine = done();
        if (__all_sync(~0u, mine))
            return true;
        if (patience.ends(call))
            return false;
    }
}

// By one warp: whether the memory of peers may be written. It waits once.
class Peers
{
  public:
    __device__ bool may_write(const Call &call)
    {
        if (answer == UNKNOWN)
            answer = MIMO_MOVES_BROKEN(MIMO_BUG_NO_READY) || await_ready(call.group, call.number)
                         ? YES
                         : NO;
        return answer == YES;
    }

    __device__ bool refused() const
    {
        return answer == NO;
    }

  private:
    enum { UNKNOWN, YES, NO } answer = UNKNOWN;
};

// A number, or an address, of each rank. Lanes keep them: polls of flags empty the first cache, so
// each would be read from far away for every item. By all lanes of a warp, also `of`.
template <class T> class OfRanks
{
  public:
    __device__ OfRanks(const T *all, int ranks)
        : all(all), fit(ranks <= 32), mine(lane_of() < ranks ? (Word)all[lane_of()] : 0)
    {
    }

    // Of one of the ranks, another one in each lane.
    __device__ T of(int rank) const
    {
        return fit ? (T)__shfl_sync(~0u, mine, rank) : all[rank];
    }

  private:
    using Word = unsigned long long;

    const T *all;
    bool fit;
    Word mine;
};

// ------------------------------------------- items ------------------------------------------

// A token of a rank, and a piece of its row.
struct Item {
    int source, token, piece;
};

// By one warp: the most tokens of a rank.
__device__ int most_tokens(const Call &call)
{
    int most = 0;
    for (int rank = lane_of(); rank < call.shape.ranks; rank += 32)
        most = max(most, call.tables.tokens[rank]);
    return __reduce_max_sync(~0u, most);
}

// The items that one of `workers` workers takes: rounds of kRound tokens of each rank. `own_first`:
// this rank's own tokens lead, and those of peers are `lag` rounds behind; otherwise own tokens are
// behind. What leads waits for nothing but READY, and what is behind waits for what leads on peers.
//
// Why nobody waits for ever: a worker that waits has posted all of its items before. Say that no
// rank goes on, and take the earliest round in which a worker waits. What it waits for leads `lag`
// rounds before, on a peer. The worker there has posted it, or waits in an even earlier round.
class Order
{
  public:
    __device__ Order(const Call &call, int worker, int workers, int pieces, bool own_first, int lag)
        : call(call), tokens(call.tables.tokens, call.shape.ranks), pieces(pieces),
          own_first(own_first), lag(lag), span(call.shape.ranks * kRound * max(pieces, 1)),
          round(worker / span), within(worker - round * span), step_rounds(workers / span),
          step_within(workers - step_rounds * span)
    {
        end = pieces > 0 ? (most_tokens(call) + kRound - 1) / kRound + lag : 0;
    }

    // False: there is none left.
    __device__ bool next(Item &out)
    {
        while (round < end) {
            const bool found = find(out);
            advance();
            if (found)
                return true;
        }
        return false;
    }

    __device__ void stop()
    {
        end = 0;
    }

  private:
    const Call &call;
    OfRanks<int32_t> tokens;
    int pieces;
    bool own_first;
    int lag;
    int span; // items of a round
    int round, within;
    int step_rounds, step_within; // to the next item, without a division
    int end;

    __device__ void advance()
    {
        round += step_rounds;
        within += step_within;
        if (within >= span) {
            within -= span;
            round++;
        }
    }

    __device__ bool find(Item &out) const
    {
        const int ranks = call.shape.ranks, token = pieces == 1 ? within : within / pieces;
        const int turn = token / kRound;
        const bool leads = own_first ? turn == 0 : turn < ranks - 1;
        const int source = call.group.rank + turn + (own_first ? 0 : 1);
        out.piece = within - token * pieces;
        out.source = source < ranks ? source : source - ranks;
        out.token = (leads ? round : round - lag) * kRound + token % kRound;
        const int there = tokens.of(out.source);
        return out.token >= 0 && out.token < there;
    }
};

// Where the entries of a token of a rank begin in tables [P][N].
__device__ int64_t token_index(const Call &call, const Item &item)
{
    return (int64_t)item.source * call.shape.max_tokens + item.token;
}

// The row of this lane's choice of a token; -1: none (of a peer's token: none here).
__device__ int row_of_lane(const Call &call, const Item &item)
{
    const int k = call.shape.top_k, lane = lane_of();
    return lane < k ? call.tables.row[token_index(call, item) * k + lane] : -1;
}

// The x of this lane's choice of an own token.
__device__ uint16_t x_of_lane(const Call &call, int token)
{
    const int k = call.shape.top_k, lane = lane_of();
    return lane < k ? call.tables.x[(int64_t)token * k + lane] : kNoX;
}

// Call run(rank) for the peers of an x.
template <class Run> __device__ void for_peers_of(const Call &call, int x, Run run)
{
    const int first = x * call.shape.etp;
    for (int rank = first; rank < first + call.shape.etp; rank++)
        if (rank != call.group.rank)
            run(rank);
}

__device__ int own_x(const Call &call)
{
    return call.group.rank / call.shape.etp;
}

// Of a token of rank `source`, on the rank that it comes to.
__device__ int64_t row_flag(const Call &call, int tensor, int source, int token, int piece)
{
    const int64_t row =
        ((int64_t)tensor * call.shape.ranks + source) * call.shape.max_tokens + token;
    return call.group.at.row_flags + (row * MIMO_EXPERT_PIECES + piece) * (int64_t)sizeof(uint32_t);
}

// The number of a slot of a token's partial sums.
__device__ int64_t return_slot(const Call &call, int tensor, int token, int slot)
{
    return ((int64_t)tensor * call.shape.max_tokens + token) * call.shape.returns + slot;
}

__device__ int64_t return_flag(const Call &call, int64_t slot, int piece)
{
    return call.group.at.return_flags +
           (slot * MIMO_EXPERT_PIECES + piece) * (int64_t)sizeof(uint32_t);
}

// Values by pair of a rank's tokens.
__device__ int64_t pairs_of(const Call &call, int tensor, int source)
{
    const int64_t each = (int64_t)call.shape.max_tokens * call.shape.top_k;
    return call.group.at.pairs +
           ((int64_t)tensor * call.shape.ranks + source) * each * (int64_t)sizeof(uint64_t);
}

} // namespace

#endif
