/* A step is captured once in a CUDA graph and replayed on fresh data. It gives the same bits as its
 * calls without a graph. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bridge_bed.h"
#include "gpu_calls.h"
#include "guarded.h"
#include "reference_grid.h"
#include "same_bits.h"

enum { REPLAYS = 100, TEXT_ROWS = 5, SPECIAL = 1000 };

/* The tensors that a step writes. */
typedef struct targets {
    test_tile crossed, merged, back;
} targets;

/* Features cross the bridge and are merged with text rows; a gradient goes back. */
typedef struct step {
    bridge_bed bed;
    mimo_alignment *alignment;
    test_tile features, gradient, text;
    targets captured, plain;
} step;

static bed_case case_of(bool partition, executor_id executor)
{
    static const char *const pairs[][2] = {{"tp=1,dp=1", "tp=1,cp=1,dp=1"},
                                           {"tp=1,dp=2", "tp=1,cp=2,dp=1"},
                                           {"tp=1,dp=4", "tp=1,cp=2,dp=2"},
                                           {"tp=1,dp=8", "tp=1,cp=2,dp=4"}};
    int at = 0;
    while (ref_ranks(pairs[at][0]) < mpi_test_size())
        at++;
    bed_case c = {.src = {.grid = pairs[at][0]}, .dst = {.grid = pairs[at][1]}};
    c.src_letters = c.dst_letters = "sbh";
    c.dst.partition = partition;
    c.executor = executor;
    c.dtype = MIMO_BF16;
    c.batch = 2 * mpi_test_size();
    c.given = true;
    c.seq = 24;
    c.sums = executor != EXECUTOR_COLLECTIVE;
    c.buffer = executor == EXECUTOR_ZERO_COPY;
    c.hidden = c.buffer ? 64 : 0;
    return c;
}

static targets targets_of(const step *x)
{
    targets to = {.crossed = bed_target_new(&x->bed, MIMO_DST),
                  .back = bed_target_new(&x->bed, MIMO_SRC)};
    const int64_t *shape = to.crossed.view.shape;
    to.merged =
        test_tile_new("sbh", MIMO_BF16, shape[0] + TEXT_ROWS, shape[1], bed_hidden(&x->bed.c));
    return to;
}

static void free_targets(targets *to)
{
    test_tile_free(&to->crossed);
    test_tile_free(&to->merged);
    test_tile_free(&to->back);
}

/* The special ids stand elsewhere in each sample, and move from one update to the next. */
static void update_ids(const step *x, int64_t turn)
{
    const int64_t *shape = x->plain.merged.view.shape;
    int64_t seq = shape[0], batch = shape[1];
    int64_t *ids = calloc((size_t)(seq * batch) + 1, sizeof *ids);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t s = 0; s < seq; s++)
            ids[b * seq + s] = (s + b + turn) % seq < TEXT_ROWS ? s : SPECIAL;
    mimo_tensor view = mimo_tensor_2d(ids, MIMO_I64, "bs", batch, seq);
    MPI_EXPECT_OK(mimo_alignment_update(x->alignment, &view, test_stream()));
    free(ids);
}

static void set_up(step *x, bool partition, executor_id executor)
{
    bed_case c = case_of(partition, executor);
    mimo_alignment_desc desc = MIMO_ALIGNMENT_DESC_INIT;
    static const int64_t special = SPECIAL;
    x->bed = bed_create(&c);
    desc.modalities = 1;
    desc.special = &special;
    desc.memory = test_memory();
    MPI_EXPECT_OK(mimo_alignment_create(&x->alignment, &desc));
    x->features = bed_tile_new(&x->bed, MIMO_SRC);
    x->gradient = bed_tile_new(&x->bed, MIMO_DST);
    x->captured = targets_of(x);
    x->plain = targets_of(x);
    x->text = test_tile_new("th", MIMO_BF16, TEXT_ROWS * x->plain.merged.view.shape[1],
                            bed_hidden(&x->bed.c), 1);
}

static void tear_down(step *x)
{
    test_tile_free(&x->features);
    test_tile_free(&x->gradient);
    test_tile_free(&x->text);
    free_targets(&x->captured);
    free_targets(&x->plain);
    mimo_alignment_destroy(x->alignment);
    bed_destroy(&x->bed);
}

