/* Batches of which a rank is late, missing or given up, in each of their calls; and a million
 * calls, of which each is compared. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batch_bed.h"
#include "compare.h"

enum { LATE = 1, DEADLINE = 500, CALLS = 3 };

/* The tiles of an ended communicator lie in no buffer: those of the tests have another one. */
static const batch_case plain = {1, 8, 4, 1, 400, false, false};
static const batch_case shared = {1, 8, 4, 1, 400, true, false};

static mimo_status (*const calls[CALLS])(const batch *it) = {batch_set, batch_rows, batch_combine};

/* ------------------------------------------- late ------------------------------------------- */

/* The others' kernels wait inside their devices, and everything arrives. */
MPI_TEST(lost_batches, late_for_each_call)
{
    batch it = batch_open(mpi_test_comm(), &plain, 0);
    for (int late = 0; late < CALLS; late++) {
        batch_prepare(&it, 1 + (uint64_t)late);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < CALLS; i++) {
            if (i == late && mpi_test_rank() == LATE)
                sleep(2);
            MPI_EXPECT_OK(calls[i](&it));
        }
        batch_expect_all(&it);
    }
    batch_close(&it);
}

/* ------------------------------------------ missing ----------------------------------------- */

/* A batch on a communicator of its own, whose calls before `missing` have ended. */
static batch open_until(mimo_comm **comm, int missing)
{
    const mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    MPI_EXPECT_OK(gpu_comm_create(comm, &desc));
    if (!*comm)
        MPI_Abort(MPI_COMM_WORLD, 1);
    batch it = batch_open(*comm, &plain, 0);
    batch_prepare(&it, 7);
    for (int i = 0; i < missing; i++)
        MPI_EXPECT_OK(calls[i](&it));
    MPI_EXPECT_OK(mimo_comm_synchronize(*comm, test_stream()));
    MPI_EXPECT_OK(mimo_comm_barrier(*comm));
    return it;
}

/* Nothing works any more, and nothing waits: not the stream, and no later call. */
static void expect_ended(mimo_comm *comm, const batch *it, mimo_status status)
{
    mimo_dispatch_counts counts = MIMO_DISPATCH_COUNTS_INIT;
    MPI_EXPECT_STATUS(mimo_comm_state(comm), status);
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    for (int i = 0; i < CALLS; i++)
        MPI_EXPECT_STATUS(calls[i](it), status);
    MPI_EXPECT_STATUS(mimo_comm_synchronize(comm, test_stream()), status);
    (void)mimo_dispatch_report(&counts, it->dispatch); /* it may know, and must not wait */
}

/* The late rank gives up when the others have. Then the device works, and so does a dispatch. */
static void close_all(mimo_comm *comm, batch *it)
{
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_EXPECT_OK(mimo_comm_abort(comm, "the others gave up"));
    batch_close(it);
    mimo_comm_destroy(comm);
    batch after = batch_open(mpi_test_comm(), &plain, 0);
    batch_prepare(&after, 8);
    for (int i = 0; i < CALLS; i++)
        MPI_EXPECT_OK(calls[i](&after));
    batch_expect_all(&after);
    batch_close(&after);
}

MPI_TEST(lost_batches, deadline_of_each_call)
{
    for (int missing = 0; missing < CALLS; missing++) {
        mimo_comm *comm = NULL;
        batch it = open_until(&comm, missing);
        MPI_EXPECT_OK(mimo_comm_set_deadline(comm, DEADLINE));
        if (mpi_test_rank() != LATE) {
            MPI_EXPECT_OK(calls[missing](&it));
            MPI_EXPECT_STATUS(mimo_comm_synchronize(comm, test_stream()), MIMO_ERR_TIMEOUT);
            MPI_EXPECT_SENTENCE("the work on a stream: given up after ");
            expect_ended(comm, &it, MIMO_ERR_TIMEOUT);
        }
        close_all(comm, &it);
    }
}

MPI_TEST(lost_batches, abort_in_each_call)
{
    for (int missing = 0; missing < CALLS; missing++) {
        mimo_comm *comm = NULL;
        batch it = open_until(&comm, missing);
        if (mpi_test_rank() != LATE) {
            MPI_EXPECT_OK(calls[missing](&it));
            MPI_EXPECT_OK(mimo_comm_abort(comm, "enough"));
            expect_ended(comm, &it, MIMO_ERR_ABORTED);
        }
        close_all(comm, &it);
    }
}

/* ----------------------------------------- many calls --------------------------------------- */

enum { SEEDS = 4, INPUTS = 5, RESULTS = 4, LOAD = 32 << 20 };

/* What batches of several seeds are given, and what they bring: in device memory. */
typedef struct stash {
    void *given[SEEDS][INPUTS], *brought[SEEDS][RESULTS];
    unsigned long long *differing;
    cudaStream_t side; /* of what loads the memory beside */
    char *load;        /* [2 * LOAD] */
} stash;

static const test_room *input_of(const batch *it, int i)
{
    const test_room *rooms[INPUTS] = {&it->ids, &it->tokens[ROWS].room, &it->tokens[WEIGHTS].room,
                                      &it->given[ROWS].room, &it->given[WEIGHTS].room};
    return rooms[i];
}

