/* Routes by the public calls, with ids in CUDA memory: sets that kernels do, what they report, what
 * a dispatch of devices refuses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases_ran.h"
#include "comm/recorder.h"
#include "dispatch/dispatch_executor.h"
#include "dispatch_bed.h"
#include "gpu_calls.h"

/* ------------------------------------------- sets ------------------------------------------- */

/* etp, held, top_k, alignment, hidden, dtype, narrow, transport, shared, spare */
static const dispatch_case cases[] = {
    {1, 4, 2, 1, 64, MIMO_BF16, false, MIMO_TRANSPORT_AUTO, false, 0},
    {1, 32, 8, 16, 64, MIMO_BF16, true, MIMO_TRANSPORT_ZERO_COPY, false, 3},
    {2, 5, 4, 8, 33, MIMO_F32, false, MIMO_TRANSPORT_AUTO, false, 0},
    {4, 14, 14, 1, 8, MIMO_F16, false, MIMO_TRANSPORT_AUTO, false, 1},
};

MPI_TEST(routes, set_by_kernels)
{
    enum { CASES = sizeof cases / sizeof *cases, SEEDS = 10 };
    int ran = 0;
    for (int i = 0; i < CASES; i++) {
        if (!dispatch_case_fits(&cases[i], mpi_test_size()))
            continue;
        dispatch_bed bed = dispatch_bed_new(mpi_test_comm(), &cases[i]);
        for (uint64_t seed = 1; seed <= SEEDS; seed++, ran++)
            dispatch_bed_set(&bed, seed + (uint64_t)i * 100);
        dispatch_bed_free(&bed);
    }
    MPI_CASES_RAN(ran, CASES * SEEDS, 2 * SEEDS, "sets");
}

/* ------------------------------------------ by hand ----------------------------------------- */

/* A dispatch of 4 experts and 2 choices on all ranks; each rank brings one token, of experts 3 and
 * 0. */
typedef struct small {
    mimo_dispatch *dispatch;
    mimo_route *route;
    test_room ids;
    mimo_route_desc desc;
} small;

enum { SMALL_IDS = 2 };

static mimo_dispatch_desc small_desc(void)
{
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    desc.experts = 4;
    desc.top_k = SMALL_IDS;
    desc.max_tokens = 2;
    desc.hidden = 8;
    desc.name = "layer 3";
    return desc;
}

static void tell_ids(const small *it, int32_t first, int32_t second)
{
    ((int32_t *)it->ids.host)[0] = first;
    ((int32_t *)it->ids.host)[1] = second;
    test_push(&it->ids);
}

static small open_small(void)
{
    small it = {.ids = test_room_new(SMALL_IDS * sizeof(int32_t)), .desc = MIMO_ROUTE_DESC_INIT};
    const mimo_dispatch_desc desc = small_desc();
    MPI_EXPECT_OK(mimo_dispatch_create(&it.dispatch, mpi_test_comm(), &desc));
    MPI_EXPECT_OK(mimo_route_create(&it.route, it.dispatch));
    it.desc.ids = it.ids.place;
    it.desc.memory = MIMO_MEMORY_CUDA;
    it.desc.tokens = 1;
    it.desc.capacity = 2 * mpi_test_size();
    tell_ids(&it, 3, 0);
    return it;
}

static void close_small(small *it)
{
    mimo_route_destroy(it->route);
    mimo_dispatch_destroy(it->dispatch);
    test_room_free(&it->ids);
}

static void expect_rows(const small *it, int64_t first, int64_t last, int64_t overflows)
{
    mimo_route_counts counts = MIMO_ROUTE_COUNTS_INIT;
    MPI_EXPECT_OK(mimo_route_read(&counts, it->route));
    MPI_EXPECT(counts.rows[0] == first && counts.rows[mpi_test_size() - 1] == last &&
                   counts.overflows == overflows,
               "%d rows of the first rank, %d of the last, %d overflows", (int)counts.rows[0],
               (int)counts.rows[mpi_test_size() - 1], (int)counts.overflows);
}

/* A tile that is too small is no error of the set: the host does not know. The read and the report
 * say it. */
MPI_TEST(routes, overflow_is_reported)
{
    small it = open_small();
    mimo_dispatch_counts report = MIMO_DISPATCH_COUNTS_INIT;
    int64_t ranks = mpi_test_size(), rows = ranks > 1 ? ranks : 2;
    MPI_EXPECT_OK(mimo_route_set(it.route, &it.desc, test_stream()));
    expect_rows(&it, rows, rows, 0);
    if (mpi_test_rank() == 0)
        it.desc.capacity = rows - 1;
    MPI_EXPECT_OK(mimo_route_set(it.route, &it.desc, test_stream()));
    expect_rows(&it, rows, rows, 1);
    MPI_EXPECT_OK(mimo_dispatch_report(&report, it.dispatch));
    MPI_EXPECT(report.routes == 2 && report.rows == rows && report.overflows == 1, "%d %d %d",
               (int)report.routes, (int)report.rows, (int)report.overflows);
    MPI_EXPECT_OK(mimo_dispatch_report(&report, it.dispatch));
    MPI_EXPECT(report.routes == 0 && report.rows == 0 && report.overflows == 0, "not set back");
    close_small(&it);
}

