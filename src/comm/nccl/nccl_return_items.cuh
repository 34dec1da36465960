// The items of `combine`: a piece of a token's sum. Of a peer's token, what this rank adds of it,
// which goes to the peer. Of an own token, its result, for which peers' parts are awaited.
#ifndef MIMO_COMM_NCCL_RETURN_ITEMS_CUH
#define MIMO_COMM_NCCL_RETURN_ITEMS_CUH

#include "comm/nccl/nccl_moves.cuh"
#include "core/sum_program.h"

namespace
{

// A program in registers.
struct Program {
    uint64_t word[2];
    int words;

    // Where there is one.
    __device__ static Program read(const Call &call, const uint64_t *from, int64_t index)
    {
        const int words = call.shape.words;
        return {{from[index * words], words > 1 ? from[index * words + 1] : 0}, words};
    }

    __device__ int leaves() const
    {
        return mimo_program_leaves(word, words);
    }

    __device__ int ordinal() const
    {
        return mimo_program_ordinal(word, words);
    }

    __device__ bool lost() const
    {
        return mimo_program_lost(word, words);
    }

    __device__ int leaf(int v) const
    {
        return mimo_program_leaf(word, words, v);
    }

    __device__ int adds(int v) const
    {
        return mimo_program_adds(word, words, v);
    }
};

// The programs of a token: what this rank adds of it, and of an own token what comes back.
struct Programs {
    Program partial, total;
    bool own;

    Programs() = default;

    __device__ Programs(const Call &call, const Item &item)
        : partial(Program::read(call, call.tables.partial, token_index(call, item))),
          own(item.source == call.group.rank)
    {
        total =
            own ? Program::read(call, call.tables.total, item.token) : Program{{}, partial.words};
    }

    // Whether there is anything to do.
    __device__ bool moves() const
    {
        return own || (partial.leaves() > 0 && !partial.lost());
    }

    // Parts of an own token that come back, this rank's own one included: at most.
    __device__ int parts(const Call &call) const
    {
        return own && !total.lost() ? total.leaves() * call.shape.etp : 0;
    }
};

// A part of a token's sum: the slot that it comes to, and whether it is this rank's own, which
// comes to none.
struct Part {
    int slot;
    bool own;
};

// Part number u * etp + w: visit u of the total, visit w of the ranks of an x.
__device__ Part part_of_sum(const Call &call, const Program &partial, const Program &total,
                            const Program &shared, int number)
{
    const int etp = call.shape.etp, u = etp == 1 ? number : number / etp, w = number - u * etp;
    const int n = total.leaf(u), t = shared.leaf(w);
    return {n * etp + t,
            partial.leaves() > 0 && n == partial.ordinal() && t == call.group.rank % etp};
}

// The additions behind it.
__device__ int adds_of_part(const Call &call, const Program &total, const Program &shared,
                            int number)
{
    const int etp = call.shape.etp, u = etp == 1 ? number : number / etp, w = number - u * etp;
    return shared.adds(w) + (w == etp - 1 ? total.adds(u) : 0);
}

// By one warp: wait for the parts of an own token that peers send. False: the call has stopped.
__device__ bool await_parts(const Call &call, int tensor, const Item &item, const Programs &of,
                            const Program &shared)
{
    int number = lane_of();
    const int parts = of.parts(call);
    return await_all(call, [&] {
        for (; number < parts; number += 32) {
            const Part part = part_of_sum(call, of.partial, of.total, shared, number);
            if (!part.own &&
                !call.has(return_flag(call, return_slot(call, tensor, item.token, part.slot),
                                      item.piece)))
                return false;
        }
        return true;
    });
}

// The slot of this rank's part of a peer's token, there.
__device__ int64_t own_slot(const Call &call, int tensor, const Item &item, const Programs &of)
{
    return return_slot(call, tensor, item.token,
                       of.partial.ordinal() * call.shape.etp + call.group.rank % call.shape.etp);
}

// Where a slot begins in the memory that ranks share.
__device__ int64_t slot_offset(const Call &call, int64_t slot)
{
    return call.group.at.returns + slot * call.shape.return_bytes;
}

} // namespace

#endif
