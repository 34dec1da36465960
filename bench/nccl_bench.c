/*
 * Times the bridge's executors on GPUs, beside the bare NCCL calls and the copies that `collective`
 * asks for, in one run: bf16, rows of the LLM's hidden size, zigzag shards at the receiving end.
 *
 *   mpirun -n 4 nccl_bench [--graph] [--json]
 *
 *   must      MiB that the busiest rank has to receive: the routed plan's
 *   bare      ncclAllGather over the gather group (forward fan-in), ncclAllReduce of the full
 *             gradient over cp and ncclAllGather (backward fan-out)
 *   copies    device copies of as many bytes as `collective` must copy: out of the gathered order,
 *             into the shard, and back
 *   ratio     collective / (bare + copies)
 *
 * A time is the slowest rank's over CALLS calls in a row, the median of REPEATS, in microseconds.
 * With --graph the CALLS calls are captured in a CUDA graph and replayed: small cases are bound by
 * the host's launches else.
 */
#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mimo/mimo.h>
#include <mimo/mpi.h>
#include <mimo/nccl.h>

#include "bench_support.h"

enum { CALLS = 20, REPEATS = 5, WARM_UP = 5 };

typedef struct pair_case {
    const char *src, *dst;
    int64_t batch;
} pair_case;

static const pair_case pairs[] = {
    {"tp=1,dp=2", "tp=1,cp=2,dp=1", 2}, {"tp=2,dp=1", "tp=1,cp=2,dp=1", 2},
    {"tp=2,dp=1", "tp=1,cp=1,dp=2", 2}, {"tp=1,dp=4", "tp=1,cp=2,dp=2", 4},
    {"tp=1,dp=4", "tp=1,cp=4,dp=1", 4}, {"tp=2,dp=2", "tp=1,cp=4,dp=1", 2},
    {"tp=4,dp=1", "tp=1,cp=2,dp=2", 2}, {"tp=2,dp=2", "tp=1,cp=2,dp=2", 2},
};

static const struct {
    int64_t seq, hidden;
} shapes[] = {{256, 1024}, {2048, 4096}, {8192, 4096}, {32768, 4096}};

typedef struct bed {
    mimo_comm *comm;
    cudaStream_t stream;
    mimo_grid *src, *dst;
    mimo_bridge *collective, *routed;
    mimo_tensor encoder, language;
    void *full, *room; /* the gathered tile, and as much again */
    int64_t encoder_bytes, language_bytes, full_bytes;
    bool graph;            /* calls are captured and replayed */
    ncclComm_t gather, cp; /* the bench's own, for the bare calls; NULL where not asked for */
} bed;

typedef void (*timed_call)(const bed *b);