/* A graph reads the ids when it is launched. */
MPI_TEST(routes, captured)
{
    small it = open_small();
    cudaStream_t stream = test_stream();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    mimo_route_counts counts = MIMO_ROUTE_COUNTS_INIT;
    int64_t ranks = mpi_test_size();
    EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MPI_EXPECT_OK(mimo_route_set(it.route, &it.desc, stream));
    MPI_FAILS(mimo_route_read(&counts, it.route), MIMO_ERR_STATE,
              "dispatch 'layer 3': mimo_route_read waits for a stream that is being");
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
    EXPECT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int turn = 0; turn < 3; turn++) {
        tell_ids(&it, turn == 1 ? -1 : 0, turn == 2 ? 3 : 0);
        EXPECT_CUDA(cudaGraphLaunch(exec, stream));
        int64_t all = turn == 1 ? ranks : 2 * ranks;
        if (ranks > 1)
            expect_rows(&it, turn == 2 ? ranks : all, turn == 2 ? ranks : 0, 0);
        else
            expect_rows(&it, all, all, 0);
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    close_small(&it);
}

/* What the ring of this rank says of kernels whose work is done, by the beginning of a title. */
static mimo_ring_launched launched_by(const char *title)
{
    const mimo_recorder *recorder = mpi_test_comm()->family->recorder;
    mimo_ring_sample *sample = NULL;
    mimo_ring_launched found = {.title = NULL};
    MPI_EXPECT_OK(mimo_comm_synchronize(mpi_test_comm(), test_stream()));
    MPI_EXPECT_OK(mimo_ring_sample_take(&sample, &recorder->ring->memory, &recorder->self));
    for (int i = 0; i < sample->launched_count; i++)
        if (strncmp(sample->launched[i].title, title, strlen(title)) == 0 &&
            sample->launched[i].enqueued > 0)
            found = sample->launched[i];
    MPI_EXPECT(found.title, "nothing is said of %s", title);
    MPI_EXPECT(!found.title || mimo_ring_kernel_of(&found) == MIMO_RING_KERNEL_DONE, "%s: %s",
               title, mimo_ring_kernel_text(mimo_ring_kernel_of(&found)));
    mimo_ring_sample_release(sample);
    return found;
}

static void expect_launches(uint64_t enqueued, uint64_t captured, uint64_t ended)
{
    const mimo_ring_launched it = launched_by("dispatch 'layer 3'");
    MPI_EXPECT(it.enqueued == enqueued && it.captured == captured && it.alike,
               "%d enqueued, %d captured", (int)it.enqueued, (int)it.captured);
    MPI_EXPECT(it.begun == ended && it.ended == ended, "%d begun, %d ended", (int)it.begun,
               (int)it.ended);
}

/* Launches and replays of a graph, by numbers that the device counts. */
MPI_TEST(routes, launches_are_told)
{
    small it = open_small();
    cudaStream_t stream = test_stream();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    for (int turn = 0; turn < 2; turn++)
        MPI_EXPECT_OK(mimo_route_set(it.route, &it.desc, stream));
    expect_launches(2, 0, 2);
    EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MPI_EXPECT_OK(mimo_route_set(it.route, &it.desc, stream));
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
    EXPECT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    expect_launches(2, 1, 2);
    for (int turn = 0; turn < 3; turn++)
        EXPECT_CUDA(cudaGraphLaunch(exec, stream));
    expect_launches(2, 1, 5);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    close_small(&it);
}

/* A bridge of samples that all ranks give to all, into a buffer or as messages. */
static void forward_twice(mimo_executor executor, const char *title)
{
    enum { SEQ = 4, HIDDEN = 8 };
    mimo_buffer *buffer = NULL;
    mimo_bridge *bridge = NULL;
    const int size = mpi_test_size();
    const int64_t tile = SEQ * HIDDEN * (int64_t)sizeof(float);
    mimo_bridge_desc desc = mpi_test_bridge_desc(mpi_test_grid_of("tp=1,dp=%d", size),
                                                 mpi_test_grid_of("tp=%d,dp=1", size));
    test_room from = test_room_new(tile), to = test_room_new(size * tile);
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, mpi_test_comm(), size * tile));
    desc.executor = executor;
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, mpi_test_comm(), &desc));
    const bool pushes = executor.transport == MIMO_TRANSPORT_ZERO_COPY;
    mimo_tensor src = mimo_tensor_3d(from.place, MIMO_F32, "sbh", SEQ, 1, HIDDEN);
    mimo_tensor dst = mimo_tensor_3d(pushes ? mimo_buffer_data(buffer) : to.place, MIMO_F32, "sbh",
                                     SEQ, size, HIDDEN);
    src.memory = dst.memory = test_memory();
    for (int turn = 0; turn < 2; turn++)
        MPI_EXPECT_OK(mimo_bridge_forward(bridge, &dst, &src, 1, test_stream()));
    const mimo_ring_launched it = launched_by(title); /* other tests may have used it before */
    MPI_EXPECT(it.enqueued >= 2 && it.ended >= it.enqueued && !it.alike, "%d enqueued, %d ended",
               (int)it.enqueued, (int)it.ended);
    mimo_bridge_destroy(bridge);
    mimo_buffer_destroy(buffer);
    test_room_free(&from);
    test_room_free(&to);
}

