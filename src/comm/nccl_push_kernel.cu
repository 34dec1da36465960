// The kernel of zero-copy; nccl_push_kernel.h says what it runs, buffer_state.h how ranks wait.
#include "comm/nccl_push_kernel.h"

namespace
{

constexpr int kSpinsPerLook = 1 << 12; // waits look at the abort word, over PCIe, this seldom

struct Image {
    alignas(16) char bytes[MIMO_PUSH_INLINE];
};

// ------------------------------------------ flags -------------------------------------------

__device__ uint64_t load_acquire(const uint64_t *flag)
{
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
    return value;
}

__device__ void store_release(uint64_t *flag, uint64_t value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

__device__ void add_release(uint64_t *flag, uint64_t value)
{
    asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

__device__ void wait_for(const uint64_t *flag, uint64_t value, const volatile uint32_t *abort)
{
    for (int spin = 1; load_acquire(flag) < value; spin++)
        if (spin % kSpinsPerLook == 0 && *abort)
            return;
}

// ------------------------------------------ words -------------------------------------------

__device__ uint32_t divide(uint32_t n, mimo_push_divisor by)
{
    return (uint32_t)(((uint64_t)n * by.factor) >> by.shift);
}

// What a thread does in every segment of a block: its row among those side by side, and its column.
struct Lane {
    uint32_t row, column;

    __device__ explicit Lane(const mimo_push_block &block)
    {
        row = block.side > 1 ? divide(threadIdx.x, block.by_row) : 0;
        column = threadIdx.x - row * block.row_words;
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

// Segments [first, first + count) of a block, by all threads.
template <bool kRemote, class Word>
__device__ void move_segments(const mimo_push_block &block, uint32_t first, uint32_t count)
{
    const Lane lane(block);
    const int64_t bytes = lane.column * sizeof(Word);
    const char *from = block.from + lane.row * block.from_inner + bytes;
    char *to = block.to + lane.row * block.to_inner + bytes;
    Word held[MIMO_PUSH_PIECE];
    int64_t place[MIMO_PUSH_PIECE]; // at the receiving end; < 0: none for this thread
#pragma unroll
    for (uint32_t k = 0; k < MIMO_PUSH_PIECE; k++) {
        uint32_t group = divide(first + k, block.by_chunks);
        uint32_t chunk = first + k - group * block.chunks;
        uint32_t i = divide(group, block.by_groups), j = (group - i * block.groups) * block.side;
        bool mine = k < count && lane.row < block.side && j + lane.row < block.n_inner &&
                    chunk * MIMO_PUSH_THREADS + lane.column < block.row_words;
        int64_t skip = (int64_t)chunk * MIMO_PUSH_THREADS * sizeof(Word);
        place[k] = mine ? i * block.to_outer + j * block.to_inner + skip : -1;
        if (mine)
            held[k] =
                load<kRemote, Word>(from + i * block.from_outer + j * block.from_inner + skip);
    }
#pragma unroll
    for (uint32_t k = 0; k < MIMO_PUSH_PIECE; k++)
        if (place[k] >= 0)
            store<kRemote>(to + place[k], held[k]);
}

template <bool kRemote>
__device__ void move_piece(const mimo_push_block block, uint32_t index, uint32_t piece)
{
    uint32_t first = index * piece, count = min(piece, block.segments - first);
    switch (block.width) {
    case 4:
        return move_segments<kRemote, uint4>(block, first, count);
    case 3:
        return move_segments<kRemote, uint2>(block, first, count);
    case 2:
        return move_segments<kRemote, unsigned int>(block, first, count);
    case 1:
        return move_segments<kRemote, unsigned short>(block, first, count);
    default:
        return move_segments<kRemote, unsigned char>(block, first, count);
    }
}

// ------------------------------------------ kernel ------------------------------------------

struct Program {
    const mimo_push_head &head;
    const mimo_push_peer *targets, *sources;
    const mimo_push_block *remote, *local;

    __device__ explicit Program(const void *image) : head(*(const mimo_push_head *)image)
    {
        targets = (const mimo_push_peer *)(&head + 1);
        sources = targets + head.targets;
        remote = (const mimo_push_block *)(sources + head.sources);
        local = remote + head.remote_blocks;
    }
};

__device__ void say_ready(const Program &program)
{
    if (blockIdx.x == 0 && !program.head.idle)
        for (int i = threadIdx.x; i < program.head.sources; i += MIMO_PUSH_THREADS)
            store_release(&program.sources[i].there->ready, program.sources[i].here->asked + 1);
}

// Pieces are dealt out in turn, so that neighbours are written at the same time; those of a peer
// wait for its READY.
__device__ void write_remote(const Program &program)
{
    const mimo_push_block *block = program.remote;
    int target = -1;
    for (uint32_t piece = blockIdx.x; piece < program.head.remote_pieces;
         piece += program.head.remote_ctas) {
        while (block + 1 < program.local && piece >= block[1].first_piece)
            block++;
        if (!program.head.idle && block->target != target) {
            target = block->target;
            const mimo_flags *flags = program.targets[target].here;
            if (threadIdx.x == 0)
                wait_for(&flags->ready, flags->served + 1, program.head.abort);
            __syncthreads();
        }
        move_piece<true>(*block, piece - block->first_piece, program.head.piece);
    }
}

// Each of the writing thread blocks adds its part of the unit, the first what does not divide.
__device__ void say_done(const Program &program)
{
    uint64_t part = MIMO_PUSH_UNIT / program.head.remote_ctas;
    if (blockIdx.x == 0)
        part = MIMO_PUSH_UNIT - part * (program.head.remote_ctas - 1);
    __syncthreads(); // all threads have written
    for (int i = threadIdx.x; i < program.head.targets; i += MIMO_PUSH_THREADS)
        add_release(&program.targets[i].there->done, part);
}

__device__ void copy_local(const Program &program)
{
    const mimo_push_block *block = program.local, *last = block + program.head.local_blocks - 1;
    for (uint32_t piece = blockIdx.x - program.head.remote_ctas;
         piece < program.head.local_pieces; piece += gridDim.x - program.head.remote_ctas) {
        while (block < last && piece >= block[1].first_piece)
            block++;
        move_piece<false>(*block, piece - block->first_piece, program.head.piece);
    }
}

// The last thread block to end waits for the peers' rows, and counts the call: all others have read
// the counters by then.
__device__ void end_call(const Program &program)
{
    __shared__ bool is_last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd((unsigned long long *)program.head.tickets, 1ull) == gridDim.x - 1;
    }
    __syncthreads();
    if (!is_last)
        return;
    for (int i = threadIdx.x; i < program.head.sources; i += MIMO_PUSH_THREADS) {
        mimo_flags *flags = program.sources[i].here;
        wait_for(&flags->done, (flags->asked + 1) * MIMO_PUSH_UNIT, program.head.abort);
        flags->asked++;
    }
    for (int i = threadIdx.x; i < program.head.targets; i += MIMO_PUSH_THREADS)
        program.targets[i].here->served++;
    if (threadIdx.x == 0)
        *program.head.tickets = 0;
}

__global__ void __launch_bounds__(MIMO_PUSH_THREADS)
    push(const __grid_constant__ Image image, const void *far)
{
    const Program program(far ? far : image.bytes);
    if (program.head.tickets)
        say_ready(program);
    if ((int)blockIdx.x < program.head.remote_ctas) {
        write_remote(program);
        say_done(program);
    } else {
        copy_local(program);
    }
    if (program.head.tickets)
        end_call(program);
}

} // namespace

cudaError_t mimo_push_launch(const mimo_push_program *program, cudaStream_t stream)
{
    static_assert(sizeof(Image) == sizeof program->image, "the image is the kernel's argument");
    const Image *image = (const Image *)&program->image;
    push<<<program->ctas, MIMO_PUSH_THREADS, 0, stream>>>(*image, program->far);
    return cudaGetLastError();
}

cudaError_t mimo_push_most_ctas(int *multiprocessors, int *per_multiprocessor)
{
    int device;
    cudaError_t code = cudaGetDevice(&device);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (code == cudaSuccess)
        code = cudaOccupancyMaxActiveBlocksPerMultiprocessor(per_multiprocessor, push,
                                                             MIMO_PUSH_THREADS, 0);
    return code;
}
