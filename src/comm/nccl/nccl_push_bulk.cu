// Zero-copy by the bulk copies of Hopper and later: rows go through shared memory, not registers,
// issued by one warp, so that a few thread blocks keep as many bytes in flight as a whole chip of
// loads and stores. Everything is a multiple of 16 bytes.
#include "comm/nccl/nccl_push_deal.cuh"
#include "comm/nccl/nccl_push_flags.cuh"

namespace
{

constexpr int kThreads = 32;
constexpr int kStages = 6; // segments in shared memory: loaded ahead, or being written

struct Room {
    uint64_t full[kStages]; // mbarriers: the stage's rows have arrived
    Piece piece[kStages];
    alignas(128) char stage[kStages][MIMO_PUSH_BULK];
};

// ---------------------------------------- bulk copies ---------------------------------------

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

constexpr int kAhead = 2; // segments that are loaded ahead of the one that is stored

__device__ uint32_t shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

__device__ void open_barriers(Room &room)
{
    if (threadIdx.x == 0)
        for (int i = 0; i < kStages; i++)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(
                             shared_address(&room.full[i]))
                         : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncthreads();
}

__device__ void expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

__device__ void await(uint64_t *barrier, uint32_t phase)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}\n" ::"r"(shared_address(barrier)),
                 "r"(phase)
                 : "memory");
}

__device__ void load(void *to, const char *from, uint32_t bytes, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

__device__ void store(char *to, const void *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

__device__ void commit_stores()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// All but the last so many groups have read their stage.
template <int kPending>
__device__ void await_reads()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Bulk copies come after what this thread has learnt from flags.
__device__ void order_stores()
{
    asm volatile("fence.proxy.async;" ::: "memory");
}

// All have arrived where they go, before whatever this thread says next.
__device__ void await_stores()
{
    asm volatile("cp.async.bulk.wait_group 0;\n"
                 "fence.proxy.async;" ::
                     : "memory");
}

// ------------------------------------------ segments ----------------------------------------

// The rows of a segment: one for each of so many lanes.
struct Segment {
    const char *from;
    char *to;
    uint32_t rows, bytes; // of each
};

// This lane's row of a block's segment; `unit` bytes of it, where rows are longer.
__device__ Segment segment_of(const mimo_push_block &block, uint32_t index, uint32_t unit)
{
    uint32_t group = divide(index, block.by_chunks), chunk = index - group * block.chunks;
    uint32_t i = divide(group, block.by_groups), j = (group - i * block.groups) * block.side;
    uint32_t skip = chunk * unit, row = j + threadIdx.x;
    return {block.from + i * block.from_outer + row * block.from_inner + skip,
            block.to + i * block.to_outer + row * block.to_inner + skip,
            min(block.side, block.n_inner - j), min(unit, block.row_words - skip)};
}

__device__ void load_segment(Room &room, const Segment &segment, uint32_t slot)
{
    if (threadIdx.x == 0)
        expect(&room.full[slot], segment.rows * segment.bytes);
    __syncwarp();
    if (threadIdx.x < segment.rows)
        load(&room.stage[slot][threadIdx.x * segment.bytes], segment.from, segment.bytes,
             &room.full[slot]);
}

// ------------------------------------------- moving -----------------------------------------

template <class Program>
class Mover
{
  public:
    __device__ Mover(const Program &program, Room &room)
        : program(program), room(room), deal(program.head, program.blocks)
    {
    }

    // Loads run ahead of stores; a stage is loaded again once the store before has read it. Where a
    // target is never ready, nothing more is stored, but what is on its way into the stages is
    // awaited: false then.
    __device__ bool run(uint32_t &wrote)
    {
        bool stores = true, more = true;
        while (loaded < kAhead && (more = load_next()))
            ;
        for (uint32_t written = 0; written < loaded; written++) {
            more = more && stores && load_next();
            uint32_t slot = written % kStages;
            const Piece piece = room.piece[slot];
            await(&room.full[slot], written / kStages % 2);
            const bool asks = stores && piece.remote;
            const Answer told = asks ? ask(program.blocks[piece.block].target) : WRITE;
            stores = stores && told != NEVER;
            if (stores && told == WRITE)
                store_piece(piece, slot);
            wrote += stores && piece.remote;
            commit_stores();
        }
        await_stores();
        return stores;
    }

  private:
    const Program &program;
    Room &room;
    Deal<kThreads> deal;
    ReadyTargets ready;
    int target = -1;       // the last one asked about,
    Answer answer = WRITE; // and what it said
    uint32_t loaded = 0;

    // False: there is no piece left.
    __device__ bool load_next()
    {
        Piece piece;
        if (!deal.next(piece))
            return false;
        const uint32_t slot = loaded % kStages;
        if (loaded >= kAhead)
            await_reads<kStages - kAhead - 1>();
        __syncwarp();
        if (threadIdx.x == 0)
            room.piece[slot] = piece;
        load_segment(room, segment_of(piece), slot);
        loaded++;
        return true;
    }

    __device__ Segment segment_of(const Piece &piece) const
    {
        return ::segment_of(program.blocks[piece.block], piece.index, program.head.piece);
    }

    __device__ Answer ask(int wanted)
    {
        if (program.head.idle || wanted == target)
            return answer;
        target = wanted;
        answer = await_ready(program.head, program.peers, wanted, ready);
        if (answer == WRITE)
            order_stores();
        return answer;
    }

    __device__ void store_piece(const Piece &piece, uint32_t slot)
    {
        const Segment segment = segment_of(piece);
        if (threadIdx.x < segment.rows)
            store(segment.to, &room.stage[slot][threadIdx.x * segment.bytes], segment.bytes);
    }
};

template <class Program>
__device__ void run(const Program &program, Room &room)
{
    open_barriers(room);
    run_call(program.head, program.peers,
             [&](uint32_t &wrote) { return Mover<Program>(program, room).run(wrote); });
}

#else

template <class Program>
__device__ void run(const Program &, Room &)
{
}

#endif

template <class Program>
__global__ void __launch_bounds__(kThreads) push_bulk(const __grid_constant__ Program program)
{
    extern __shared__ __align__(128) char memory[];
    run(program, *(Room *)memory);
}

template <class Program>
cudaError_t allow_room()
{
    return cudaFuncSetAttribute(push_bulk<Program>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                sizeof(Room));
}

} // namespace

cudaError_t mimo_push_bulk(const mimo_push_program *program, cudaStream_t stream)
{
    return launch(*program, [=](const auto &as) {
        return launch_early(push_bulk, (unsigned)program->ctas, kThreads, sizeof(Room), stream, as);
    });
}

// Code for older devices has an empty kernel, which a newer one would run where it got no other.
cudaError_t mimo_push_bulk_fits(int *per_multiprocessor)
{
    bool newer;
    *per_multiprocessor = 0;
    cudaError_t status = runs_hopper_code(&newer, (const void *)push_bulk<mimo_push_near>);
    if (status != cudaSuccess || !newer)
        return status;
    status = allow_room<mimo_push_near>();
    if (status == cudaSuccess)
        status = allow_room<mimo_push_far>();
    if (status == cudaSuccess)
        status = allow_room<Few>();
    if (status == cudaSuccess)
        status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            per_multiprocessor, push_bulk<mimo_push_near>, kThreads, sizeof(Room));
    return status;
}