MPI_TEST(routes, launches_of_bridges)
{
    forward_twice((mimo_executor){MIMO_ALGORITHM_ROUTED, MIMO_TRANSPORT_ZERO_COPY}, "buffer ");
    forward_twice((mimo_executor){MIMO_ALGORITHM_ROUTED, MIMO_TRANSPORT_STAGED},
                  "staged messages, buffer ");
}

/* With a capacity of -1 a tile has the rows that it needs, and nobody knows them before the read. A
 * route that follows gets the memory of the one that was destroyed. */
MPI_TEST(routes, rows_told_by_a_read)
{
    small it = open_small();
    const mimo_tensor none = {.letters = "th"};
    int64_t ranks = mpi_test_size(), rows = ranks > 1 ? ranks : 2;
    it.desc.capacity = -1;
    for (int turn = 0; turn < 3; turn++) {
        MPI_EXPECT_OK(mimo_route_set(it.route, &it.desc, test_stream()));
        MPI_FAILS(mimo_dispatch_rows(it.route, &none, &none, 1, test_stream()), MIMO_ERR_STATE,
                  "has a capacity of -1, and only a read tells its rows");
        expect_rows(&it, rows, rows, 0);
        mimo_route_destroy(it.route);
        MPI_EXPECT_OK(mimo_route_create(&it.route, it.dispatch));
    }
    close_small(&it);
}

/* ---------------------------------------- refusals ------------------------------------------ */

static void expect_no_dispatch(const mimo_dispatch_desc *desc, mimo_status status,
                               const char *words)
{
    mimo_dispatch *dispatch = NULL;
    MPI_FAILS(mimo_dispatch_create(&dispatch, mpi_test_comm(), desc), status, words);
    mimo_dispatch_destroy(dispatch);
}

#define NO_DISPATCH_WITH(field, value, status, words) \
    do {                                              \
        mimo_dispatch_desc changed = small_desc();    \
        changed.field = (value);                      \
        expect_no_dispatch(&changed, status, words);  \
    } while (0)

MPI_TEST(routes, refused_creations)
{
    NO_DISPATCH_WITH(ctas, 4000, MIMO_ERR_ARGUMENT, "dispatch: 4000 thread blocks, and kernels");
    mimo_dispatch_desc beyond = small_desc(); /* zero-copy is what kernels do */
    beyond.transport = MIMO_TRANSPORT_ZERO_COPY;
    beyond.experts = 3004;
    expect_no_dispatch(&beyond, MIMO_ERR_UNSUPPORTED, "3004 experts");
    beyond.experts = 16;
    beyond.top_k = 15;
    expect_no_dispatch(&beyond, MIMO_ERR_UNSUPPORTED, "top_k 15");
    beyond = small_desc();
    beyond.transport = MIMO_TRANSPORT_ZERO_COPY;
    beyond.max_tokens = 300000;
    expect_no_dispatch(&beyond, MIMO_ERR_UNSUPPORTED, "300000 tokens");
}

/* Beyond what kernels can, rows travel as messages: all that a route needs is known after a set. */
MPI_TEST(routes, beyond_kernels)
{
    static const struct {
        int64_t experts, top_k;
        mimo_transport transport;
    } beyond[] = {
        {3004, 2, MIMO_TRANSPORT_AUTO}, {16, 15, MIMO_TRANSPORT_AUTO}, {16, 2, MIMO_TRANSPORT_P2P}};
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        mimo_dispatch *dispatch = NULL;
        mimo_dispatch_desc desc = small_desc();
        desc.experts = beyond[i].experts;
        desc.top_k = beyond[i].top_k;
        desc.transport = beyond[i].transport;
        MPI_EXPECT_OK(mimo_dispatch_create(&dispatch, mpi_test_comm(), &desc));
        MPI_EXPECT(strcmp(dispatch->executor->name, "messages") == 0, "case %d by %s", (int)i,
                   dispatch->executor->name);
        mimo_dispatch_destroy(dispatch);
    }
}

/* Of one rank alone: it makes no call. The others do the same here. */
MPI_TEST(routes, refused_sets)
{
    small it = open_small();
    mimo_route_desc wrong = it.desc;
    wrong.memory = MIMO_MEMORY_HOST;
    MPI_FAILS(mimo_route_set(it.route, &wrong, test_stream()), MIMO_ERR_ARGUMENT,
              "route: the ids lie in host memory, and the communicator moves CUDA");
    wrong = it.desc;
    wrong.tokens = 3;
    MPI_FAILS(mimo_route_set(it.route, &wrong, test_stream()), MIMO_ERR_SHAPE,
              "route: 3 tokens, room for 2 (max_tokens)");
    MPI_EXPECT_OK(mimo_route_set(it.route, &it.desc, test_stream()));
    close_small(&it);
}
