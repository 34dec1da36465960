// The bulk kernel of zero-copy, for Hopper and later. Bulk copies move rows through shared memory
// instead of registers. One warp issues them, so a few thread blocks keep as many bytes in flight
// as loads and stores of all multiprocessors. Everything is a multiple of 16 bytes.
#include "comm/nccl/nccl_bulk.cuh"
#include "comm/nccl/nccl_push_flags.cuh"
#include "comm/nccl/nccl_push_pieces.cuh"

namespace
{

constexpr int kThreads = 32;
constexpr int kStages = 6; // segments in shared memory: loaded ahead, or being written

struct Shared {
    uint64_t full[kStages]; // mbarriers: the stage's rows have arrived
    Piece piece[kStages];
    alignas(128) char stage[kStages][MIMO_PUSH_BULK];
};

#if MIMO_HAS_BULK

constexpr int kAhead = 2; // segments that are loaded ahead of the one that is stored

// ------------------------------------------ segments ----------------------------------------

// The rows of a segment: each of the first `rows` lanes has one.
struct Segment {
    const char *from;
    char *to;
    uint32_t rows, bytes; // of each
};

// This lane's row of a block's segment. Where rows are longer than `unit` bytes, a segment is
// `unit` bytes of one row.
__device__ Segment segment_of(const mimo_push_block &block, char *const *bases, uint32_t index,
                              uint32_t unit)
{
    uint32_t group = mimo_divide(index, block.by_chunks), chunk = index - group * block.chunks;
    uint32_t i = mimo_divide(group, block.by_groups),
             j = (group - i * block.groups) * block.segment_rows;
    uint32_t skip = chunk * unit, row = j + threadIdx.x;
    return {from_of(block, bases) + i * block.from_outer + row * block.from_inner + skip,
            to_of(block, bases) + i * block.to_outer + row * block.to_inner + skip,
            min(block.segment_rows, block.n_inner - j), min(unit, block.row_words - skip)};
}

__device__ void load_segment(Shared &shared, const Segment &segment, uint32_t stage)
{
    if (threadIdx.x == 0)
        expect(&shared.full[stage], segment.rows * segment.bytes);
    __syncwarp();
    if (threadIdx.x < segment.rows)
        load(&shared.stage[stage][threadIdx.x * segment.bytes], segment.from, segment.bytes,
             &shared.full[stage]);
}

// ------------------------------------------- moving -----------------------------------------

template <class Program> class Mover
{
  public:
    __device__ Mover(const Program &program, Shared &shared)
        : program(program), shared(shared), queue(program.head, program.blocks)
    {
    }

    // Loads run ahead of stores. A stage is loaded again once its last store has read it. After an
    // abort nothing more is stored, but the loads in flight are awaited; then this returns false.
    __device__ bool run(uint32_t &wrote)
    {
        bool stores = true, more = true;
        while (loaded < kAhead && (more = load_next()))
            ;
        for (uint32_t written = 0; written < loaded; written++) {
            more = more && stores && load_next();
            uint32_t stage = written % kStages;
            const Piece piece = shared.piece[stage];
            await(&shared.full[stage], written / kStages % 2);
            const bool remote = stores && piece.remote;
            const Answer answered =
                remote ? await_target(program.blocks[piece.block].target) : WRITE;
            stores = stores && answered != ABORTED;
            if (stores && answered == WRITE)
                store_piece(piece, stage);
            wrote += stores && piece.remote;
            commit_stores();
        }
        await_writes<0>();
        return stores;
    }

  private:
    const Program &program;
    Shared &shared;
    PieceQueue<kThreads> queue;
    ReadyTargets ready;
    int target = -1;       // the last one that was awaited
    Answer answer = WRITE; // the result of that
    uint32_t loaded = 0;

    // False: there is no piece left.
    __device__ bool load_next()
    {
        Piece piece;
        if (!queue.next(piece))
            return false;
        const uint32_t stage = loaded % kStages;
        if (loaded >= kAhead)
            await_reads<kStages - kAhead - 1>();
        __syncwarp();
        if (threadIdx.x == 0)
            shared.piece[stage] = piece;
        load_segment(shared, segment_of(piece), stage);
        loaded++;
        return true;
    }

    __device__ Segment segment_of(const Piece &piece) const
    {
        return ::segment_of(program.blocks[piece.block], program.bases, piece.index,
                            program.head.piece);
    }

    __device__ Answer await_target(int wanted)
    {
        if (program.head.idle || wanted == target)
            return answer;
        target = wanted;
        answer = await_ready(program.head, program.peers, wanted, ready);
        if (answer == WRITE)
            order_bulk();
        return answer;
    }

    __device__ void store_piece(const Piece &piece, uint32_t stage)
    {
        const Segment segment = segment_of(piece);
        if (threadIdx.x < segment.rows)
            store(segment.to, &shared.stage[stage][threadIdx.x * segment.bytes], segment.bytes);
    }
};

template <class Program> __device__ void run(const Program &program, Shared &shared)
{
    if (threadIdx.x == 0)
        for (uint64_t &full : shared.full)
            init_barrier(&full);
    open_barriers();
    run_call(program.head, program.peers,
             [&](uint32_t &wrote) { return Mover<Program>(program, shared).run(wrote); });
}

#else

template <class Program> __device__ void run(const Program &, Shared &)
{
}

#endif

template <class Program>
__global__ void __launch_bounds__(kThreads) push_bulk(const __grid_constant__ Program program)
{
    extern __shared__ __align__(128) char memory[];
    run(program, *(Shared *)memory);
}

template <class Program> cudaError_t allow_shared_memory()
{
    return cudaFuncSetAttribute(push_bulk<Program>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                sizeof(Shared));
}

} // namespace

cudaError_t mimo_push_bulk(const mimo_push_program *program, cudaStream_t stream)
{
    return launch(*program, [=](const auto &as) {
        return launch_early(push_bulk, (unsigned)program->ctas, kThreads, sizeof(Shared), stream,
                            as);
    });
}

// Code for older devices has an empty kernel. A newer device would run it if the build has no code
// for that device.
cudaError_t mimo_push_bulk_fits(int *per_multiprocessor)
{
    bool newer;
    *per_multiprocessor = 0;
    cudaError_t status = runs_hopper_code(&newer, (const void *)push_bulk<mimo_push_small>);
    if (status != cudaSuccess || !newer)
        return status;
    status = allow_shared_memory<mimo_push_small>();
    if (status == cudaSuccess)
        status = allow_shared_memory<mimo_push_large>();
    if (status == cudaSuccess)
        status = allow_shared_memory<Listed>();
    if (status == cudaSuccess)
        status = allow_shared_memory<Tiny>();
    if (status == cudaSuccess)
        status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            per_multiprocessor, push_bulk<mimo_push_small>, kThreads, sizeof(Shared));
    return status;
}
