// What the workers of a call do, for both kernels of staged messages (comm/staged/staged_types.h
// says why none of them waits for ever). A worker stores one job, and meanwhile takes the next one
// and begins to load it. Before it waits for a flag it hands on all flags that it owes.
//
// How a worker moves bytes is its Hand:
//
//   kThreads            the threads of a worker: the x dimension of the thread block
//   kOverlaps           whether a job can be loaded while another one is stored
//   load(job)           begin to load what the job moves
//   store(job, ready)   store it. It is written only where ready() returns true; false: it was not.
//                       An entry that the job empties was read when it returns
//   written(pending)    wait until all that was stored is written, for a flag by the first thread;
//                       except for the last store where `pending` is 1
//   set(flag, value, now)  by the first thread: set a flag of a peer, behind all that it has seen
//                       written and read. Without `now` it may be set later, but not never
//   flush()             set flags that were put off
//
// Each .cu file that includes this has its own copy of everything.
#ifndef MIMO_COMM_NCCL_STAGED_WORKER_CUH
#define MIMO_COMM_NCCL_STAGED_WORKER_CUH

#include "comm/nccl/nccl_progress.cuh"
#include "comm/nccl/nccl_staged_kernel.h"
#include "device/cuda_launch.cuh"

namespace
{

// A piece that a worker moves.
struct Job {
    int list;              // MIMO_STAGED_LISTS: there is none
    uint32_t first, count; // words of the message, or of the rows that stay
    // Of a piece of a message:
    const mimo_staged_message *message;
    uint64_t number;       // over all calls
    uint32_t piece, entry; // its number in the message; its entry of the FIFO
};

// The pieces of a list that a worker takes, from a counter. It asks for the next piece before it
// moves this one, so that the answer arrives meanwhile. The answer to the last question is taken as
// well, before the kernel ends.
template <int kThreads> class Claims
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

template <class Program, class Hand> class Worker
{
  public:
    // `number`: of the worker.
    __device__ Worker(const Program &program, Hand &hand, uint32_t number)
        : program(program), head(program.head), hand(hand),
          list(mimo_staged_list_of(&program.head, number)),
          pieces(list == MIMO_STAGED_SEND ? &program.shared.own->done
                                          : &program.shared.own->receives,
                 program.head.pieces[list]),
          stays(&program.shared.own->sends, program.head.pieces[MIMO_STAGED_STAY])
    {
    }

    __device__ void run()
    {
        Job stored = kNone;
        for (bool ended = false; !ended;) {
            const bool idle = stored.list == MIMO_STAGED_LISTS;
            const Job job = Hand::kOverlaps || idle ? next(idle) : kNone;
            hand.load(job);
            pay(1);
            owed = stored;
            if (job.list != MIMO_STAGED_SEND)
                pay(0);
            ended = idle && job.list == MIMO_STAGED_LISTS;
            if (job.list != MIMO_STAGED_LISTS && !hand.store(job, [&] { return may_write(job); }))
                break;
            stored = job;
        }
        hand.written(0);
    }

  private:
    using Questions = Claims<Hand::kThreads>;
    static constexpr Job kNone = {MIMO_STAGED_LISTS};

    const Program &program;
    const mimo_staged_head &head;
    Hand &hand;
    int list; // whose pieces it takes
    Questions pieces, stays;
    Job taken = kNone; // the piece of a message that it moves next
    Job owed = kNone;  // the one whose flag is not handed on yet
    bool aborted = false;
    uint32_t uses = 0;                          // of from_first
    const mimo_staged_message *known = NULL;    // the last message, and `before` of its FIFO
    const mimo_staged_message *returned = NULL; // a message whose FIFO has RETURNED
    uint64_t before = 0;

    __device__ Job piece_of(uint32_t index)
    {
        const mimo_staged_message *messages = program.messages + head.first[list];
        const mimo_staged_piece piece = mimo_staged_find(messages, head.count[list], index);
        const mimo_staged_message &message = messages[piece.message];
        const uint32_t width = message.rows.width;
        if (known != &message) {
            known = &message;
            before = *message.fifo.before;
        }
        const uint64_t number = before + piece.number;
        return {list,
                piece.number * message.piece >> width,
                mimo_staged_piece_bytes(&message, piece.number) >> width,
                &message,
                number,
                piece.number,
                (uint32_t)(number % head.entries)};
    }

    // What await_flag finds, in all threads.
    __device__ Found await_all(const uint64_t *flag, uint64_t value, bool patient)
    {
        Found found = ABORTED;
        if (threadIdx.x == 0)
            found = await_flag(flag, value, program.shared.note, patient);
        return (Found)from_first<Hand::kThreads>(found, uses++);
    }

    // The next job; none where the only ones that are left wait for a flag. A patient worker waits
    // for them.
    __device__ Job next(bool patient)
    {
        uint32_t index;
        if (aborted)
            return kNone;
        if (taken.list == MIMO_STAGED_LISTS && pieces.next(index, uses))
            taken = piece_of(index);
        if (taken.list == MIMO_STAGED_LISTS)
            return next_to_stay(patient);
        if (taken.list == MIMO_STAGED_RECEIVE) {
            const uint64_t *filled = taken.message->fifo.filled + taken.entry;
            Found found = await_all(filled, taken.number + 1, false);
            if (found == NOT_YET) {
                const Job stay = next_to_stay(true);
                if (stay.list == MIMO_STAGED_STAY || !patient)
                    return stay;
                hand.flush();
                found = await_all(filled, taken.number + 1, true);
            }
            aborted = found == ABORTED;
        }
        const Job job = aborted ? kNone : taken;
        taken = kNone;
        return job;
    }

    // Of the rows that stay. A sender begins with them only `now`, when it owes nothing.
    __device__ Job next_to_stay(bool now)
    {
        uint32_t index;
        if (list == MIMO_STAGED_SEND && !now)
            return kNone;
        list = list == MIMO_STAGED_SEND ? MIMO_STAGED_STAY : list;
        if (!stays.next(index, uses))
            return kNone;
        const uint32_t first = index * head.stay_piece;
        return {MIMO_STAGED_STAY, first, min(head.stay_piece, head.stay_words - first)};
    }

    // Whether what a job stores may be written; false: aborted.
    __device__ bool may_write(const Job &job)
    {
        const bool earlier = job.piece < head.entries; // the entry held a piece of an earlier call
        if (job.list != MIMO_STAGED_SEND || job.number < head.entries ||
            (earlier && returned == job.message))
            return true;
        const mimo_fifo &fifo = job.message->fifo;
        const uint64_t *flag = earlier ? fifo.returned : fifo.emptied + job.entry;
        const uint64_t wanted = job.number + 1 - head.entries;
        Found found = await_all(flag, wanted, false);
        if (found == NOT_YET) {
            pay(0);
            found = await_all(flag, wanted, true);
        }
        returned = earlier ? job.message : returned;
        aborted = found == ABORTED;
        return !aborted;
    }

    // Hand on the flag that is owed, with that many later stores pending. A piece that no later one
    // of its message waits for needs no EMPTIED.
    __device__ void pay(int pending)
    {
        const bool sent = owed.list == MIMO_STAGED_SEND;
        const bool awaited =
            owed.list == MIMO_STAGED_RECEIVE && owed.piece + head.entries < owed.message->pieces;
        if (sent)
            hand.written(pending);
        if ((sent || awaited) && threadIdx.x == 0)
            hand.set((sent ? owed.message->fifo.filled : owed.message->fifo.emptied) + owed.entry,
                     owed.number + 1, sent);
        owed = kNone;
    }
};

// By worker 0, or for it, before anything else: say that the launch has begun, and set RETURNED.
// The kernels that received those pieces are complete.
template <class Program> __device__ void begin_call(const Program &program)
{
    if (threadIdx.x == 0)
        say_begun(program.shared.progress);
    const mimo_staged_head &head = program.head;
    const mimo_staged_message *messages = program.messages + head.first[MIMO_STAGED_RECEIVE];
    for (int i = threadIdx.x; i < head.count[MIMO_STAGED_RECEIVE]; i += blockDim.x)
        store_release(messages[i].fifo.returned, *messages[i].fifo.before);
}

// The last thread block counts the pieces of the call, once no other one reads these counts any
// more.
template <class Program> __device__ void end_call(const Program &program)
{
    const mimo_staged_head &head = program.head;
    mimo_flags *own = program.shared.own;
    const bool first = threadIdx.x == 0 && threadIdx.y == 0;
    __syncthreads();
    if (blockIdx.x < gridDim.x - 1) {
        if (first)
            atomicAdd((unsigned long long *)&own->ready, 1ull);
        return;
    }
    if (first) {
        while (load_acquire(&own->ready) < gridDim.x - 1)
            ;
        own->ready = own->done = own->receives = own->sends = 0;
    }
    __syncthreads();
    if (threadIdx.y == 0)
        for (int i = threadIdx.x; i < head.count[0] + head.count[1]; i += blockDim.x)
            *program.messages[i].fifo.before += program.messages[i].pieces;
    if (first)
        say_ended(program.shared.progress);
}

} // namespace

#endif
