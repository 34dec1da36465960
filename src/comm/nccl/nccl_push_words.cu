// Zero-copy by loads and stores of words, of any alignment, on any device.
#include "comm/nccl/nccl_push_flags.cuh"

namespace
{

// What a thread does in every segment of a block: its row among those side by side, and its column.
struct Lane {
    uint32_t row, column;

    __device__ explicit Lane(const mimo_push_block &block)
    {
        row = block.side > 1 ? divide(threadIdx.x, block.by_row) : 0;
        column = threadIdx.x - row * block.row_words;
    }
};

// Where a segment lies: bytes from the block's beginning at either end, how far along the inner
// loop its first row is, and words of that row to skip. Segments follow one another without a
// division.
template <class Word>
struct Cursor {
    int64_t from, to;
    uint32_t j, skip;

    static constexpr int64_t kBytes = MIMO_PUSH_THREADS * sizeof(Word); // of a segment

    __device__ Cursor(const mimo_push_block &block, uint32_t segment)
    {
        uint32_t group = divide(segment, block.by_chunks);
        uint32_t chunk = segment - group * block.chunks, i = divide(group, block.by_groups);
        j = (group - i * block.groups) * block.side;
        skip = chunk * MIMO_PUSH_THREADS;
        from = i * block.from_outer + j * block.from_inner + chunk * kBytes;
        to = i * block.to_outer + j * block.to_inner + chunk * kBytes;
    }

    __device__ bool holds(const mimo_push_block &block, const Lane &lane) const
    {
        return lane.row < block.side && j + lane.row < block.n_inner &&
               skip + lane.column < block.row_words;
    }

    __device__ void advance(const mimo_push_block &block)
    {
        skip += MIMO_PUSH_THREADS;
        from += kBytes;
        to += kBytes;
        if (skip < block.row_words)
            return;
        skip = 0;
        j += block.side;
        from += block.side * block.from_inner - block.chunks * kBytes;
        to += block.side * block.to_inner - block.chunks * kBytes;
        if (j < block.n_inner)
            return;
        from += block.from_outer - j * block.from_inner;
        to += block.to_outer - j * block.to_inner;
        j = 0;
    }
};

// Rows that stay are read and written again soon: they may lie in the cache.
template <bool kRemote, class Word>
__device__ Word load(const char *from)
{
    return kRemote ? __ldcs((const Word *)from) : *(const Word *)from;
}

template <bool kRemote, class Word>
__device__ void store(char *to, Word word)
{
    if (kRemote)
        __stcs((Word *)to, word);
    else
        *(Word *)to = word;
}

// A piece of a block, by all threads: segments [first, first + count).
template <bool kRemote, class Word>
__device__ void move_segments(const mimo_push_block &block, const Lane &lane, uint32_t first,
                              uint32_t count)
{
    const int64_t bytes = lane.column * sizeof(Word);
    const char *from = block.from + lane.row * block.from_inner + bytes;
    char *to = block.to + lane.row * block.to_inner + bytes;
    Word held[MIMO_PUSH_PIECE];
    Cursor<Word> reads(block, first);
#pragma unroll
    for (uint32_t k = 0; k < MIMO_PUSH_PIECE; k++, reads.advance(block))
        if (k < count && reads.holds(block, lane))
            held[k] = load<kRemote, Word>(from + reads.from);
    // The places to write are found again: kept from above, they would take the registers of words.
    asm volatile("" : "+r"(first)::"memory");
    Cursor<Word> writes(block, first);
#pragma unroll
    for (uint32_t k = 0; k < MIMO_PUSH_PIECE; k++, writes.advance(block))
        if (k < count && writes.holds(block, lane))
            store<kRemote>(to + writes.to, held[k]);
}

// Pieces of a block in turn, from `index` on; returns the first that is another block's.
template <bool kRemote, class Word>
__device__ uint32_t move_pieces(const mimo_push_head &head, const mimo_push_block &block,
                                uint32_t index, uint32_t step)
{
    const Lane lane(block);
    const uint32_t end = (block.segments + head.piece - 1) / head.piece;
    for (; index < end; index += step) {
        uint32_t first = index * head.piece;
        move_segments<kRemote, Word>(block, lane, first, min(head.piece, block.segments - first));
    }
    return index - end;
}

template <bool kRemote>
__device__ uint32_t move_block(const mimo_push_head &head, const mimo_push_block &block,
                               uint32_t index, uint32_t step)
{
    switch (block.width) {
    case 4:
        return move_pieces<kRemote, uint4>(head, block, index, step);
    case 3:
        return move_pieces<kRemote, uint2>(head, block, index, step);
    case 2:
        return move_pieces<kRemote, unsigned int>(head, block, index, step);
    case 1:
        return move_pieces<kRemote, unsigned short>(head, block, index, step);
    default:
        return move_pieces<kRemote, unsigned char>(head, block, index, step);
    }
}

// ------------------------------------------ kernel ------------------------------------------

// Pieces of all blocks are dealt out in turn, so that neighbours are written at the same time;
// those of a peer wait for its READY. False: aborted.
__device__ bool write_remote(const mimo_push_head &head, const mimo_push_peer *targets,
                             const mimo_push_block *blocks)
{
    uint32_t index = blockIdx.x;
    int target = -1;
    for (int at = 0; at < head.remote_blocks; at++) {
        if (!head.idle && blocks[at].target != target) {
            target = blocks[at].target;
            if (!await_ready(head, targets, target))
                return false;
        }
        index = move_block<true>(head, blocks[at], index, head.remote_ctas);
    }
    return true;
}

__device__ void copy_local(const mimo_push_head &head, const mimo_push_block *blocks)
{
    uint32_t step = gridDim.x - head.remote_ctas, index = blockIdx.x - head.remote_ctas;
    for (int at = 0; at < head.local_blocks; at++)
        index = move_block<false>(head, blocks[at], index, step);
}

template <class Program>
__global__ void __launch_bounds__(MIMO_PUSH_THREADS, 2)
    push_words(const __grid_constant__ Program program)
{
    const mimo_push_head &head = program.head;
    run_call(
        head, program.peers, [&] { return write_remote(head, program.peers, program.blocks); },
        [&] { copy_local(head, program.blocks + head.remote_blocks); });
}

} // namespace

cudaError_t mimo_push_words(const mimo_push_program *program, cudaStream_t stream)
{
    launch(*program, [=](const auto &as) {
        push_words<<<program->ctas, MIMO_PUSH_THREADS, 0, stream>>>(as);
    });
    return cudaGetLastError();
}
