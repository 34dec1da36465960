/* Whole batches between devices, by the public calls: a set, rows with weights, and a combine with
 * the gradients of weights; in CUDA graphs that are replayed with other ids, with tiles that are
 * too small, and where ranks call different things. */
#include <unistd.h>

#include "batch_bed.h"
#include "bridge_bed.h"
#include "comm/nccl/nccl_residency.h"

static batch open_batch(const batch_case *its)
{
    return batch_open(mpi_test_comm(), its, 0);
}

/* ------------------------------------------- tests ------------------------------------------ */

static bool fits(const batch_case *its)
{
    int ranks = mpi_test_size();
    return ranks % its->etp == 0 && its->top_k <= ranks / its->etp * its->held;
}

/* etp, held, top_k, alignment, capacity, shared, narrow. The largest tile has all pairs of 8 ranks;
 * the last two are often too small. */
static const batch_case cases[] = {
    {1, 8, 4, 1, 400, true, false}, {1, 8, 8, 8, 840, false, true}, {2, 6, 3, 4, 320, true, false},
    {1, 8, 4, 1, 25, true, false},  {1, 8, 4, 4, 32, false, false},
};

enum { CASES = sizeof cases / sizeof *cases };

/* Every call of a batch in one graph, and 1,000 launches of it with other ids. */
static void replay(const batch_case *its, int replays)
{
    batch it = open_batch(its);
    cudaStream_t stream = test_stream();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    int lost = 0;
    EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MPI_EXPECT_OK(batch_set(&it));
    MPI_EXPECT_OK(batch_rows(&it));
    MPI_EXPECT_OK(batch_combine(&it));
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
    EXPECT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int turn = 1; turn <= replays; turn++) {
        batch_prepare(&it, (uint64_t)turn);
        EXPECT_CUDA(cudaGraphLaunch(exec, stream));
        lost += batch_expect_all(&it);
    }
    MPI_EXPECT((lost > 0) == (its->capacity < 300), "%d tokens lost a pair", lost);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    batch_close(&it);
}

MPI_TEST(batches, replayed)
{
    int ran = 0;
    for (int i = 0; i < CASES; i++)
        if (fits(&cases[i])) {
            replay(&cases[i], i == 0 ? 1000 : 50);
            ran++;
        }
    MPI_EXPECT(ran >= 4, "%d cases", ran);
}

/* The same calls without a graph; two routes are in use, and neither minds the other. */
MPI_TEST(batches, two_routes)
{
    batch it = open_batch(&cases[0]);
    mimo_route *routes[2] = {it.route, NULL};
    MPI_EXPECT_OK(mimo_route_create(&routes[1], it.dispatch));
    for (uint64_t turn = 1; turn <= 5; turn++) {
        it.route = routes[1];
        batch_prepare(&it, 100 + turn);
        MPI_EXPECT_OK(batch_set(&it));
        EXPECT_CUDA(cudaStreamSynchronize(test_stream())); /* the ids have been read */
        it.route = routes[0];
        batch_prepare(&it, turn);
        MPI_EXPECT_OK(batch_set(&it));
        MPI_EXPECT_OK(batch_rows(&it));
        MPI_EXPECT_OK(batch_combine(&it));
        batch_expect_all(&it);
        it.route = routes[1];
        batch_prepare(&it, 100 + turn);
        MPI_EXPECT_OK(batch_rows(&it));
        MPI_EXPECT_OK(batch_combine(&it));
        batch_expect_all(&it);
    }
    it.route = routes[0];
    mimo_route_destroy(routes[1]);
    batch_close(&it);
}

/* A rank that gets no rows and sends none may be calls ahead of the others. It has asked nothing of
 * theirs, so they do not mind what it calls now. */
MPI_TEST(batches, one_rank_ahead)
{
    batch it = open_batch(&cases[0]);
    it.last_apart = true;
    for (uint64_t turn = 1; turn <= 5; turn++) {
        batch_prepare(&it, turn);
        MPI_EXPECT_OK(batch_set(&it));
        EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
        if (mpi_test_rank() < mpi_test_size() - 1)
            usleep(100000);
        MPI_EXPECT_OK(batch_rows(&it));
        MPI_EXPECT_OK(batch_combine(&it));
        batch_expect_all(&it);
    }
    batch_close(&it);
}

