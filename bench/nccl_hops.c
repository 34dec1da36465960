#include "nccl_hops.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include <mimo/mpi.h>
#include <mimo/nccl.h>

#include "bench_support.h"

enum { CALLS = 20, REPEATS = 7, WARM_UP = 3, CTAS = 16, HIDDEN = 2048 };

static const int64_t shapes[] = {1024, 4096, 8192}; /* rows of HIDDEN numbers in f32 */

typedef struct hop_bench {
    const nccl_world *world;
    mimo_comm *comm;
    ncclComm_t bare;
    mimo_grid *ends[2];
    mimo_bridge *bridge;
    void *tile;
    int64_t rows, bytes;
} hop_bench;

/* --------------------------------------------- life ------------------------------------------- */

/* As gpu_apart_create (train/device/gpu_device.h) does. */
static void make_comms(hop_bench *out)
{
    MPI_Comm mpi = MPI_COMM_WORLD;
    mimo_bootstrap bootstrap = MIMO_BOOTSTRAP_INIT;
    mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    bench_must(mimo_bootstrap_from_mpi(&bootstrap, &mpi), "bootstrap");
    bench_must(mimo_nccl_device(&desc.device, out->world->comm), "device");
    desc.max_ctas = CTAS;
    bench_must(mimo_comm_create_nccl(&out->comm, &bootstrap, &desc), "communicator");
    config.maxCTAs = CTAS;
    if (out->world->rank == 0)
        nccl_must_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    nccl_must_nccl(ncclCommInitRankConfig(&out->bare, 2, id, out->world->rank, &config),
                   "ncclCommInitRankConfig");
}

static void make(hop_bench *out, const nccl_world *world, int64_t rows)
{
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    *out =
        (hop_bench){.world = world, .rows = rows, .bytes = rows * HIDDEN * (int64_t)sizeof(float)};
    make_comms(out);
    for (int end = 0; end < 2; end++)
        bench_must(mimo_grid_create_text(&out->ends[end], "dp=1", end), "grid");
    desc.src = out->ends[0];
    desc.dst = out->ends[1];
    desc.batch = rows;
    desc.ctas = CTAS;
    bench_must(mimo_bridge_create(&out->bridge, out->comm, &desc), "bridge");
    nccl_must_cuda(cudaMalloc(&out->tile, (size_t)out->bytes), "cudaMalloc");
}

static void release(hop_bench *it)
{
    cudaFree(it->tile);
    mimo_bridge_destroy(it->bridge);
    mimo_grid_destroy(it->ends[0]);
    mimo_grid_destroy(it->ends[1]);
    ncclCommDestroy(it->bare);
    mimo_comm_destroy(it->comm);
}

/* -------------------------------------------- calls ------------------------------------------- */

static mimo_tensor view(const hop_bench *it, bool sends)
{
    bool holds = (it->world->rank == 0) == sends;
    mimo_tensor tile =
        mimo_tensor_3d(holds ? it->tile : NULL, MIMO_F32, "sbh", 1, holds ? it->rows : 0, HIDDEN);
    tile.memory = MIMO_MEMORY_CUDA;
    return tile;
}

static void by_bridge(const hop_bench *it)
{
    mimo_tensor to = view(it, false), from = view(it, true);
    mimo_move_desc move = MIMO_MOVE_DESC_INIT;
    mimo_op *op;
    move.to = &to;
    move.from = &from;
    move.n = 1;
    move.stream = it->world->stream;
    bench_must(mimo_bridge_forward_start_chunked(&op, it->bridge, &move), "hop");
    bench_must(mimo_op_wait_chunk(op, 0, it->world->stream), "hop");
    bench_must(mimo_op_wait(&op), "hop");
}

static void by_nccl(const hop_bench *it)
{
    size_t bytes = (size_t)it->bytes;
    nccl_must_nccl(ncclGroupStart(), "ncclGroupStart");
    if (it->world->rank == 0)
        nccl_must_nccl(ncclSend(it->tile, bytes, ncclUint8, 1, it->bare, it->world->stream),
                       "ncclSend");
    else
        nccl_must_nccl(ncclRecv(it->tile, bytes, ncclUint8, 0, it->bare, it->world->stream),
                       "ncclRecv");
    nccl_must_nccl(ncclGroupEnd(), "ncclGroupEnd");
}

