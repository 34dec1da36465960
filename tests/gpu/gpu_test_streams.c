/* Staging on several streams. Each stream has its own, it does not grow with the number of calls,
 * and one call of each kind is enough before they are captured in a graph. */
#include <stdatomic.h>
#include <time.h>

#include "bridge_bed.h"
#include "gpu_calls.h"

/* Backward adds the gradients of two cp ranks: both executors stage them. */
static bed_case staged_case(executor_id executor)
{
    static char src[32], dst[32];
    bed_case c = {.src = {.grid = src}, .dst = {.grid = dst}};
    snprintf(src, sizeof src, "tp=1,dp=%d", mpi_test_size());
    snprintf(dst, sizeof dst, "tp=1,cp=2,dp=%d", mpi_test_size() / 2);
    c.src_letters = c.dst_letters = "sbh";
    c.executor = executor;
    c.dtype = MIMO_F32;
    c.batch = 2 * mpi_test_size();
    c.given = true;
    c.seq = 64;
    c.hidden = 256;
    c.sums = true;
    return c;
}

/* A call on a stream, and its tiles. */
typedef struct passage {
    bridge_bed bed; /* a copy, perhaps of another width */
    bool backward;
    cudaStream_t stream;
    test_tile from, to;
    mimo_op *op;
} passage;

static passage passage_new(const bridge_bed *bed, bool backward, int64_t hidden,
                           cudaStream_t stream)
{
    passage x = {.bed = *bed, .backward = backward, .stream = stream};
    x.bed.c.hidden = hidden;
    x.from = bed_tile_new(&x.bed, backward ? MIMO_DST : MIMO_SRC);
    x.to = bed_tile_new(&x.bed, backward ? MIMO_SRC : MIMO_DST);
    return x;
}

static void passage_free(passage *x)
{
    test_tile_free(&x->from);
    test_tile_free(&x->to);
}

static void start(passage *x)
{
    MPI_EXPECT_OK((x->backward ? mimo_bridge_backward_start : mimo_bridge_forward_start)(
        &x->op, x->bed.bridge, &x->to.view, &x->from.view, 1, x->stream));
}

static void fill(const passage *x, uint64_t seed)
{
    bed_fill(&x->bed, &x->from, x->backward, seed);
    EXPECT_CUDA(cudaDeviceSynchronize());
}

static void check(const passage *x, uint64_t seed)
{
    EXPECT_CUDA(cudaDeviceSynchronize());
    bed_check_target(&x->bed, &x->to, x->backward, seed);
}

/* Two calls begun one after the other, then waited for. */
static void run_two(passage *a, passage *b)
{
    start(a);
    start(b);
    MPI_EXPECT_OK(mimo_op_wait(&a->op));
    MPI_EXPECT_OK(mimo_op_wait(&b->op));
}