/* Fresh data for every replay. */
static void fill(const step *x, uint64_t seed)
{
    bed_fill(&x->bed, &x->features, false, seed);
    bed_fill(&x->bed, &x->gradient, true, seed + 1000);
    fill_elements(x->text.room.host, seed, x->text.room.bytes, 1);
    test_push(&x->text.room);
}

static void enqueue(const step *x, const targets *to)
{
    mimo_stream stream = test_stream();
    mimo_bridge *bridge = x->bed.bridge;
    MPI_EXPECT_OK(mimo_bridge_forward(bridge, &to->crossed.view, &x->features.view, 1, stream));
    MPI_EXPECT_OK(mimo_alignment_merge(x->alignment, &to->merged.view, &to->crossed.view,
                                       &x->text.view, stream));
    MPI_EXPECT_OK(mimo_bridge_backward(bridge, &to->back.view, &x->gradient.view, 1, stream));
}

/* Each call runs once before the capture, so that everything made at the first call of a shape
 * exists. */
static cudaGraphExec_t capture(const step *x)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t made = NULL;
    cudaStream_t stream = test_stream();
    fill(x, 1);
    enqueue(x, &x->captured);
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    enqueue(x, &x->captured);
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
    EXPECT_CUDA(cudaGraphInstantiateWithFlags(&made, graph, 0));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    return made;
}

static void expect_equal(const test_tile *captured, const test_tile *plain, const char *what,
                         uint64_t seed)
{
    test_pull(&captured->room);
    test_pull(&plain->room);
    MPI_EXPECT_BITS(bits_of(captured->room.host, plain->room.host, plain->room.bytes, 1, 0),
                    "replay %d: %s, beside that without the graph", (int)seed, what);
}

/* A replay, then the same calls without the graph. */
static void replay(const step *x, cudaGraphExec_t graph, uint64_t seed)
{
    fill(x, seed);
    if (seed % 10 == 0)
        update_ids(x, (int64_t)seed);
    EXPECT_CUDA(cudaGraphLaunch(graph, test_stream()));
    enqueue(x, &x->plain);
    bed_check_target(&x->bed, &x->captured.crossed, false, seed);
    bed_check_target(&x->bed, &x->captured.back, true, seed + 1000);
    expect_equal(&x->captured.crossed, &x->plain.crossed, "the crossed tile", seed);
    expect_equal(&x->captured.merged, &x->plain.merged, "the merged tile", seed);
    expect_equal(&x->captured.back, &x->plain.back, "the gradient", seed);
}

static void check(bool partition, executor_id executor)
{
    step x;
    set_up(&x, partition, executor);
    if (x.bed.bridge) {
        update_ids(&x, 0);
        cudaGraphExec_t graph = capture(&x);
        for (uint64_t seed = 1; graph && seed <= REPLAYS; seed++)
            replay(&x, graph, seed);
        EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
        if (graph)
            EXPECT_CUDA(cudaGraphExecDestroy(graph));
    }
    tear_down(&x);
}

/* -------------------------------------- in chunks ------------------------------------------ */

/* A call in chunks on a side stream, and the stream that reads each chunk as soon as it arrives. */
typedef struct overlap {
    bridge_bed bed;
    bool backward;
    test_tile from, to, seen;
} overlap;

static void read_chunk(const overlap *x, int64_t chunk)
{
    const int64_t *shape = x->to.view.shape, chunks = x->bed.c.chunks;
    int64_t first = chunk * shape[1] / chunks, end = (chunk + 1) * shape[1] / chunks;
    size_t row = (size_t)(shape[2] * (int64_t)mimo_dtype_size(x->to.view.dtype));
    size_t at = (size_t)first * row, pitch = (size_t)shape[1] * row;
    if (end > first)
        EXPECT_CUDA(cudaMemcpy2DAsync((char *)x->seen.room.place + at, pitch,
                                      (char *)x->to.room.place + at, pitch,
                                      (size_t)(end - first) * row, (size_t)shape[0],
                                      cudaMemcpyDeviceToDevice, test_stream()));
}

static void enqueue_chunks(const overlap *x)
{
    mimo_op *op = NULL;
    MPI_EXPECT_OK(bed_start_chunked(&op, &x->bed, x->backward, &x->to, &x->from));
    for (int chunk = 0; chunk < x->bed.c.chunks; chunk++) {
        MPI_EXPECT_OK(mimo_op_wait_chunk(op, chunk, test_stream()));
        read_chunk(x, chunk);
    }
    MPI_EXPECT_OK(mimo_op_wait(&op));
}

