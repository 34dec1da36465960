/* A dispatch on GPUs, beside the calls of NCCL. */
#include <cuda_runtime_api.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include <mimo/mpi.h>
#include <mimo/nccl.h>

#include "bench_support.h"
#include "dispatch_place.h"
#include "dispatch_rows.h"

static struct {
    mimo_comm *comm;
    ncclComm_t bare; /* no call of the library is on it */
    cudaStream_t stream;
    cudaEvent_t begin, end;
    int ranks;
} world;

static void must_cuda(cudaError_t code, const char *what)
{
    if (code == cudaSuccess)
        return;
    fprintf(stderr, "dispatch_bench: %s: %s\n", what, cudaGetErrorString(code));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void must_nccl(ncclResult_t code, const char *what)
{
    if (code == ncclSuccess)
        return;
    fprintf(stderr, "dispatch_bench: %s: %s\n", what, ncclGetErrorString(code));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* ------------------------------------- its life -------------------------------------- */

static void open_bare(void)
{
    ncclUniqueId id;
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        must_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    MPI_Bcast(&id, (int)sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    must_nccl(ncclCommInitRank(&world.bare, world.ranks, id, rank), "ncclCommInitRank");
}

static void open_place(mimo_comm **comm, mimo_stream *stream)
{
    int device;
    MPI_Comm all = MPI_COMM_WORLD;
    mimo_bootstrap bootstrap = MIMO_BOOTSTRAP_INIT;
    mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    MPI_Comm_size(MPI_COMM_WORLD, &world.ranks);
    bench_must(mimo_bootstrap_from_mpi(&bootstrap, &all), "bootstrap");
    bench_must(mimo_comm_create_nccl(&world.comm, &bootstrap, &desc), "communicator");
    bench_must(mimo_nccl_device(&device, world.comm), "device");
    must_cuda(cudaSetDevice(device), "device");
    must_cuda(cudaStreamCreateWithFlags(&world.stream, cudaStreamNonBlocking), "stream");
    must_cuda(cudaEventCreate(&world.begin), "event");
    must_cuda(cudaEventCreate(&world.end), "event");
    open_bare();
    *comm = world.comm;
    *stream = world.stream;
}

static void close_place(void)
{
    must_nccl(ncclCommDestroy(world.bare), "ncclCommDestroy");
    cudaEventDestroy(world.begin);
    cudaEventDestroy(world.end);
    cudaStreamDestroy(world.stream);
    mimo_comm_destroy(world.comm);
}

/* -------------------------------------- memory --------------------------------------- */

static void *room(int64_t bytes)
{
    void *made;
    must_cuda(cudaMalloc(&made, (size_t)(bytes > 0 ? bytes : 1)), "memory");
    return made;
}

static void release(void *it)
{
    must_cuda(cudaFree(it), "memory");
}

static void put(void *to, const void *from, int64_t bytes)
{
    must_cuda(cudaDeviceSynchronize(), "calls before");
    if (bytes > 0)
        must_cuda(cudaMemcpy(to, from, (size_t)bytes, cudaMemcpyHostToDevice), "copy");
    must_cuda(cudaDeviceSynchronize(), "copy");
}

static void take(void *to, const void *from, int64_t bytes)
{
    must_cuda(cudaDeviceSynchronize(), "calls before");
    if (bytes > 0)
        must_cuda(cudaMemcpy(to, from, (size_t)bytes, cudaMemcpyDeviceToHost), "copy");
}

/* -------------------------------------- calls ---------------------------------------- */

static double time_calls(place_call call, void *context, int calls)
{
    float ms;
    must_cuda(cudaStreamSynchronize(world.stream), "calls before");
    MPI_Barrier(MPI_COMM_WORLD);
    must_cuda(cudaEventRecord(world.begin, world.stream), "event");
    for (int i = 0; i < calls; i++)
        call(context);
    must_cuda(cudaEventRecord(world.end, world.stream), "event");
    must_cuda(cudaEventSynchronize(world.end), "timed calls");
    must_cuda(cudaEventElapsedTime(&ms, world.begin, world.end), "time");
    return (double)ms * 1e3 / calls;
}

static void *record(place_call call, void *context)
{
    cudaGraph_t graph;
    cudaGraphExec_t made;
    must_cuda(cudaStreamBeginCapture(world.stream, cudaStreamCaptureModeThreadLocal), "capture");
    call(context);
    must_cuda(cudaStreamEndCapture(world.stream, &graph), "capture");
    must_cuda(cudaGraphInstantiate(&made, graph, 0), "graph");
    must_cuda(cudaGraphDestroy(graph), "graph");
    return made;
}

static void replay(void *recorded)
{
    must_cuda(cudaGraphLaunch(recorded, world.stream), "graph");
}

static void forget(void *recorded)
{
    must_cuda(cudaStreamSynchronize(world.stream), "graph");
    must_cuda(cudaGraphExecDestroy(recorded), "graph");
}

static void exchange(void *to, const void *from, const place_rows *rows)
{
    char *in = to;
    const char *out = from;
    must_nccl(ncclGroupStart(), "ncclGroupStart");
    for (int r = 0; r < world.ranks; r++) {
        size_t sent = (size_t)(rows->to[r] * rows->row_bytes);
        size_t received = (size_t)(rows->from[r] * rows->row_bytes);
        if (sent > 0)
            must_nccl(ncclSend(out, sent, ncclUint8, r, world.bare, world.stream), "ncclSend");
        if (received > 0)
            must_nccl(ncclRecv(in, received, ncclUint8, r, world.bare, world.stream), "ncclRecv");
        out += sent;
        in += received;
    }
    must_nccl(ncclGroupEnd(), "ncclGroupEnd");
}

static void gather(void *to, const void *from, int64_t bytes)
{
    must_nccl(ncclAllGather(from, to, (size_t)bytes, ncclUint8, world.bare, world.stream),
              "ncclAllGather");
}

static void scatter_sums(float *to, const float *from, int64_t count)
{
    must_nccl(
        ncclReduceScatter(from, to, (size_t)count, ncclFloat, ncclSum, world.bare, world.stream),
        "ncclReduceScatter");
}

static void select_rows(void *to, const void *from, const int32_t *index, int64_t rows,
                        int64_t row_bytes)
{
    must_cuda(dispatch_select_rows(to, from, index, rows, row_bytes, world.stream), "select");
}

static void add(void *to, const void *from, const routing_sums *sums, int64_t hidden, int wide)
{
    must_cuda(dispatch_add_rows(to, from, sums, hidden, wide, world.stream), "sums");
}

const dispatch_place dispatch_place_cuda = {.memory = MIMO_MEMORY_CUDA,
                                            .open = open_place,
                                            .close = close_place,
                                            .room = room,
                                            .release = release,
                                            .put = put,
                                            .take = take,
                                            .time = time_calls,
                                            .record = record,
                                            .replay = replay,
                                            .forget = forget,
                                            .exchange = exchange,
                                            .gather = gather,
                                            .scatter_sums = scatter_sums,
                                            .select = select_rows,
                                            .add = add};