typedef void (*hop_way)(const hop_bench *it);
enum { WAYS = 2 };
static const hop_way ways[WAYS] = {by_bridge, by_nccl};

/* -------------------------------------------- times ------------------------------------------- */

/* Whether rank 1 gets the tile of rank 0. */
static bool check(const hop_bench *it, hop_way way)
{
    size_t bytes = (size_t)it->bytes;
    uint32_t *wanted = malloc(bytes), *got = malloc(bytes);
    nccl_must(wanted && got, "check", "out of memory");
    for (size_t i = 0; i < bytes / sizeof *wanted; i++)
        wanted[i] = (uint32_t)i * 2654435761u;
    if (it->world->rank == 0)
        nccl_must_cuda(cudaMemcpy(it->tile, wanted, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    else
        nccl_must_cuda(cudaMemset(it->tile, 0xff, bytes), "cudaMemset");
    nccl_must_cuda(cudaDeviceSynchronize(), "fill");
    way(it);
    nccl_must_cuda(cudaStreamSynchronize(it->world->stream), "hop");
    nccl_must_cuda(cudaMemcpy(got, it->tile, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    int same = memcmp(wanted, got, bytes) == 0;
    MPI_Allreduce(MPI_IN_PLACE, &same, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    free(wanted);
    free(got);
    return same;
}

/* Microseconds of a call on the slowest rank: CALLS calls between two events. */
static double time_calls(const hop_bench *it, hop_way way, cudaEvent_t begin, cudaEvent_t end)
{
    float ms;
    double us;
    cudaStream_t stream = it->world->stream;
    for (int i = 0; i < WARM_UP; i++)
        way(it);
    nccl_must_cuda(cudaStreamSynchronize(stream), "warm-up");
    MPI_Barrier(MPI_COMM_WORLD);
    nccl_must_cuda(cudaEventRecord(begin, stream), "event");
    for (int i = 0; i < CALLS; i++)
        way(it);
    nccl_must_cuda(cudaEventRecord(end, stream), "event");
    nccl_must_cuda(cudaEventSynchronize(end), "calls");
    nccl_must_cuda(cudaEventElapsedTime(&ms, begin, end), "event");
    us = (double)ms * 1e3 / CALLS;
    MPI_Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return us;
}

static void print_times(const hop_bench *it, double bridge, double bare, bool json)
{
    if (it->world->rank != 0)
        return;
    if (json)
        printf("{\"hop_bytes\":%" PRId64 ",\"bridge_us\":%.2f,\"bare_us\":%.2f}\n", it->bytes,
               bridge, bare);
    else
        printf("a hop of %3" PRId64 " MiB: by bridge %8.1f us, bare %8.1f us, ratio %5.3f\n",
               it->bytes >> 20, bridge, bare, bridge / bare);
    fflush(stdout);
}

static void measure(const hop_bench *it, bool json)
{
    double repeats[WAYS][REPEATS];
    cudaEvent_t begin, end;
    nccl_must_cuda(cudaEventCreate(&begin), "event");
    nccl_must_cuda(cudaEventCreate(&end), "event");
    for (int repeat = 0; repeat < REPEATS; repeat++)
        for (int way = 0; way < WAYS; way++)
            repeats[way][repeat] = time_calls(it, ways[way], begin, end);
    print_times(it, bench_median(repeats[0], REPEATS), bench_median(repeats[1], REPEATS), json);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
}

bool nccl_hops_time(const nccl_world *world, bool json)
{
    bool same = true;
    nccl_must(world->size == 2, "--hops", "a hop has two ranks");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        hop_bench it;
        bench_stage("a hop");
        make(&it, world, shapes[i]);
        bool arrived = true;
        for (int way = 0; way < WAYS; way++)
            arrived = check(&it, ways[way]) && arrived;
        if (arrived)
            measure(&it, json);
        else if (world->rank == 0)
            fprintf(stderr, "a hop of %" PRId64 " bytes brings other bits\n", it.bytes);
        same = arrived && same;
        release(&it);
    }
    return same;
}