static cudaGraphExec_t capture_chunks(const overlap *x)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t made = NULL;
    cudaStream_t stream = test_stream();
    enqueue_chunks(x);
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    enqueue_chunks(x);
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
    EXPECT_CUDA(cudaGraphInstantiateWithFlags(&made, graph, 0));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    return made;
}

static void replay_chunks(const overlap *x, cudaGraphExec_t graph, uint64_t seed)
{
    bed_fill(&x->bed, &x->from, x->backward, seed);
    memset(x->seen.room.host, GUARD_POISON, (size_t)x->seen.room.bytes);
    test_push(&x->seen.room);
    EXPECT_CUDA(cudaGraphLaunch(graph, test_stream()));
    bed_check_target(&x->bed, &x->seen, x->backward, seed);
    bed_check_target(&x->bed, &x->to, x->backward, seed);
}

static void check_chunks(bool partition, executor_id executor, bool backward)
{
    overlap x = {.backward = backward};
    bed_case c = case_of(partition, executor);
    mimo_side target = backward ? MIMO_SRC : MIMO_DST;
    c.chunks = 3;
    x.bed = bed_create(&c);
    x.from = bed_tile_new(&x.bed, backward ? MIMO_DST : MIMO_SRC);
    x.to = bed_target_new(&x.bed, target);
    x.seen = bed_tile_new(&x.bed, target);
    if (x.bed.bridge) {
        cudaGraphExec_t graph = capture_chunks(&x);
        for (uint64_t seed = 1; graph && seed <= REPLAYS / 4; seed++)
            replay_chunks(&x, graph, seed);
        if (graph)
            EXPECT_CUDA(cudaGraphExecDestroy(graph));
    }
    test_tile_free(&x.from);
    test_tile_free(&x.to);
    test_tile_free(&x.seen);
    bed_destroy(&x.bed);
}

MPI_TEST(graph, chunks)
{
    static const executor_id executors[] = {EXECUTOR_COLLECTIVE, EXECUTOR_P2P, EXECUTOR_ZERO_COPY,
                                            EXECUTOR_STAGED};
    for (int i = 0; i < 4; i++)
        for (int way = 0; way < 4; way++)
            check_chunks(way % 2, executors[i], way / 2);
}

/* ------------------------------------- whole calls ----------------------------------------- */

MPI_TEST(graph, collective)
{
    check(false, EXECUTOR_COLLECTIVE);
    check(true, EXECUTOR_COLLECTIVE);
}

MPI_TEST(graph, zero_copy)
{
    check(false, EXECUTOR_ZERO_COPY);
    check(true, EXECUTOR_ZERO_COPY);
}

MPI_TEST(graph, p2p)
{
    check(false, EXECUTOR_P2P);
    check(true, EXECUTOR_P2P);
}

MPI_TEST(graph, staged)
{
    check(false, EXECUTOR_STAGED);
    check(true, EXECUTOR_STAGED);
}

/* ------------------------------------ micro-batches ---------------------------------------- */

/* Rows that every rank gave, of several micro-batches: a graph for each, captured before any call
 * ran, is replayed in any order while the update is in force. */
enum { MICRO_BATCHES = 4 };

typedef struct row_batch {
    bridge_bed bed; /* borrows the bridge of the first one */
    test_tile from, to;
    cudaGraphExec_t graph;
} row_batch;

static bed_case rows_case(executor_id executor, int i)
{
    bed_case c = case_of(false, executor);
    c.src_letters = c.dst_letters = "th";
    c.given = c.sums = false;
    c.rows = true;
    c.seq = 1;
    c.batch = 20 + 13 * i;
    c.src.ragged = (uint64_t)(2 * i + 1);
    c.dst.ragged = (uint64_t)(2 * i + 2);
    return c;
}

static void begin_rows(row_batch *x, const row_batch *first, executor_id executor, int i)
{
    bed_case c = rows_case(executor, i);
    x->bed = bed_create(&c);
    if (i > 0) {
        mimo_bridge_destroy(x->bed.bridge);
        x->bed.bridge = first->bed.bridge;
    }
}