static cudaStream_t stream_new(void)
{
    cudaStream_t stream = NULL;
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

/* ------------------------------------------- apart ------------------------------------------ */

static void wait_until_open(void *context)
{
    atomic_bool *open = context;
    const struct timespec moment = {0, 1000000};
    for (int i = 0; i < 10000 && !*open; i++)
        nanosleep(&moment, NULL);
}

/* The first call's stream is held back while the second call's work may begin. In common staging
 * that work would overwrite the first call's rows. */
static void check_apart(executor_id executor)
{
    atomic_bool open = true;
    bed_case c = staged_case(executor);
    cudaStream_t other = stream_new();
    bridge_bed bed = bed_create(&c);
    passage held = passage_new(&bed, true, c.hidden, test_stream());
    passage free_to_go = passage_new(&bed, true, c.hidden, other);
    for (uint64_t round = 0; bed.bridge && round < 4; round++) {
        fill(&held, 10 + round);
        fill(&free_to_go, 20 + round);
        open = round == 0; /* the first calls allocate, which waits for the device */
        EXPECT_CUDA(cudaLaunchHostFunc(test_stream(), wait_until_open, &open));
        run_two(&held, &free_to_go);
        open = true;
        check(&held, 10 + round);
        check(&free_to_go, 20 + round);
    }
    passage_free(&held);
    passage_free(&free_to_go);
    bed_destroy(&bed);
    EXPECT_CUDA(cudaStreamDestroy(other));
}

MPI_TEST(streams, staging_of_their_own)
{
    check_apart(EXECUTOR_COLLECTIVE);
    check_apart(EXECUTOR_P2P);
}

/* ------------------------------------------- memory ----------------------------------------- */

static size_t free_memory(void)
{
    size_t free = 0, all;
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_CUDA(cudaMemGetInfo(&free, &all));
    return free;
}

/* Forward on one stream, backward on another: together in flight, or one after the other. */
static void run_pass(passage *there, passage *back, bool together)
{
    start(there);
    if (!together)
        MPI_EXPECT_OK(mimo_op_wait(&there->op));
    start(back);
    MPI_EXPECT_OK(mimo_op_wait(&there->op));
    MPI_EXPECT_OK(mimo_op_wait(&back->op));
}

static void check_memory(executor_id executor)
{
    enum { WARM_UP = 3, PASSES = 1000 };
    bed_case c = staged_case(executor);
    cudaStream_t other = stream_new();
    size_t before = 0;
    bridge_bed bed = bed_create(&c);
    passage there = passage_new(&bed, false, c.hidden, test_stream());
    passage back = passage_new(&bed, true, c.hidden, other);
    fill(&there, 1);
    fill(&back, 2);
    for (int pass = 0; bed.bridge && pass < WARM_UP + PASSES; pass++) {
        run_pass(&there, &back, pass % 4 == 0);
        if (pass == WARM_UP)
            before = free_memory();
    }
    size_t after = free_memory();
    MPI_EXPECT(after >= before, "executor %d: %d passes took %zu bytes of device memory",
               (int)executor, PASSES, before - after);
    check(&there, 1);
    check(&back, 2);
    passage_free(&there);
    passage_free(&back);
    bed_destroy(&bed);
    EXPECT_CUDA(cudaStreamDestroy(other));
}

MPI_TEST(streams, memory_stays)
{
    check_memory(EXECUTOR_COLLECTIVE);
    check_memory(EXECUTOR_P2P);
}

/* ------------------------------------------ capture ----------------------------------------- */

/* The second call's stream forks from the first call's stream, and joins it again. */
static void run_forked(passage *a, passage *b, cudaEvent_t event)
{
    if (b->stream != a->stream) {
        EXPECT_CUDA(cudaEventRecord(event, a->stream));
        EXPECT_CUDA(cudaStreamWaitEvent(b->stream, event, 0));
    }
    run_two(a, b);
    if (b->stream != a->stream) {
        EXPECT_CUDA(cudaEventRecord(event, b->stream));
        EXPECT_CUDA(cudaStreamWaitEvent(a->stream, event, 0));
    }
}

/* First as calls, then captured, then replayed on other data. */
static void check_capture(passage *a, passage *b)
{
    cudaEvent_t event;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t made = NULL;
    EXPECT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    fill(a, 1);
    fill(b, 2);
    run_forked(a, b, event);
    check(a, 1);
    check(b, 2);
    EXPECT_CUDA(cudaStreamBeginCapture(a->stream, cudaStreamCaptureModeThreadLocal));
    run_forked(a, b, event);
    EXPECT_CUDA(cudaStreamEndCapture(a->stream, &graph));
    if (graph)
        EXPECT_CUDA(cudaGraphInstantiateWithFlags(&made, graph, 0));
    for (uint64_t seed = 3; made && seed < 20; seed++) {
        fill(a, seed);
        fill(b, 100 + seed);
        EXPECT_CUDA(cudaGraphLaunch(made, a->stream));
        check(a, seed);
        check(b, 100 + seed);
    }
    if (made)
        EXPECT_CUDA(cudaGraphExecDestroy(made));
    if (graph)
        EXPECT_CUDA(cudaGraphDestroy(graph));
    EXPECT_CUDA(cudaEventDestroy(event));
}

/* A large call beside a small one, and backward on another stream beside forward. */
static void check_captures(executor_id executor)
{
    enum { NARROW = 8 };
    cudaStream_t other = stream_new();
    for (int forks = 0; forks < 2; forks++) {
        bed_case c = staged_case(executor);
        bridge_bed bed = bed_create(&c);
        passage a = passage_new(&bed, !forks, c.hidden, test_stream());
        passage b = passage_new(&bed, true, NARROW, forks ? other : test_stream());
        if (bed.bridge)
            check_capture(&a, &b);
        passage_free(&a);
        passage_free(&b);
        bed_destroy(&bed);
    }
    EXPECT_CUDA(cudaStreamDestroy(other));
}

MPI_TEST(streams, captured_after_one_call)
{
    check_captures(EXECUTOR_COLLECTIVE);
    check_captures(EXECUTOR_P2P);
}
