// The bulk kernel of staged messages, for Hopper and later. A worker is a warp. It moves pieces by
// bulk copies through two stages of shared memory: it loads one while the other one is stored.
// Whatever a worker waits for, the other ones of its thread block go on.
//
// Of the time of a warp that sends, the release of FILLED was the largest part: it waits for all
// writes of the multiprocessor that are on their way, 2 us in a small call and 4 to 5 in a large
// one (two H100). So one more warp of the thread block does it for all workers.
#include "comm/nccl/nccl_outbox.cuh"
#include "comm/nccl/nccl_staged_worker.cuh"
#include "device/cuda_search.cuh"

namespace
{

// What a worker has of its thread block's shared memory.
struct Desk {
    alignas(128) char stage[2][MIMO_STAGED_BULK];
    uint64_t full[2]; // mbarriers: the stage is loaded
    Outbox box;
};

#if MIMO_HAS_BULK

// ------------------------------------------- rows -------------------------------------------

constexpr int kWordShift = 4; // words have 16 bytes

// Call run(at, offset, bytes) for each part of one row among words [begin, end) of a block, a lane
// for each. Offsets count from word `begin`.
template <class Run>
__device__ void for_runs_of(const mimo_staged_block &block, char *base, uint32_t begin,
                            uint32_t end, Run run)
{
    const uint32_t last = mimo_divide(end - 1, block.by_row);
    for (uint32_t row = mimo_divide(begin, block.by_row) + threadIdx.x; row <= last; row += 32) {
        const uint32_t row_begin = row * block.row_words;
        const uint32_t from = max(begin, row_begin), to = min(end, row_begin + block.row_words);
        const uint32_t i = mimo_divide(row, block.by_inner), j = row - i * block.n_inner;
        char *at = base + (i * block.outer + j * block.inner);
        run(at + ((size_t)(from - row_begin) << kWordShift), (from - begin) << kWordShift,
            (to - from) << kWordShift);
    }
}

// The same for the words of a job. Offsets count from its first word.
template <class Program, class Run>
__device__ void for_runs(const Program &program, const mimo_staged_rows &rows, const Job &job,
                         Run run)
{
    const mimo_staged_block *blocks = program.blocks + rows.first;
    int b = last_at_most(rows.count, job.first, [&](int k) { return blocks[k].begin; });
    for (uint32_t done = 0; done < job.count; b++) {
        const mimo_staged_block &block = blocks[b];
        const uint32_t begin = job.first + done - block.begin;
        uint32_t end = begin + job.count - done;
        if (b + 1 < rows.count)
            end = min(end, blocks[b + 1].begin - block.begin);
        for_runs_of(block, program.bases[block.base] + block.at, begin, end,
                    [&](char *at, uint32_t offset, uint32_t bytes) {
                        run(at, (done << kWordShift) + offset, bytes);
                    });
        done += end - begin;
    }
}

// ------------------------------------------- hand -------------------------------------------

template <class Program> class Warp
{
  public:
    static constexpr int kThreads = 32;
    static constexpr bool kOverlaps = true;

    __device__ Warp(const Program &program, Desk &desk)
        : program(program), desk(desk), poster(desk.box)
    {
    }

    __device__ void load(const Job &job)
    {
        if (job.list == MIMO_STAGED_RECEIVE)
            load_entry(job);
        else if (job.list != MIMO_STAGED_LISTS)
            load_rows(job.list == MIMO_STAGED_SEND ? job.message->rows : program.head.from, job);
    }

    template <class Ready> __device__ bool store(const Job &job, Ready ready)
    {
        const bool may_write = ready();
        const char *from = desk.stage[stored % 2];
        await(&desk.full[stored % 2], stored / 2 % 2);
        stored++;
        if (!may_write)
            return false;
        if (job.list == MIMO_STAGED_SEND)
            store_entry(job, from);
        else
            store_rows(job.list == MIMO_STAGED_STAY ? program.head.to : job.message->rows, job,
                       from);
        commit_stores();
        return true;
    }

    __device__ void written(int pending)
    {
        if (pending == 0)
            await_writes<0>();
        else
            await_writes<1>();
    }

    __device__ void set(uint64_t *flag, uint64_t value, bool now)
    {
        poster.post(flag, value, now);
    }

    __device__ void flush()
    {
        if (threadIdx.x == 0)
            poster.flush();
    }

    __device__ void close()
    {
        if (threadIdx.x == 0)
            poster.close();
    }

  private:
    const Program &program;
    Desk &desk;
    Poster poster;
    uint32_t loaded = 0, stored = 0; // jobs; job n is in stage n % 2

    __device__ char *entry_of(const Job &job) const
    {
        return job.message->fifo.entries + (size_t)job.entry * program.head.entry_bytes;
    }

    // The store before the last one has read the stage.
    __device__ uint32_t begin_load(const Job &job)
    {
        await_reads<1>();
        __syncwarp();
        if (threadIdx.x == 0)
            expect(&desk.full[loaded % 2], job.count << kWordShift);
        __syncwarp();
        return loaded++ % 2;
    }

    // The first thread has acquired FILLED.
    __device__ void load_entry(const Job &job)
    {
        const uint32_t at = begin_load(job);
        if (threadIdx.x == 0) {
            order_bulk();
            ::load(desk.stage[at], entry_of(job), job.count << kWordShift, &desk.full[at]);
        }
    }

    // The first thread has acquired EMPTIED or RETURNED.
    __device__ void store_entry(const Job &job, const char *from)
    {
        if (threadIdx.x == 0) {
            order_bulk();
            ::store(entry_of(job), from, job.count << kWordShift);
        }
    }

    __device__ void load_rows(const mimo_staged_rows &rows, const Job &job)
    {
        const uint32_t to = begin_load(job);
        for_runs(program, rows, job, [&](char *at, uint32_t offset, uint32_t bytes) {
            ::load(desk.stage[to] + offset, at, bytes, &desk.full[to]);
        });
    }

    __device__ void store_rows(const mimo_staged_rows &rows, const Job &job, const char *from)
    {
        for_runs(program, rows, job, [&](char *at, uint32_t offset, uint32_t bytes) {
            ::store(at, from + offset, bytes);
        });
    }
};

// ------------------------------------------ kernel ------------------------------------------

__device__ void open_desk(Desk &desk)
{
    for (uint64_t &full : desk.full)
        init_barrier(&full);
    open_box(desk.box);
}

// The last warp of a thread block sets flags, the others are workers.
template <class Program> __device__ void run(const Program &program, Desk *desks)
{
    const uint32_t *workers = program.head.workers, warp = threadIdx.y, warps = blockDim.y - 1;
    const uint32_t number = blockIdx.x * warps + warp;
    if (threadIdx.x == 0 && warp < warps)
        open_desk(desks[warp]);
    open_barriers();
    await_stream();
    if (warp == warps) {
        if (blockIdx.x == 0)
            begin_call(program);
        send_posts(warps, [=](int i) { return &desks[i].box; });
    } else {
        Warp<Program> hand(program, desks[warp]);
        if (number < workers[MIMO_STAGED_SEND] + workers[MIMO_STAGED_RECEIVE])
            Worker<Program, Warp<Program>>(program, hand, number).run();
        hand.close();
    }
    end_call(program);
}

#else

template <class Program> __device__ void run(const Program &, Desk *)
{
}

#endif

template <class Program>
__global__ void __launch_bounds__(32 * (MIMO_STAGED_WARPS + 1))
    pass_in_bulk(const __grid_constant__ Program program)
{
    extern __shared__ __align__(128) char memory[];
    run(program, (Desk *)memory);
}

template <class Program> cudaError_t enqueue(const Program &program, cudaStream_t stream)
{
    const mimo_staged_head &head = program.head;
    const uint32_t workers = head.workers[MIMO_STAGED_SEND] + head.workers[MIMO_STAGED_RECEIVE];
    return launch_early(pass_in_bulk<Program>, (workers + head.warps - 1) / head.warps,
                        dim3(32, head.warps + 1), head.warps * sizeof(Desk), stream, program);
}

template <class Program> cudaError_t allow_shared_memory()
{
    return cudaFuncSetAttribute(pass_in_bulk<Program>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                MIMO_STAGED_WARPS * sizeof(Desk));
}

} // namespace

cudaError_t mimo_staged_bulk_small(const mimo_staged_small *program, cudaStream_t stream)
{
    return enqueue(*program, stream);
}

cudaError_t mimo_staged_bulk_large(const mimo_staged_large *program, cudaStream_t stream)
{
    return enqueue(*program, stream);
}

// Some newer devices have less shared memory.
cudaError_t mimo_staged_bulk_runs(bool *out)
{
    int device, most;
    cudaError_t status = runs_hopper_code(out, (const void *)pass_in_bulk<mimo_staged_small>);
    if (status == cudaSuccess && *out)
        status = cudaGetDevice(&device);
    if (status == cudaSuccess && *out)
        status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (status != cudaSuccess || !*out)
        return status;
    *out = most >= (int)(MIMO_STAGED_WARPS * sizeof(Desk));
    if (*out)
        status = allow_shared_memory<mimo_staged_small>();
    if (*out && status == cudaSuccess)
        status = allow_shared_memory<mimo_staged_large>();
    return status;
}
