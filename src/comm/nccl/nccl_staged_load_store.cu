// The load/store kernel of staged messages: a worker is a thread block, and every thread loads and
// stores words. It takes any alignment and runs on any device.
#include "comm/nccl/nccl_staged_worker.cuh"

namespace
{

// A thread loads kWords words before its first store. A thread block waits for memory most of its
// time, which many threads hide best. Two ranks that shared an H200, 32 MiB each way: 239 us with
// 256 threads of 8 words, 165 with 512 of 4 or of 8, 140 with 1024 of 4. With 1024, calls of four
// ranks that shared a GPU did not end: a thread block fills a multiprocessor then, and probably the
// next call of one rank, launched early, kept out another rank's.
constexpr int kBlock = 512;
constexpr uint32_t kWords = 4;

// The rows of a list, word by word.
struct Rows {
    const mimo_staged_block *blocks;
    const mimo_staged_rows &rows;
    char *const *bases;

    __device__ char *operator()(uint32_t word) const
    {
        return mimo_staged_word(blocks, &rows, bases, word);
    }
};

// The entry of a piece that begins with word `first` of its message.
struct Entry {
    char *at;
    uint32_t first, width;

    __device__ char *operator()(uint32_t word) const
    {
        return at + ((size_t)(word - first) << width);
    }
};

// Move words [first, first + count), by all threads. They are written only where ready() returns
// true.
template <class Word, class To, class From, class Ready>
__device__ bool move_words(const To &to, const From &from, uint32_t first, uint32_t count,
                           Ready ready)
{
    for (uint32_t begin = 0; begin < count; begin += kBlock * kWords) {
        Word words[kWords];
#pragma unroll
        for (uint32_t k = 0; k < kWords; k++) {
            const uint32_t w = begin + k * kBlock + threadIdx.x;
            if (w < count)
                words[k] = __ldcs((const Word *)from(first + w));
        }
        if (begin == 0 && !ready())
            return false;
#pragma unroll
        for (uint32_t k = 0; k < kWords; k++) {
            const uint32_t w = begin + k * kBlock + threadIdx.x;
            if (w < count)
                __stcs((Word *)to(first + w), words[k]);
        }
    }
    return true;
}

template <class To, class From, class Ready>
__device__ bool move_by_width(uint32_t width, const To &to, const From &from, uint32_t first,
                              uint32_t count, Ready ready)
{
    switch (width) {
    case 4:
        return move_words<uint4>(to, from, first, count, ready);
    case 3:
        return move_words<uint2>(to, from, first, count, ready);
    case 2:
        return move_words<unsigned int>(to, from, first, count, ready);
    case 1:
        return move_words<unsigned short>(to, from, first, count, ready);
    default:
        return move_words<unsigned char>(to, from, first, count, ready);
    }
}

template <class Program> class ThreadBlock
{
  public:
    static constexpr int kThreads = kBlock;
    static constexpr bool kOverlaps = false; // a job goes through registers at once

    __device__ explicit ThreadBlock(const Program &program) : program(program)
    {
    }

    __device__ void load(const Job &)
    {
    }

    template <class Ready> __device__ bool store(const Job &job, Ready ready)
    {
        const mimo_staged_head &head = program.head;
        const auto yes = [] { return true; };
        if (job.list == MIMO_STAGED_STAY)
            return move_by_width(head.to.width, rows_of(head.to), rows_of(head.from), job.first,
                                 job.count, yes);
        const mimo_staged_message &message = *job.message;
        const uint32_t width = message.rows.width;
        const Entry entry = {message.fifo.entries + (size_t)job.entry * head.entry_bytes, job.first,
                             width};
        const bool stored =
            job.list == MIMO_STAGED_SEND
                ? move_by_width(width, entry, rows_of(message.rows), job.first, job.count, ready)
                : move_by_width(width, rows_of(message.rows), entry, job.first, job.count, yes);
        __syncthreads(); // before a release by the first thread
        return stored;
    }

    __device__ void written(int)
    {
    }

    __device__ void set(uint64_t *flag, uint64_t value, bool)
    {
        store_release(flag, value);
    }

    __device__ void flush()
    {
    }

  private:
    const Program &program;

    __device__ Rows rows_of(const mimo_staged_rows &rows) const
    {
        return {program.blocks, rows, program.bases};
    }
};

template <class Program>
__global__ void __launch_bounds__(kBlock, 2)
    pass_by_load_store(const __grid_constant__ Program program)
{
    await_stream();
    if (blockIdx.x == 0)
        begin_call(program);
    ThreadBlock<Program> hand(program);
    Worker<Program, ThreadBlock<Program>>(program, hand, blockIdx.x).run();
    end_call(program);
}

template <class Program> cudaError_t enqueue(const Program &program, cudaStream_t stream)
{
    const uint32_t *workers = program.head.workers;
    return launch_early(pass_by_load_store<Program>,
                        workers[MIMO_STAGED_SEND] + workers[MIMO_STAGED_RECEIVE], kBlock, 0, stream,
                        program);
}

} // namespace

cudaError_t mimo_staged_load_store_load(void)
{
    return load_kernels(pass_by_load_store<mimo_staged_small>,
                        pass_by_load_store<mimo_staged_large>);
}

cudaError_t mimo_staged_load_store_small(const mimo_staged_small *program, cudaStream_t stream)
{
    return enqueue(*program, stream);
}

cudaError_t mimo_staged_load_store_large(const mimo_staged_large *program, cudaStream_t stream)
{
    return enqueue(*program, stream);
}
