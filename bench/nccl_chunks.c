#include "nccl_chunks.h"

#include <mpi.h>
#include <sched.h>

#include "bench_support.h"

enum { CALLS = 9, WARM_UP = 2 };

/* The bridge and tiles of a call, its streams and its events. */
typedef struct chunk_bench {
    mimo_bridge *bridge;
    bool backward;
    mimo_tensor to, from;
    cudaStream_t side, compute;
    cudaEvent_t begin, first, end;
    int open; /* 0: the gate holds the side stream */
} chunk_bench;

static mimo_tensor more_samples(mimo_tensor tile)
{
    tile.shape[0] /= NCCL_CHUNKS;
    tile.shape[1] *= NCCL_CHUNKS;
    return tile;
}

static cudaEvent_t new_event(void)
{
    cudaEvent_t event;
    nccl_must_cuda(cudaEventCreate(&event), "event");
    return event;
}

/* A bridge of its own: the bed's have another batch. */
static mimo_bridge *make_bridge(const nccl_bed *bed)
{
    mimo_bridge *made;
    mimo_bridge_desc desc = nccl_bed_bridge_desc(bed);
    desc.batch *= NCCL_CHUNKS;
    desc.executor = executor_of(EXECUTOR_ZERO_COPY);
    nccl_bed_create_few(&made, bed->world->comm, &desc);
    return made;
}

static chunk_bench make(const nccl_bed *bed, bool backward)
{
    const mimo_tensor encoder = more_samples(bed->encoder[1]);
    const mimo_tensor language = more_samples(bed->language[1]);
    chunk_bench made = {.bridge = make_bridge(bed),
                        .backward = backward,
                        .to = backward ? encoder : language,
                        .from = backward ? language : encoder,
                        .side = bed->world->stream,
                        .begin = new_event(),
                        .first = new_event(),
                        .end = new_event()};
    nccl_must_cuda(cudaStreamCreateWithFlags(&made.compute, cudaStreamNonBlocking), "stream");
    return made;
}

static void release(chunk_bench *it)
{
    mimo_bridge_destroy(it->bridge);
    cudaEventDestroy(it->begin);
    cudaEventDestroy(it->first);
    cudaEventDestroy(it->end);
    cudaStreamDestroy(it->compute);
}

static void CUDART_CB wait_at_gate(void *open)
{
    while (!__atomic_load_n((int *)open, __ATOMIC_ACQUIRE))
        sched_yield();
}

static void enqueue_whole(const chunk_bench *it)
{
    bench_must((it->backward ? mimo_bridge_backward : mimo_bridge_forward)(it->bridge, &it->to,
                                                                           &it->from, 1, it->side),
               "whole call");
    nccl_must_cuda(cudaEventRecord(it->end, it->side), "event");
}

static void enqueue_chunks(const chunk_bench *it)
{
    mimo_op *op;
    mimo_move_desc move = MIMO_MOVE_DESC_INIT;
    move.to = &it->to;
    move.from = &it->from;
    move.n = 1;
    move.chunks = NCCL_CHUNKS;
    move.stream = it->side;
    bench_must((it->backward ? mimo_bridge_backward_start_chunked
                             : mimo_bridge_forward_start_chunked)(&op, it->bridge, &move),
               "call in chunks");
    bench_must(mimo_op_wait_chunk(op, 0, it->compute), "first chunk");
    nccl_must_cuda(cudaEventRecord(it->first, it->compute), "event");
    bench_must(mimo_op_wait_chunk(op, NCCL_CHUNKS - 1, it->compute), "last chunk");
    nccl_must_cuda(cudaEventRecord(it->end, it->compute), "event");
    bench_must(mimo_op_wait(&op), "call in chunks");
}

static double slowest(cudaEvent_t begin, cudaEvent_t end)
{
    float ms;
    double own, most;
    nccl_must_cuda(cudaEventElapsedTime(&ms, begin, end), "event");
    own = (double)ms * 1e3;
    MPI_Allreduce(&own, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

/* Run one call. The gate holds its work until all of it is enqueued on every rank. */
static void run(chunk_bench *it, void (*enqueue)(const chunk_bench *it))
{
    it->open = 0;
    nccl_must_cuda(cudaLaunchHostFunc(it->side, wait_at_gate, &it->open), "gate");
    nccl_must_cuda(cudaEventRecord(it->begin, it->side), "event");
    enqueue(it);
    MPI_Barrier(MPI_COMM_WORLD);
    __atomic_store_n(&it->open, 1, __ATOMIC_RELEASE);
    nccl_must_cuda(cudaStreamSynchronize(it->side), "call");
    nccl_must_cuda(cudaStreamSynchronize(it->compute), "call");
}

void nccl_chunks_time(nccl_chunk_times *out, const nccl_bed *bed, bool backward)
{
    double first[CALLS], all[CALLS], whole[CALLS];
    chunk_bench it = make(bed, backward);
    enqueue_whole(&it); /* first calls allocate, and behind the gate they could wait forever */
    enqueue_chunks(&it);
    nccl_must_cuda(cudaDeviceSynchronize(), "first calls");
    for (int call = -WARM_UP; call < CALLS; call++) {
        int at = call < 0 ? 0 : call;
        run(&it, enqueue_whole);
        whole[at] = slowest(it.begin, it.end);
        run(&it, enqueue_chunks);
        first[at] = slowest(it.begin, it.first);
        all[at] = slowest(it.begin, it.end);
    }
    out->first = bench_median(first, CALLS);
    out->all = bench_median(all, CALLS);
    out->whole = bench_median(whole, CALLS);
    release(&it);
}