static void sleep_a_while(void *microseconds)
{
    usleep(*(useconds_t *)microseconds);
}

/* Two dispatches on two streams. On each rank another one comes late, so each kernel that runs
 * waits for one of the peer that has not begun. Both fit the device, so both end. */
MPI_TEST(batches, lanes_in_opposite_orders)
{
    static const batch_case unshared = {1, 8, 4, 1, 400, false, false};
    enum { TURNS = 50, CTAS = 12 }; /* of 27 where MPS gives a rank a quarter of a device */
    static useconds_t late = 2000;
    cudaStream_t stream;
    batch lanes[2] = {batch_open(mpi_test_comm(), &unshared, CTAS),
                      batch_open(mpi_test_comm(), &unshared, CTAS)};
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    lanes[1].stream = stream;
    for (uint64_t turn = 1; turn <= TURNS; turn++) {
        for (int i = 0; i < 2; i++)
            batch_prepare(&lanes[i], turn * 2 + (uint64_t)i);
        for (int i = 0; i < 2; i++)
            MPI_EXPECT_OK(batch_set(&lanes[i]));
        EXPECT_CUDA(cudaLaunchHostFunc(lanes[(mpi_test_rank() + (int)turn) % 2].stream,
                                       sleep_a_while, &late));
        for (int i = 0; i < 2; i++)
            MPI_EXPECT_OK(batch_rows(&lanes[i]));
        for (int i = 0; i < 2; i++)
            MPI_EXPECT_OK(batch_combine(&lanes[i]));
        EXPECT_CUDA(cudaDeviceSynchronize());
        for (int i = 0; i < 2; i++)
            batch_expect_all(&lanes[i]);
    }
    batch_close(&lanes[1]);
    batch_close(&lanes[0]);
    EXPECT_CUDA(cudaStreamDestroy(stream));
}

/* Rows beside a zero-copy call of a bridge, in all thread blocks that may be in flight here. The
 * tile of the rows lies in no buffer: calls into one buffer would follow one another. */
typedef struct two_lanes {
    batch rows;
    bridge_bed bed;
    test_tile from, to; /* of the bridge */
    cudaStream_t stream;
} two_lanes;

static int block_budget(void)
{
    int device;
    int64_t budget, multiprocessors;
    MPI_EXPECT_OK(mimo_nccl_device(&device, mpi_test_comm()));
    MPI_EXPECT_OK(mimo_nccl_block_budget(&budget, &multiprocessors, device));
    return (int)budget;
}

static two_lanes open_two_lanes(int budget)
{
    static const batch_case unshared = {1, 8, 4, 1, 400, false, false};
    const bed_case zero_copy = {.src = {.grid = "tp=1,dp=2"},
                                .dst = {.grid = "tp=1,cp=2,dp=1"},
                                .src_letters = "sbh",
                                .dst_letters = "sbh",
                                .executor = EXECUTOR_ZERO_COPY,
                                .dtype = MIMO_BF16,
                                .batch = 2,
                                .seq = 256,
                                .hidden = 1024,
                                .buffer = true,
                                .given = true,
                                .ctas = budget - budget / 2};
    two_lanes it = {.rows = batch_open(mpi_test_comm(), &unshared, budget / 2)};
    it.bed = bed_create(&zero_copy);
    it.from = bed_tile_new(&it.bed, MIMO_SRC);
    it.to = bed_target_new(&it.bed, MIMO_DST);
    EXPECT_CUDA(cudaStreamCreateWithFlags(&it.stream, cudaStreamNonBlocking));
    it.rows.stream = it.stream;
    return it;
}

static void close_two_lanes(two_lanes *it)
{
    test_tile_free(&it->to);
    test_tile_free(&it->from);
    bed_destroy(&it->bed);
    batch_close(&it->rows);
    EXPECT_CUDA(cudaStreamDestroy(it->stream));
}

/* Start both calls, in this order. */
static void start_both(const two_lanes *it, bool rows_first)
{
    for (int i = 0; i < 2; i++)
        MPI_EXPECT_OK((i == 0) == rows_first ? batch_rows(&it->rows)
                                             : bed_call(&it->bed, false, &it->to, &it->from));
}

