// How the pieces of a program's lists are dealt out among thread blocks: in turn, so that
// neighbours move at the same time.
#ifndef MIMO_COMM_NCCL_PUSH_DEAL_CUH
#define MIMO_COMM_NCCL_PUSH_DEAL_CUH

#include "comm/nccl/nccl_push_kernel.h"

namespace
{

__device__ uint32_t divide(uint32_t n, mimo_push_divisor by)
{
    return (uint32_t)(((uint64_t)n * by.factor) >> by.shift);
}

// The pieces of one thread block among those of a list: its own, and every step-th from there on.
class Deal
{
  public:
    __device__ Deal(const mimo_push_list &list, const mimo_push_block *blocks, uint32_t own,
                    uint32_t step)
        : blocks(blocks + list.first), count(list.count), at(0), pieces(list.pieces), place(own),
          step(step)
    {
    }

    // The next piece, as its block and its number there. NULL: there is none.
    __device__ const mimo_push_block *next(uint32_t &index)
    {
        if (place >= pieces)
            return NULL;
        while (at + 1 < count && blocks[at + 1].begin <= place)
            at++;
        const mimo_push_block *block = &blocks[at];
        index = place - block->begin;
        place += step;
        return block;
    }

  private:
    const mimo_push_block *blocks;
    int count, at;
    uint32_t pieces, place, step;
};

} // namespace

#endif