static void capture_rows(row_batch *x)
{
    cudaGraph_t graph = NULL;
    mimo_move_desc move = MIMO_MOVE_DESC_INIT;
    x->from = bed_tile_new(&x->bed, MIMO_SRC);
    x->to = bed_target_new(&x->bed, MIMO_DST);
    move.to = &x->to.view;
    move.from = &x->from.view;
    move.n = 1;
    move.stream = test_stream();
    MPI_EXPECT_OK(mimo_bridge_prepare(x->bed.bridge, false, &move));
    EXPECT_CUDA(cudaStreamBeginCapture(test_stream(), cudaStreamCaptureModeThreadLocal));
    MPI_EXPECT_OK(bed_call(&x->bed, false, &x->to, &x->from));
    EXPECT_CUDA(cudaStreamEndCapture(test_stream(), &graph));
    EXPECT_CUDA(cudaGraphInstantiateWithFlags(&x->graph, graph, 0));
    EXPECT_CUDA(cudaGraphDestroy(graph));
}

static void check_rows(executor_id executor)
{
    row_batch all[MICRO_BATCHES];
    mimo_batch_desc descs[MICRO_BATCHES];
    memset(all, 0, sizeof all);
    for (int i = 0; i < MICRO_BATCHES; i++) {
        bed_given unused;
        begin_rows(&all[i], &all[0], executor, i);
        descs[i] = bed_describe(&all[i].bed, &unused);
        free(unused.spans);
    }
    MPI_EXPECT_OK(mimo_bridge_update(all[0].bed.bridge, descs, MICRO_BATCHES));
    for (int i = MICRO_BATCHES - 1; i >= 0; i--) { /* the largest takes the staging first */
        MPI_EXPECT_OK(mimo_bridge_select(all[0].bed.bridge, i));
        capture_rows(&all[i]);
    }
    for (uint64_t seed = 0; seed < REPLAYS / 4; seed++) {
        row_batch *x = &all[seed * seed % MICRO_BATCHES]; /* 0, 1 */
        row_batch *y = &all[2 + seed % 2];
        bed_fill(&x->bed, &x->from, false, seed);
        bed_fill(&y->bed, &y->from, false, seed + 1000);
        EXPECT_CUDA(cudaGraphLaunch(x->graph, test_stream()));
        EXPECT_CUDA(cudaGraphLaunch(y->graph, test_stream()));
        bed_check_target(&x->bed, &x->to, false, seed);
        bed_check_target(&y->bed, &y->to, false, seed + 1000);
    }
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    for (int i = MICRO_BATCHES - 1; i >= 0; i--) {
        EXPECT_CUDA(cudaGraphExecDestroy(all[i].graph));
        test_tile_free(&all[i].from);
        test_tile_free(&all[i].to);
        if (i > 0)
            all[i].bed.bridge = NULL;
        bed_destroy(&all[i].bed);
    }
}

MPI_TEST(graph, micro_batches)
{
    check_rows(EXECUTOR_P2P);
    check_rows(EXECUTOR_ZERO_COPY);
}

/* ----------------------------------- what nobody gave --------------------------------------- */

/* Ranks would have to agree, which no capture can hold. Each rank says so at once, the capture goes
 * on, and so does the bridge. */
MPI_TEST(graph, untold_batch)
{
    cudaGraph_t graph = NULL;
    bed_case c = case_of(false, EXECUTOR_P2P);
    c.given = c.sums = false;
    bridge_bed bed = bed_create(&c);
    test_tile from = bed_tile_new(&bed, MIMO_SRC), to = bed_target_new(&bed, MIMO_DST);
    bed_fill(&bed, &from, false, 1);
    MPI_EXPECT_OK(bed_call(&bed, false, &to, &from));
    EXPECT_CUDA(cudaStreamBeginCapture(test_stream(), cudaStreamCaptureModeThreadLocal));
    MPI_FAILS(bed_call(&bed, false, &to, &from), MIMO_ERR_STATE,
              "give the batch by mimo_bridge_update");
    EXPECT_CUDA(cudaStreamEndCapture(test_stream(), &graph));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    bed_fill(&bed, &from, false, 2);
    MPI_EXPECT_OK(bed_call(&bed, false, &to, &from));
    bed_check_target(&bed, &to, false, 2);
    bed_destroy(&bed);
}