static void expect_too_many(int ctas)
{
    mimo_dispatch *none;
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    desc.experts = mpi_test_size();
    desc.max_tokens = N;
    desc.hidden = H;
    desc.ctas = ctas;
    MPI_EXPECT_STATUS(mimo_dispatch_create(&none, mpi_test_comm(), &desc), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_SENTENCE("dispatch: 8 thread blocks beside");
    MPI_EXPECT_SENTENCE("of 2 others with a limit and 0 of calls without one");
}

/* Each rank starts first what the other one starts last. At the budget all of it is resident; one
 * lane more is refused. */
MPI_TEST(batches, rows_beside_zero_copy)
{
    enum { TURNS = 10000, SEEDS = 20 };
    test_needs_reach(mpi_test_size());
    two_lanes it = open_two_lanes(block_budget());
    expect_too_many(8);
    for (uint64_t turn = 0; turn < TURNS; turn++) {
        uint64_t seed = 1 + turn / (TURNS / SEEDS);
        if (turn % (TURNS / SEEDS) == 0) {
            batch_prepare(&it.rows, seed);
            bed_fill(&it.bed, &it.from, false, seed);
            MPI_EXPECT_OK(batch_set(&it.rows));
        }
        start_both(&it, (mpi_test_rank() + (int)turn) % 2 == 0);
        if ((turn + 1) % (TURNS / SEEDS) > 0)
            continue;
        EXPECT_CUDA(cudaDeviceSynchronize());
        test_pull(&it.rows.tiles[ROWS].room);
        test_pull(&it.rows.tiles[WEIGHTS].room);
        batch_expect_rows(&it.rows);
        bed_check_target(&it.bed, &it.to, false, seed);
    }
    close_two_lanes(&it);
}

/* One rank moves by another route. No rank waits for ever, and all learn of it. */
MPI_TEST(batches, different_calls)
{
    batch it = open_batch(&cases[0]);
    mimo_route *routes[2] = {it.route, NULL};
    MPI_EXPECT_OK(mimo_route_create(&routes[1], it.dispatch));
    batch_prepare(&it, 1);
    for (int i = 0; i < 2; i++) {
        it.route = routes[i];
        MPI_EXPECT_OK(batch_set(&it));
    }
    it.route = routes[mpi_test_rank() == 0];
    MPI_EXPECT_OK(batch_rows(&it));
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    MPI_FAILS(batch_combine(&it), MIMO_ERR_MISMATCH, "was not the same call there as here");
    MPI_EXPECT_STATUS(batch_set(&it), MIMO_ERR_MISMATCH);
    it.route = routes[0];
    mimo_route_destroy(routes[1]);
    batch_close(&it);
}

/* ------------------------------------------ refusals ---------------------------------------- */

/* Of this rank's arguments: all ranks bring the same here, so none waits. */
MPI_TEST(batches, refused)
{
    batch it = open_batch(&cases[0]);
    test_tile plain = test_tile_new("th", MIMO_BF16, it.its->capacity, H, 1);
    test_tile wide = test_tile_new("th", MIMO_F64, it.its->capacity, H, 1);
    test_tile wide_tokens = test_tile_new("th", MIMO_F64, N, H, 1);
    batch_prepare(&it, 1);
    MPI_EXPECT_STATUS(batch_rows(&it), MIMO_ERR_STATE);
    MPI_EXPECT_OK(batch_set(&it));
    MPI_FAILS(mimo_dispatch_rows(it.route, &plain.view, &it.tokens[ROWS].view, 1, test_stream()),
              MIMO_ERR_ARGUMENT,
              "which is in no buffer of the communicator that the dispatch was made from");
    MPI_FAILS(mimo_dispatch_combine(it.route, &wide_tokens.view, &wide.view, 1, test_stream()),
              MIMO_ERR_SHAPE, "tensor 0: partial sums of 128 bytes, room for 64 (row_bytes)");
    const mimo_tensor two[] = {it.tokens[ROWS].view, it.tokens[ROWS].view};
    const mimo_tensor tiles[] = {it.tiles[ROWS].view, plain.view};
    MPI_FAILS(mimo_dispatch_rows(it.route, tiles, two, 2, test_stream()), MIMO_ERR_SHAPE,
              "2 tensors by token and 0 by pair, room for 1 of each (tensors)");
    MPI_EXPECT_OK(batch_rows(&it));
    MPI_EXPECT_OK(batch_combine(&it));
    batch_expect_all(&it);
    batch_close(&it);
}
