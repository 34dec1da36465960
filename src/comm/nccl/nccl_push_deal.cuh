// How the pieces of a program are dealt out among thread blocks. Each begins with a piece of its
// own; the others are taken from a counter, by whoever is free: thread blocks do not write equally
// fast, up to three times apart where several GPUs write to one (H200), and a call lasts until the
// last one is done. Who finds no more pieces of the list that he began with goes on with the other.
#ifndef MIMO_COMM_NCCL_PUSH_DEAL_CUH
#define MIMO_COMM_NCCL_PUSH_DEAL_CUH

#include "comm/nccl/nccl_push_kernel.h"

namespace
{

__device__ uint32_t divide(uint32_t n, mimo_push_divisor by)
{
    return (uint32_t)(((uint64_t)n * by.factor) >> by.shift);
}

// A piece as a block of the program and its number there. Everything about it is the same in all
// threads.
struct Piece {
    uint32_t block, index;
    bool remote;
};

// The same number in all threads of a thread block, from the first one.
template <int kThreads>
__device__ uint32_t from_first(uint32_t value, uint32_t turn)
{
    if (kThreads == 32)
        return __shfl_sync(~0u, value, 0);
    __shared__ uint32_t told[2]; // in turns, so that nobody still reads what is written
    if (threadIdx.x == 0)
        told[turn % 2] = value;
    __syncthreads();
    return told[turn % 2];
}

// Count one more, and what was counted before, for the first thread alone. Not by atomicAdd: the
// thread block would wait for the answer here, where the compiler widens or adds to it, instead of
// where it is used.
__device__ uint32_t count_up(uint64_t *counter)
{
    uint32_t before = 0;
    asm volatile("{\n"
                 ".reg .pred first;\n"
                 "setp.eq.u32 first, %2, 0;\n"
                 "@first atom.relaxed.gpu.global.add.u32 %0, [%1], 1;\n"
                 "}\n"
                 : "+r"(before)
                 : "l"(counter), "r"(threadIdx.x)
                 : "memory");
    return before;
}

// The pieces of one thread block, in turn; all of its threads ask for them.
template <int kThreads>
class Deal
{
  public:
    __device__ Deal(const mimo_push_head &head, const mimo_push_block *blocks)
        : head(head), blocks(blocks),
          list(blockIdx.x < head.list[MIMO_PUSH_REMOTE].ctas ? MIMO_PUSH_REMOTE : MIMO_PUSH_LOCAL)
    {
    }

    // False: there is none. Another one is asked for already, so that the answer comes while this
    // one moves.
    __device__ bool next(Piece &out)
    {
        for (; ended < MIMO_PUSH_LISTS; ended++, list = 1 - list, ask()) {
            const uint32_t index = answer();
            if (index >= head.list[list].pieces)
                continue;
            ask();
            place(out, index);
            return true;
        }
        return false;
    }

  private:
    enum Asked { OWN, COUNTER, NOBODY };

    const mimo_push_head &head;
    const mimo_push_block *blocks;
    int list, ended = 0; // lists without a piece left
    Asked asked = OWN;
    uint32_t counted = 0; // the counter's answer, in the first thread
    uint32_t turn = 0;

    __device__ uint32_t answer()
    {
        const mimo_push_list &from = head.list[list];
        if (asked == OWN)
            return blockIdx.x - (list == MIMO_PUSH_LOCAL ? head.list[MIMO_PUSH_REMOTE].ctas : 0);
        return asked == COUNTER ? from.ctas + from_first<kThreads>(counted, turn++) : ~0u;
    }

    __device__ void ask()
    {
        const mimo_push_list &from = head.list[list];
        asked = ended < MIMO_PUSH_LISTS && from.pieces > from.ctas ? COUNTER : NOBODY;
        if (asked == COUNTER)
            counted = count_up(list == MIMO_PUSH_REMOTE ? &head.own->done : &head.own->asked);
    }

    // The block that holds the piece: the last of the list that begins there or before.
    __device__ void place(Piece &out, uint32_t index) const
    {
        int first = head.list[list].first, end = first + head.list[list].count;
        while (end - first > 1) {
            int middle = first + (end - first) / 2;
            if (blocks[middle].begin <= index)
                first = middle;
            else
                end = middle;
        }
        out = {(uint32_t)first, index - blocks[first].begin, list == MIMO_PUSH_REMOTE};
    }
};

} // namespace

#endif
