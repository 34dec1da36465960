// The load/store kernel of zero-copy: every thread loads and stores words. It takes any alignment
// and runs on any device.
#include "comm/nccl/nccl_push_pieces.cuh"
#include "comm/nccl/nccl_push_flags.cuh"

namespace
{

// What a thread moves in every segment of a block: its row of the segment, and its word of that
// row.
struct Lane {
    uint32_t row, column;

    __device__ explicit Lane(const mimo_push_block &block)
    {
        row = block.segment_rows > 1 ? mimo_divide(threadIdx.x, block.by_row) : 0;
        column = threadIdx.x - row * block.row_words;
    }
};

// Where a segment lies: its offset in bytes at both ends, the index of its first row in the inner
// loop, and how many words of that row come before it. advance() goes to the next segment without a
// division.
template <class Word> struct Cursor {
    int64_t from, to;
    uint32_t j, skip;

    static constexpr int64_t kBytes = MIMO_PUSH_THREADS * sizeof(Word); // of a segment

    __device__ Cursor(const mimo_push_block &block, uint32_t segment)
    {
        uint32_t group = mimo_divide(segment, block.by_chunks);
        uint32_t chunk = segment - group * block.chunks, i = mimo_divide(group, block.by_groups);
        j = (group - i * block.groups) * block.segment_rows;
        skip = chunk * MIMO_PUSH_THREADS;
        from = i * block.from_outer + j * block.from_inner + chunk * kBytes;
        to = i * block.to_outer + j * block.to_inner + chunk * kBytes;
    }

    __device__ bool holds(const mimo_push_block &block, const Lane &lane) const
    {
        return lane.row < block.segment_rows && j + lane.row < block.n_inner &&
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
        j += block.segment_rows;
        from += block.segment_rows * block.from_inner - block.chunks * kBytes;
        to += block.segment_rows * block.to_inner - block.chunks * kBytes;
        if (j < block.n_inner)
            return;
        from += block.from_outer - j * block.from_inner;
        to += block.to_outer - j * block.to_inner;
        j = 0;
    }
};

// Remote rows are not used again soon, so they do not stay in the cache; local rows may.
template <bool kRemote, class Word> __device__ Word load(const char *from)
{
    return kRemote ? __ldcs((const Word *)from) : *(const Word *)from;
}

template <bool kRemote, class Word> __device__ void store(char *to, Word word)
{
    if (kRemote)
        __stcs((Word *)to, word);
    else
        *(Word *)to = word;
}

// Move segments [first, first + count) of a block, by all threads. They are written only where
// ready() returns WRITE.
template <bool kRemote, class Word, class Ready>
__device__ Answer move_segments(const mimo_push_block &block, char *const *bases, uint32_t first,
                                uint32_t count, Ready ready)
{
    const Lane lane(block);
    const int64_t bytes = lane.column * sizeof(Word);
    const char *from = from_of(block, bases) + lane.row * block.from_inner + bytes;
    char *to = to_of(block, bases) + lane.row * block.to_inner + bytes;
    Word words[MIMO_PUSH_PIECE];
    Cursor<Word> reads(block, first);
#pragma unroll
    for (uint32_t k = 0; k < MIMO_PUSH_PIECE; k++, reads.advance(block))
        if (k < count && reads.holds(block, lane))
            words[k] = load<kRemote, Word>(from + reads.from);
    const Answer answer = ready();
    if (answer != WRITE)
        return answer;
    // The offsets are computed again: kept from above, they would take registers that the words
    // need.
    asm volatile("" : "+r"(first)::"memory");
    Cursor<Word> writes(block, first);
#pragma unroll
    for (uint32_t k = 0; k < MIMO_PUSH_PIECE; k++, writes.advance(block))
        if (k < count && writes.holds(block, lane))
            store<kRemote>(to + writes.to, words[k]);
    return WRITE;
}

template <bool kRemote, class Program, class Ready>
__device__ Answer move_piece(const Program &program, const Piece &piece, Ready ready)
{
    const mimo_push_block &block = program.blocks[piece.block];
    const uint32_t first = piece.index * program.head.piece;
    const uint32_t count = min(program.head.piece, block.segments - first);
    switch (block.width) {
    case 4:
        return move_segments<kRemote, uint4>(block, program.bases, first, count, ready);
    case 3:
        return move_segments<kRemote, uint2>(block, program.bases, first, count, ready);
    case 2:
        return move_segments<kRemote, unsigned int>(block, program.bases, first, count, ready);
    case 1:
        return move_segments<kRemote, unsigned short>(block, program.bases, first, count, ready);
    default:
        return move_segments<kRemote, unsigned char>(block, program.bases, first, count, ready);
    }
}

// ------------------------------------------ kernel ------------------------------------------

// False: aborted.
template <class Program> __device__ bool move_all(const Program &program, uint32_t &wrote)
{
    ReadyTargets ready;
    Piece piece;
    PieceQueue<MIMO_PUSH_THREADS> queue(program.head, program.blocks);
    while (queue.next(piece)) {
        if (!piece.remote) {
            move_piece<false>(program, piece, [] { return WRITE; });
            continue;
        }
        const int target = program.blocks[piece.block].target;
        const auto await = [&] { return await_ready(program.head, program.peers, target, ready); };
        if (move_piece<true>(program, piece, await) == ABORTED)
            return false;
        wrote++;
    }
    return true;
}

template <class Program>
__global__ void __launch_bounds__(MIMO_PUSH_THREADS, 2)
    push_load_store(const __grid_constant__ Program program)
{
    run_call(program.head, program.peers,
             [&](uint32_t &wrote) { return move_all(program, wrote); });
}

} // namespace

cudaError_t mimo_push_load_store_load(void)
{
    return load_kernels(push_load_store<mimo_push_small>, push_load_store<mimo_push_large>,
                        push_load_store<Listed>, push_load_store<Tiny>);
}

cudaError_t mimo_push_load_store(const mimo_push_program *program, cudaStream_t stream)
{
    return launch(*program, [=](const auto &as) {
        return launch_early(push_load_store, (unsigned)program->ctas, MIMO_PUSH_THREADS, 0, stream,
                            as);
    });
}
