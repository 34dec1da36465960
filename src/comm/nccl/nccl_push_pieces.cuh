// How thread blocks take the pieces of a program. Each begins with a piece of its own. Free thread
// blocks take the other pieces from a counter. Their speeds differ, up to three times where several
// GPUs write to one (H200), and a call lasts until the last thread block is done. A thread block
// that finds no more pieces in the list that it began with goes on with the other list.
#ifndef MIMO_COMM_NCCL_PUSH_PIECES_CUH
#define MIMO_COMM_NCCL_PUSH_PIECES_CUH

#include "comm/nccl/nccl_flags.cuh"
#include "comm/nccl/nccl_push_kernel.h"
#include "device/cuda_search.cuh"

namespace
{

// Where the rows of a block begin.
__device__ const char *from_of(const mimo_push_block &block, char *const *bases)
{
    return bases[block.from_base] + block.from;
}

__device__ char *to_of(const mimo_push_block &block, char *const *bases)
{
    return bases[block.to_base] + block.to;
}

// A piece: its block in the program, and its number in that block. All threads have the same
// values.
struct Piece {
    uint32_t block, index;
    bool remote;
};

// The pieces that one thread block takes, one after the other. All of its threads call next().
template <int kThreads> class PieceQueue
{
  public:
    __device__ PieceQueue(const mimo_push_head &head, const mimo_push_block *blocks)
        : head(head), blocks(blocks),
          list(blockIdx.x < head.list[MIMO_PUSH_REMOTE].ctas ? MIMO_PUSH_REMOTE : MIMO_PUSH_LOCAL)
    {
    }

    // False: there is no piece left. It also requests the next piece, so that the answer arrives
    // while this one moves.
    __device__ bool next(Piece &out)
    {
        for (; ended < MIMO_PUSH_LISTS; ended++, list = 1 - list, request()) {
            const uint32_t index = requested();
            if (index >= head.list[list].pieces)
                continue;
            request();
            locate(out, index);
            return true;
        }
        return false;
    }

  private:
    enum Source { OWN, COUNTER, NONE };

    const mimo_push_head &head;
    const mimo_push_block *blocks;
    int list, ended = 0;  // lists without a piece left
    Source source = OWN;  // of the requested piece
    uint32_t counted = 0; // the counter's old value, in the first thread
    uint32_t uses = 0;    // of from_first

    // The number of the requested piece; past the list's end where there is none.
    __device__ uint32_t requested()
    {
        const mimo_push_block_list &from = head.list[list];
        if (source == OWN)
            return blockIdx.x - (list == MIMO_PUSH_LOCAL ? head.list[MIMO_PUSH_REMOTE].ctas : 0);
        return source == COUNTER ? from.ctas + from_first<kThreads>(counted, uses++) : ~0u;
    }

    __device__ void request()
    {
        const mimo_push_block_list &from = head.list[list];
        source = ended < MIMO_PUSH_LISTS && from.pieces > from.ctas ? COUNTER : NONE;
        if (source == COUNTER)
            counted = count_up(list == MIMO_PUSH_REMOTE ? &head.own->done : &head.own->receives);
    }

    // The block that holds the piece is the last one that begins at the piece or before it.
    __device__ void locate(Piece &out, uint32_t index) const
    {
        const mimo_push_block *first = blocks + head.list[list].first;
        const int last =
            last_at_most(head.list[list].count, index, [&](int k) { return first[k].begin; });
        out = {(uint32_t)(head.list[list].first + last), index - first[last].begin,
               list == MIMO_PUSH_REMOTE};
    }
};

} // namespace

#endif
