// The kernel of staged messages. comm/staged/staged_types.h says what its workers do, and why none
// of them waits for ever.
#include "comm/nccl/nccl_flags.cuh"
#include "comm/nccl/nccl_staged_kernel.h"
#include "device/cuda_launch.cuh"

namespace
{

// A thread loads kWords words before its first store. A thread block waits for memory most of its
// time, which many threads hide best. Two ranks that shared an H200, 32 MiB each way: 239 us with
// 256 threads of 8 words, 165 with 512 of 4 or of 8, 140 with 1024 of 4. With 1024, calls of four
// ranks that shared a GPU did not end: a thread block fills a multiprocessor then, and probably the
// next call of one rank, launched early, kept out another rank's.
constexpr int kThreads = 512;
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
    for (uint32_t begin = 0; begin < count; begin += kThreads * kWords) {
        Word words[kWords];
#pragma unroll
        for (uint32_t k = 0; k < kWords; k++) {
            const uint32_t w = begin + k * kThreads + threadIdx.x;
            if (w < count)
                words[k] = __ldcs((const Word *)from(first + w));
        }
        if (begin == 0 && !ready())
            return false;
#pragma unroll
        for (uint32_t k = 0; k < kWords; k++) {
            const uint32_t w = begin + k * kThreads + threadIdx.x;
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

// The pieces of a list that this thread block takes, from a counter. It asks for the next piece
// before it moves this one, so that the answer arrives meanwhile. The answer to the last
// question is taken as well, before the kernel ends.
class Claims
{
  public:
    __device__ Claims(uint64_t *counter, uint32_t pieces) : counter(counter), pieces(pieces)
    {
    }

    // False: there is no piece left. `uses` counts the calls of from_first.
    __device__ bool next(uint32_t &index, uint32_t &uses)
    {
        if (state == NOT_ASKED && pieces > 0)
            ask();
        if (state != ASKED)
            return false;
        index = from_first<kThreads>(counted, uses++);
        state = ENDED;
        if (index >= pieces)
            return false;
        ask();
        return true;
    }

  private:
    enum State { NOT_ASKED, ASKED, ENDED };

    uint64_t *counter;
    uint32_t pieces; // of the list
    uint32_t counted = 0;
    State state = NOT_ASKED;

    __device__ void ask()
    {
        state = ASKED;
        counted = count_up(counter);
    }
};

enum Found { ABORTED, NOT_YET, REACHED };

// By one thread: wait until a flag is at least `value`. A patient wait does not return NOT_YET.
__device__ Found await_flag(const uint64_t *flag, uint64_t value, const mimo_push_note *note,
                            bool patient)
{
    for (uint32_t spin = 1;; spin++) {
        if (load_acquire(flag) >= value)
            return REACHED;
        if (!patient)
            return NOT_YET;
        if (spin % kSpinsPerAbortCheck == 0 && note->abort)
            return ABORTED;
    }
}

template <class Program> class Worker
{
  public:
    __device__ explicit Worker(const Program &program)
        : program(program), head(program.head),
          sends(&program.shared.own->done, head.pieces[MIMO_STAGED_SEND]),
          receives(&program.shared.own->receives, head.pieces[MIMO_STAGED_RECEIVE]),
          stays(&program.shared.own->sends, head.pieces[MIMO_STAGED_STAY])
    {
    }

    __device__ void run()
    {
        const int list = mimo_staged_list_of(&head, blockIdx.x);
        if (list == MIMO_STAGED_SEND ? send_all() : receive_all())
            while (copy_one())
                ;
    }

  private:
    const Program &program;
    const mimo_staged_head &head;
    Claims sends, receives, stays;
    uint32_t uses = 0; // of from_first

    // A piece of a message on its way through an entry.
    struct Passage {
        const mimo_staged_message &message;
        uint32_t first, count; // words of the message
        uint64_t number;       // of the piece, over all calls
        uint64_t *filled, *emptied;
        Entry entry;
        Rows rows;
    };

    __device__ Passage passage_of(int list, uint32_t index) const
    {
        const mimo_staged_message *messages = program.messages + head.first[list];
        const mimo_staged_piece piece = mimo_staged_find(messages, head.count[list], index);
        const mimo_staged_message &message = messages[piece.message];
        const uint32_t width = message.rows.width;
        const uint32_t first = piece.number * message.piece >> width;
        const uint64_t number = *message.fifo.before + piece.number;
        const uint32_t entry = (uint32_t)(number % head.entries);
        return {message,
                first,
                mimo_staged_piece_bytes(&message, piece.number) >> width,
                number,
                message.fifo.filled + entry,
                message.fifo.emptied + entry,
                {message.fifo.entries + (size_t)entry * head.entry_bytes, first, width},
                {program.blocks, message.rows, program.bases}};
    }

    // What await_flag finds, in all threads.
    __device__ Found await_all(const uint64_t *flag, uint64_t value, bool patient)
    {
        Found found = ABORTED;
        if (threadIdx.x == 0)
            found = await_flag(flag, value, program.shared.note, patient);
        return (Found)from_first<kThreads>(found, uses++);
    }

    // By all threads, once they have moved a piece.
    __device__ void set(uint64_t *flag, uint64_t value)
    {
        __syncthreads();
        if (threadIdx.x == 0)
            store_release(flag, value);
    }

    // False: aborted.
    __device__ bool send_all()
    {
        uint32_t index;
        while (sends.next(index, uses)) {
            const Passage it = passage_of(MIMO_STAGED_SEND, index);
            const auto is_empty = [&] {
                return it.number < head.entries ||
                       await_all(it.emptied, it.number + 1 - head.entries, true) == REACHED;
            };
            if (!move_by_width(it.entry.width, it.entry, it.rows, it.first, it.count, is_empty))
                return false;
            set(it.filled, it.number + 1);
        }
        return true;
    }

    // Rows that stay are copied while a piece has not arrived. False: aborted.
    __device__ bool receive_all()
    {
        uint32_t index;
        while (receives.next(index, uses)) {
            const Passage it = passage_of(MIMO_STAGED_RECEIVE, index);
            bool others = true;
            Found found;
            while ((found = await_all(it.filled, it.number + 1, !others)) == NOT_YET)
                others = copy_one();
            if (found == ABORTED)
                return false;
            move_by_width(it.entry.width, it.rows, it.entry, it.first, it.count,
                          [] { return true; });
            set(it.emptied, it.number + 1);
        }
        return true;
    }

    // Copy a piece of the rows that stay. False: there is none left.
    __device__ bool copy_one()
    {
        uint32_t index;
        if (!stays.next(index, uses))
            return false;
        const uint32_t first = index * head.stay_piece;
        const uint32_t count = min(head.stay_piece, head.stay_words - first);
        move_by_width(head.to.width, Rows{program.blocks, head.to, program.bases},
                      Rows{program.blocks, head.from, program.bases}, first, count,
                      [] { return true; });
        return true;
    }
};

// The last thread block counts the pieces of the call, once no other one reads these counts any
// more.
template <class Program> __device__ void end_call(const Program &program)
{
    const mimo_staged_head &head = program.head;
    mimo_flags *own = program.shared.own;
    __syncthreads();
    if (blockIdx.x < gridDim.x - 1) {
        if (threadIdx.x == 0)
            atomicAdd((unsigned long long *)&own->ready, 1ull);
        return;
    }
    if (threadIdx.x == 0) {
        while (load_acquire(&own->ready) < gridDim.x - 1)
            ;
        own->ready = own->done = own->receives = own->sends = 0;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < head.count[0] + head.count[1]; i += kThreads)
        *program.messages[i].fifo.before += program.messages[i].pieces;
}

template <class Program>
__global__ void __launch_bounds__(kThreads, 2) pass_rows(const __grid_constant__ Program program)
{
    await_stream();
    Worker<Program>(program).run();
    end_call(program);
}

template <class Program> cudaError_t enqueue(const Program &program, cudaStream_t stream)
{
    const uint32_t *workers = program.head.workers;
    return launch_early(pass_rows<Program>,
                        workers[MIMO_STAGED_SEND] + workers[MIMO_STAGED_RECEIVE], kThreads, 0,
                        stream, program);
}

} // namespace

cudaError_t mimo_staged_enqueue_small(const mimo_staged_small *program, cudaStream_t stream)
{
    return enqueue(*program, stream);
}

cudaError_t mimo_staged_enqueue_large(const mimo_staged_large *program, cudaStream_t stream)
{
    return enqueue(*program, stream);
}