static const test_room *result_of(const batch *it, int i)
{
    return &(i < 2 ? it->tiles : it->sums)[i % 2].room;
}

static void *copy_of(const test_room *room)
{
    void *made;
    EXPECT_CUDA(cudaMalloc(&made, (size_t)room->bytes));
    EXPECT_CUDA(cudaMemcpy(made, room->place, (size_t)room->bytes, cudaMemcpyDeviceToDevice));
    EXPECT_CUDA(cudaDeviceSynchronize());
    return made;
}

/* Two rounds of all seeds, by calls that are compared with plain loops. Rows of a tile that a seed
 * does not use are those of the seed before: from the second round on they are always the same. */
static void fill(stash *out, batch *it)
{
    for (int turn = 0; turn < 2 * SEEDS; turn++) {
        int seed = turn % SEEDS;
        batch_prepare(it, 1 + (uint64_t)seed);
        for (int i = 0; i < CALLS; i++)
            MPI_EXPECT_OK(calls[i](it));
        batch_expect_all(it);
        for (int i = 0; turn == seed && i < INPUTS; i++)
            out->given[seed][i] = copy_of(input_of(it, i));
        for (int i = 0; turn != seed && i < RESULTS; i++)
            out->brought[seed][i] = copy_of(result_of(it, i));
    }
}

static stash open_stash(batch *it)
{
    stash made;
    memset(&made, 0, sizeof made);
    fill(&made, it);
    EXPECT_CUDA(cudaMalloc((void **)&made.differing, sizeof *made.differing));
    EXPECT_CUDA(cudaMemset(made.differing, 0, sizeof *made.differing));
    EXPECT_CUDA(cudaMalloc((void **)&made.load, 2 * (size_t)LOAD));
    EXPECT_CUDA(cudaStreamCreateWithFlags(&made.side, cudaStreamNonBlocking));
    EXPECT_CUDA(cudaDeviceSynchronize());
    return made;
}

static void close_stash(stash *it)
{
    for (int seed = 0; seed < SEEDS; seed++) {
        for (int i = 0; i < INPUTS; i++)
            EXPECT_CUDA(cudaFree(it->given[seed][i]));
        for (int i = 0; i < RESULTS; i++)
            EXPECT_CUDA(cudaFree(it->brought[seed][i]));
    }
    EXPECT_CUDA(cudaFree(it->differing));
    EXPECT_CUDA(cudaFree(it->load));
    EXPECT_CUDA(cudaStreamDestroy(it->side));
}

/* A batch of a seed, and its comparison. */
static void enqueue_seed(const batch *it, const stash *known, int seed)
{
    cudaStream_t stream = test_stream();
    for (int i = 0; i < INPUTS; i++)
        EXPECT_CUDA(cudaMemcpyAsync(input_of(it, i)->place, known->given[seed][i],
                                    (size_t)input_of(it, i)->bytes, cudaMemcpyDeviceToDevice,
                                    stream));
    for (int i = 0; i < CALLS; i++)
        MPI_EXPECT_OK(calls[i](it));
    for (int i = 0; i < RESULTS; i++)
        EXPECT_CUDA(compare_bytes(known->differing, result_of(it, i)->place,
                                  known->brought[seed][i], (size_t)result_of(it, i)->bytes,
                                  stream));
}

static cudaGraphExec_t record_seeds(const batch *it, const stash *known)
{
    cudaGraph_t graph;
    cudaGraphExec_t made;
    EXPECT_CUDA(cudaStreamBeginCapture(test_stream(), cudaStreamCaptureModeThreadLocal));
    for (int seed = 0; seed < SEEDS; seed++)
        enqueue_seed(it, known, seed);
    EXPECT_CUDA(cudaStreamEndCapture(test_stream(), &graph));
    EXPECT_CUDA(cudaGraphInstantiate(&made, graph, 0));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    return made;
}

/* Flags follow rows: bulk writes, a release in the thread block and a fence of the system by
 * another warp. One call in which they did not would bring a row of the batch before. Memory is
 * under load meanwhile, and every call is compared. */
MPI_TEST(lost_batches, a_million_calls)
{
    enum { LAUNCHES = 1000000 / (SEEDS * CALLS) + 1, AHEAD = 500 };
    unsigned long long differing;
    test_needs_reach(mpi_test_size());
    batch it = batch_open(mpi_test_comm(), &shared, 0);
    stash known = open_stash(&it);
    cudaGraphExec_t exec = record_seeds(&it, &known);
    for (int launch = 0; launch < LAUNCHES; launch++) {
        EXPECT_CUDA(cudaGraphLaunch(exec, test_stream()));
        EXPECT_CUDA(cudaMemcpyAsync(known.load, known.load + LOAD, LOAD, cudaMemcpyDeviceToDevice,
                                    known.side));
        if (launch % AHEAD == 0)
            EXPECT_CUDA(cudaDeviceSynchronize());
    }
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_CUDA(cudaMemcpy(&differing, known.differing, sizeof differing, cudaMemcpyDeviceToHost));
    MPI_EXPECT(differing == 0, "%llu bytes differ in %d launches", differing, (int)LAUNCHES);
    EXPECT_CUDA(cudaGraphExecDestroy(exec));
    close_stash(&known);
    batch_close(&it);
}