static void must(bool ok, const char *what, const char *why)
{
    if (ok)
        return;
    fprintf(stderr, "nccl_bench: %s: %s\n", what, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void must_cuda(cudaError_t code, const char *what)
{
    must(code == cudaSuccess, what, cudaGetErrorString(code));
}

static void must_nccl(ncclResult_t code, const char *what)
{
    must(code == ncclSuccess, what, ncclGetErrorString(code));
}

/* ------------------------------------ preparing ------------------------------------ */

static ncclComm_t bare_group(ncclComm_t world, int64_t index, int64_t place)
{
    ncclComm_t group = NULL;
    must_nccl(ncclCommSplit(world, (int)index, (int)place, &group, NULL), "ncclCommSplit");
    return group;
}

static void make_bare_groups(bed *b, ncclComm_t world)
{
    int64_t index, place;
    int rank = mimo_comm_rank(b->comm);
    if (mimo_bridge_pairing(b->collective).direction != MIMO_EQUAL) {
        bench_must(mimo_pairing_place(b->src, b->dst, rank, &index, &place), "gather group");
        b->gather = bare_group(world, index, place);
    }
    if (mimo_grid_dim_size(b->dst, "cp") > 1) {
        bench_must(mimo_grid_group_of(b->dst, "cp", rank, &index, &place), "cp group");
        b->cp = bare_group(world, index, place);
    }
}

static mimo_tensor tile(int64_t seq, int64_t batch, int64_t hidden, int64_t *bytes)
{
    void *data;
    *bytes = seq * batch * hidden * 2;
    must_cuda(cudaMalloc(&data, (size_t)*bytes), "cudaMalloc");
    must_cuda(cudaMemset(data, 0x3c, (size_t)*bytes), "cudaMemset"); /* a small bf16 number */
    mimo_tensor view = mimo_tensor_3d(data, MIMO_BF16, "sbh", seq, batch, hidden);
    view.memory = MIMO_MEMORY_CUDA;
    return view;
}

static void make_bridges(bed *b)
{
    mimo_partition_rule zigzag = MIMO_PARTITION_RULE_INIT;
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    desc.src = b->src;
    desc.dst = b->dst;
    desc.partition = &zigzag;
    desc.executor = MIMO_EXECUTOR_COLLECTIVE;
    bench_must(mimo_bridge_create(&b->collective, b->comm, &desc), "collective");
    desc.executor = MIMO_EXECUTOR_ROUTED;
    bench_must(mimo_bridge_create(&b->routed, b->comm, &desc), "routed");
}

static void bed_create(bed *b, const pair_case *pair, int64_t seq, int64_t hidden)
{
    bench_must(mimo_grid_parse(&b->src, pair->src, 0), pair->src);
    bench_must(mimo_grid_parse(&b->dst, pair->dst, 0), pair->dst);
    make_bridges(b);
    int64_t dst_batch = pair->batch / mimo_grid_dim_size(b->dst, "dp");
    int64_t src_batch = pair->batch / mimo_grid_dim_size(b->src, "dp");
    int64_t rows = seq / mimo_grid_dim_size(b->dst, "cp");
    b->encoder = tile(seq, src_batch, hidden, &b->encoder_bytes);
    b->language = tile(rows, dst_batch, hidden, &b->language_bytes);
    int64_t most = src_batch > dst_batch ? src_batch : dst_batch;
    b->full_bytes = seq * dst_batch * hidden * 2;
    must_cuda(cudaMalloc(&b->full, (size_t)(seq * most * hidden * 2)), "cudaMalloc");
    must_cuda(cudaMalloc(&b->room, (size_t)(seq * most * hidden * 2)), "cudaMalloc");
}

static void bed_destroy(bed *b)
{
    if (b->gather)
        ncclCommDestroy(b->gather);
    if (b->cp)
        ncclCommDestroy(b->cp);
    cudaFree(b->encoder.data);
    cudaFree(b->language.data);
    cudaFree(b->full);
    cudaFree(b->room);
    mimo_bridge_destroy(b->collective);
    mimo_bridge_destroy(b->routed);
    mimo_grid_destroy(b->src);
    mimo_grid_destroy(b->dst);
}

/* -------------------------------------- calls -------------------------------------- */

static void collective_forward(const bed *b)
{
    bench_must(mimo_bridge_forward(b->collective, &b->language, &b->encoder, 1, b->stream),
               "collective forward");
}

static void collective_backward(const bed *b)
{
    bench_must(mimo_bridge_backward(b->collective, &b->encoder, &b->language, 1, b->stream),
               "collective backward");
}

static void routed_forward(const bed *b)
{
    bench_must(mimo_bridge_forward(b->routed, &b->language, &b->encoder, 1, b->stream),
               "routed forward");
}

static void routed_backward(const bed *b)
{
    bench_must(mimo_bridge_backward(b->routed, &b->encoder, &b->language, 1, b->stream),
               "routed backward");
}

static void bare_forward(const bed *b)
{
    if (b->gather && mimo_bridge_pairing(b->collective).direction == MIMO_FAN_IN)
        must_nccl(ncclAllGather(b->encoder.data, b->full, (size_t)b->encoder_bytes, ncclUint8,
                                b->gather, b->stream),
                  "ncclAllGather");
}

static void bare_backward(const bed *b)
{
    if (b->cp)
        must_nccl(ncclAllReduce(b->full, b->full, (size_t)b->full_bytes / 2, ncclBfloat16, ncclSum,
                                b->cp, b->stream),
                  "ncclAllReduce");
    if (b->gather && mimo_bridge_pairing(b->collective).direction == MIMO_FAN_OUT)
        must_nccl(
            ncclAllGather(b->full, b->room, (size_t)b->full_bytes, ncclUint8, b->gather, b->stream),
            "ncclAllGather");
}

static void copy(const bed *b, int64_t bytes)
{
    must_cuda(cudaMemcpyAsync(b->room, b->full, (size_t)bytes, cudaMemcpyDeviceToDevice, b->stream),
              "cudaMemcpyAsync");
}

/* Gathered rows to their places (or the narrowed ones to theirs), then the shard. */
static void copies_forward(const bed *b)
{
    copy(b, b->full_bytes);
    copy(b, b->language_bytes);
}

/* The shard into zeros, then the narrowed or gathered rows to the encoder's tile. */
static void copies_backward(const bed *b)
{
    copy(b, b->full_bytes);
    copy(b, b->encoder_bytes);
}

/* -------------------------------------- timing ------------------------------------- */

/* CALLS calls as a graph; NULL where they are to be enqueued one by one. */
static cudaGraphExec_t captured(const bed *b, timed_call call)
{
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    if (!b->graph)
        return NULL;
    must_cuda(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < CALLS; i++)
        call(b);
    must_cuda(cudaStreamEndCapture(b->stream, &graph), "capture");
    must_cuda(cudaGraphInstantiate(&ready, graph, 0), "graph");
    must_cuda(cudaGraphDestroy(graph), "graph");
    return ready;
}

static void enqueue(const bed *b, timed_call call, cudaGraphExec_t graph)
{
    if (graph) {
        must_cuda(cudaGraphLaunch(graph, b->stream), "replay");
        return;
    }
    for (int i = 0; i < CALLS; i++)
        call(b);
}

/* One timing on this rank: CALLS calls between two events. */
static double timed(const bed *b, timed_call call, cudaGraphExec_t graph)
{
    float ms;
    cudaEvent_t begin, end;
    must_cuda(cudaEventCreate(&begin), "event");
    must_cuda(cudaEventCreate(&end), "event");
    MPI_Barrier(MPI_COMM_WORLD);
    must_cuda(cudaEventRecord(begin, b->stream), "event");
    enqueue(b, call, graph);
    must_cuda(cudaEventRecord(end, b->stream), "event");
    must_cuda(cudaEventSynchronize(end), "calls");
    must_cuda(cudaEventElapsedTime(&ms, begin, end), "event");
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return (double)ms * 1e3 / CALLS;
}

static double microseconds(const bed *b, timed_call call)
{
    double median[REPEATS];
    for (int i = 0; i < WARM_UP; i++)
        call(b);
    must_cuda(cudaStreamSynchronize(b->stream), "warm-up");
    cudaGraphExec_t graph = captured(b, call);
    enqueue(b, call, graph);
    must_cuda(cudaStreamSynchronize(b->stream), "warm-up");
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        double own = timed(b, call, graph);
        MPI_Allreduce(&own, &median[repeat], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    }
    if (graph)
        cudaGraphExecDestroy(graph);
    return bench_median(median, REPEATS);
}

static int64_t must_move(const bed *b, const pair_case *pair, int64_t seq, bool backward)
{
    static const mimo_partition_rule zigzag = MIMO_PARTITION_RULE_INIT;
    const bench_transfer transfer = {.src = b->src,
                                     .dst = b->dst,
                                     .partition = &zigzag,
                                     .batch = pair->batch,
                                     .seq = seq,
                                     .row_bytes = b->encoder.shape[2] * 2,
                                     .backward = backward};
    return bench_floor(&transfer);
}

static void report(const bed *b, const pair_case *pair, int64_t seq, bool json)
{
    static const char *const direction[] = {"forward", "backward"};
    static const timed_call calls[2][4] = {
        {collective_forward, routed_forward, bare_forward, copies_forward},
        {collective_backward, routed_backward, bare_backward, copies_backward}};
    for (int way = 0; way < 2; way++) {
        double us[4], moved = (double)must_move(b, pair, seq, way == 1);
        for (int i = 0; i < 4; i++)
            us[i] = microseconds(b, calls[way][i]);
        if (mimo_comm_rank(b->comm) > 0)
            continue;
        printf(json ? "{\"src\":\"%s\",\"dst\":\"%s\",\"seq\":%" PRId64
                      ",\"direction\":\"%s\",\"must_bytes\":%.0f,\"collective_us\":%.1f,"
                      "\"routed_us\":%.1f,\"bare_us\":%.1f,\"copies_us\":%.1f,\"ratio\":%.3f,"
                      "\"routed_gbps\":%.1f}\n"
                    : "%-10s %-16s %6" PRId64 " %-8s %8.2f %9.1f %9.1f %9.1f %9.1f %6.2f %8.1f\n",
               pair->src, pair->dst, seq, direction[way], json ? moved : moved / 1048576, us[0],
               us[1], us[2], us[3], us[0] / (us[2] + us[3]), moved / us[1] / 1e3);
        fflush(stdout);
    }
}

static ncclComm_t bare_world(int rank, int size)
{
    ncclUniqueId id;
    ncclComm_t world;
    if (rank == 0)
        must_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    must_nccl(ncclCommInitRank(&world, size, id, rank), "ncclCommInitRank");
    return world;
}

int main(int argc, char **argv)
{
    MPI_Comm mpi = MPI_COMM_WORLD;
    mimo_bootstrap bootstrap;
    mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    bed shared = {0};
    bool json = false;
    for (int i = 1; i < argc; i++) {
        json = json || strcmp(argv[i], "--json") == 0;
        shared.graph = shared.graph || strcmp(argv[i], "--graph") == 0;
    }
    const char *local = getenv("OMPI_COMM_WORLD_LOCAL_RANK");
    MPI_Init(&argc, &argv);
    desc.device = local ? atoi(local) : 0;
    bench_must(mimo_bootstrap_from_mpi(&bootstrap, &mpi), "bootstrap");
    bench_must(mimo_comm_create_nccl(&shared.comm, &bootstrap, &desc), "communicator");
    ncclComm_t world = bare_world(bootstrap.rank, bootstrap.size);
    must_cuda(cudaStreamCreateWithFlags(&shared.stream, cudaStreamNonBlocking), "stream");
    if (bootstrap.rank == 0 && !json)
        printf("%-10s %-16s %6s %-8s %8s %9s %9s %9s %9s %6s %8s\n", "src", "dst", "S", "",
               "must MiB", "collect", "routed", "bare", "copies", "ratio", "GB/s");
    for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            bed b = shared;
            mimo_grid *grid;
            bench_must(mimo_grid_parse(&grid, pairs[p].src, 0), pairs[p].src);
            bool fits = mimo_grid_size(grid) == bootstrap.size;
            mimo_grid_destroy(grid);
            if (!fits)
                continue;
            bed_create(&b, &pairs[p], shapes[i].seq, shapes[i].hidden);
            make_bare_groups(&b, world);
            report(&b, &pairs[p], shapes[i].seq, json);
            bed_destroy(&b);
        }
    mimo_nccl_report held;
    bench_must(mimo_nccl_report_of(&held, shared.comm), "report");
    if (bootstrap.rank == 0 && !json)
        printf("at the end: %d NCCL communicators of the library, %d splits shared one, %.0f MiB\n",
               held.communicators, held.shared, (double)held.device_bytes / 1048576);
    ncclCommDestroy(world);
    cudaStreamDestroy(shared.stream);
    mimo_comm_destroy(shared.comm);
    MPI_Finalize();
    return 0;
}
