/* A rank is missing while the others wait on the host, or inside their GPUs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mimo/dispatch.h>

#include "comm/nccl/nccl_runtime.h"
#include "comm/recorder.h"
#include "comm_life.h"
#include "executors.h"

enum { DEADLINE = 500 };

/* -------------------------------- late or failing inside NCCL ------------------------------- */

/* The NCCL call that this rank delays until the others have given up. */
static const char *late_for;
static bool behind_a_window; /* the delay begins once a window is registered */

static void may_be_late(const char *call)
{
    if (!late_for || behind_a_window || strcmp(late_for, call) != 0)
        return;
    late_for = NULL;
    MPI_Barrier(MPI_COMM_WORLD);
}

/* NCCL's profiling interface: these definitions replace the library's. */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *data, size_t bytes, ncclWindow_t *out,
                                    int flags)
{
    may_be_late("ncclCommWindowRegister");
    behind_a_window = false;
    return pncclCommWindowRegister(comm, data, bytes, out, flags);
}

/* These two are declared for nvcc only. */
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void *wanted, void *out);
ncclResult_t pncclDevCommCreate(ncclComm_t comm, const void *wanted, void *out);

ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void *wanted, void *out)
{
    may_be_late("ncclDevCommCreate");
    return pncclDevCommCreate(comm, wanted, out);
}

static bool fails;     /* the next sum or MAX fails */
static bool cut_short; /* it ends with what no rank sent, as beside a rank that gives up */

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    if (fails) {
        fails = false;
        return ncclSystemError;
    }
    if (cut_short) {
        cut_short = false;
        (void)cudaMemsetAsync(to, 0xff, count * sizeof(uint64_t), stream);
        return ncclSuccess;
    }
    may_be_late("ncclAllReduce");
    return pncclAllReduce(from, to, count, type, op, comm, stream);
}

static bool lost; /* NCCL says that it lost a peer */

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    ncclResult_t code = pncclCommGetAsyncError(comm, error);
    if (code == ncclSuccess && lost)
        *error = ncclRemoteError;
    return code;
}

/* --------------------------------------- beginnings ----------------------------------------- */

static void expect_ended(mimo_comm *comm, const test_tile *tile, mimo_status status)
{
    MPI_EXPECT_STATUS(mimo_comm_state(comm), status);
    MPI_EXPECT_STATUS(mimo_comm_barrier(comm), status);
    MPI_EXPECT_STATUS(add_up(comm, tile), status);
    MPI_EXPECT_STATUS(mimo_comm_synchronize(comm, test_stream()), status);
}

/* On NCCL nobody but the rings of this host knows which rank is late. */
static void expect_verdict(const mimo_comm *comm, const char *waits)
{
    mimo_verdict verdict = MIMO_VERDICT_INIT;
    char late[32];
    snprintf(late, sizeof late, "; rank %d (pid ", LATE);
    MPI_EXPECT_SENTENCE(late);
    MPI_EXPECT_SENTENCE(", running) has not begun call ");
    MPI_EXPECT_SENTENCE(waits);
    MPI_EXPECT_OK(mimo_comm_verdict(&verdict, comm));
    MPI_EXPECT(verdict.waits && verdict.stands && verdict.rank_count == 1 &&
                   verdict.ranks[0] == LATE,
               "%d ranks, the first is %d: %s", (int)verdict.rank_count, (int)verdict.ranks[0],
               verdict.text);
}

/* The barrier's agreement is an exchange of host values. */
MPI_TEST(deadline, late_for_a_barrier)
{
    test_tile tile = test_tile_new("t", MIMO_F32, COUNT, 1, 1);
    mimo_comm *comm = warm_comm(&tile, MIMO_NCCL_DEFAULT, DEADLINE);
    if (mpi_test_rank() != LATE) {
        MPI_FAILS(mimo_comm_barrier(comm), MIMO_ERR_TIMEOUT, "barrier: given up after ");
        expect_verdict(comm, " in it");
        expect_ended(comm, &tile, MIMO_ERR_TIMEOUT);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (mpi_test_rank() == LATE) /* gives up by itself, or finds the others' error */
        (void)mimo_comm_barrier(comm);
    mimo_comm_destroy(comm);
    expect_life(&tile);
}

/* The late rank's communicator ends when all others have. */
static void end_behind_the_others(mimo_comm *comm, test_tile *tile, const char *why)
{
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_EXPECT_OK(mimo_comm_abort(comm, why));
    mimo_comm_destroy(comm);
    expect_life(tile);
    test_tile_free(tile);
}

/* A kernel waits inside the device, and the host for its stream. */
MPI_TEST(deadline, late_for_data)
{
    test_tile tile = test_tile_new("t", MIMO_F32, COUNT, 1, 1);
    mimo_comm *comm = warm_comm(&tile, MIMO_NCCL_DEFAULT, DEADLINE);
    if (mpi_test_rank() != LATE) {
        MPI_EXPECT_OK(add_up(comm, &tile));
        MPI_FAILS(mimo_comm_synchronize(comm, test_stream()), MIMO_ERR_TIMEOUT,
                  "the work on a stream: given up after ");
        expect_verdict(comm, " for work on a stream");
        expect_ended(comm, &tile, MIMO_ERR_TIMEOUT);
        EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    }
    end_behind_the_others(comm, &tile, "the others gave up");
}

static const mimo_ring_launched *launched_of(const mimo_ring_sample *sample, const char *title)
{
    for (int i = 0; i < sample->launched_count; i++)
        if (strcmp(sample->launched[i].title, title) == 0)
            return &sample->launched[i];
    return NULL;
}

static mimo_ring_sample *sample_of(const mimo_comm *comm)
{
    const mimo_recorder *recorder = comm->family->recorder;
    mimo_ring_sample *sample = NULL;
    MPI_EXPECT_OK(mimo_ring_sample_take(&sample, &recorder->ring->memory, &recorder->self));
    return sample;
}

/* A kernel of a dispatch waits for READY of the late rank, and a read for the kernel. */
MPI_TEST(deadline, late_for_a_route)
{
    test_tile tile = test_tile_new("t", MIMO_F32, COUNT, 1, 1);
    mimo_comm *comm = warm_comm(&tile, MIMO_NCCL_DEFAULT, DEADLINE);
    mimo_dispatch *dispatch = NULL;
    mimo_route *route = NULL;
    mimo_route_counts counts = MIMO_ROUTE_COUNTS_INIT;
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    desc.experts = mpi_test_size();
    desc.max_tokens = 1;
    desc.hidden = 8;
    MPI_EXPECT_OK(mimo_comm_set_deadline(comm, 60000));
    MPI_EXPECT_OK(mimo_dispatch_create(&dispatch, comm, &desc));
    MPI_EXPECT_OK(mimo_route_create(&route, dispatch));
    MPI_EXPECT_OK(mimo_comm_set_deadline(comm, DEADLINE));
    MPI_Barrier(MPI_COMM_WORLD);
    if (mpi_test_rank() != LATE) {
        mimo_route_desc choice = MIMO_ROUTE_DESC_INIT;
        choice.memory = MIMO_MEMORY_CUDA;
        choice.capacity = mpi_test_size();
        MPI_EXPECT_OK(mimo_route_set(route, &choice, test_stream()));
        MPI_EXPECT_STATUS(mimo_route_read(&counts, route), MIMO_ERR_TIMEOUT);
        MPI_EXPECT_SENTENCE("dispatch 1: mimo_route_read: given up after ");
        expect_verdict(comm, " for work on a stream");
        EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
        mimo_ring_sample *sample = sample_of(comm);
        const mimo_ring_launched *it = launched_of(sample, "dispatch 1");
        MPI_EXPECT(it && it->enqueued == 1 && it->begun == 1 && it->ended == 1,
                   "the device says nothing, or another thing, of its launch");
        mimo_ring_sample_release(sample);
        MPI_EXPECT_STATUS(
            mimo_dispatch_report(&(mimo_dispatch_counts)MIMO_DISPATCH_COUNTS_INIT, dispatch),
            MIMO_ERR_TIMEOUT);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (mpi_test_rank() == LATE)
        MPI_EXPECT_OK(mimo_comm_abort(comm, "the others gave up"));
    mimo_route_destroy(route);
    mimo_dispatch_destroy(dispatch);
    mimo_comm_destroy(comm);
    expect_life(&tile);
}

/* Abort ends work that waits in the device, without a deadline. */
MPI_TEST(deadline, abort_of_data)
{
    test_tile tile = test_tile_new("t", MIMO_F32, COUNT, 1, 1);
    mimo_comm *comm = warm_comm(&tile, MIMO_NCCL_DEFAULT, DEADLINE);
    MPI_EXPECT_OK(mimo_comm_set_deadline(comm, 0));
    if (mpi_test_rank() != LATE)
        MPI_EXPECT_OK(add_up(comm, &tile));
    MPI_EXPECT_OK(mimo_comm_abort(comm, "enough"));
    MPI_FAILS(mimo_comm_state(comm), MIMO_ERR_ABORTED, "aborted here: enough");
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    expect_ended(comm, &tile, MIMO_ERR_ABORTED);
    mimo_comm_destroy(comm);
    MPI_Barrier(MPI_COMM_WORLD);
    expect_life(&tile);
}

/* NCCL tells of an error and ends no kernel. The library does, without a deadline. */
MPI_TEST(deadline, error_while_data_waits)
{
    test_tile tile = test_tile_new("t", MIMO_F32, COUNT, 1, 1);
    mimo_comm *comm = warm_comm(&tile, MIMO_NCCL_DEFAULT, DEADLINE);
    MPI_EXPECT_OK(mimo_comm_set_deadline(comm, 0));
    if (mpi_test_rank() != LATE) {
        MPI_EXPECT_OK(add_up(comm, &tile));
        lost = true;
        MPI_FAILS(mimo_comm_barrier(comm), MIMO_ERR_COMM, ": remote process exited");
        lost = false;
        expect_ended(comm, &tile, MIMO_ERR_COMM);
        EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    }
    end_behind_the_others(comm, &tile, "the others met an error");
}

/* Host values that no rank sent are taken for none. */
MPI_TEST(deadline, values_that_no_rank_sent)
{
    test_tile tile = test_tile_new("t", MIMO_F32, COUNT, 1, 1);
    mimo_comm *comm = warm_comm(&tile, MIMO_NCCL_DEFAULT, DEADLINE);
    if (mpi_test_rank() != LATE) {
        cut_short = true;
        MPI_EXPECT_STATUS(mimo_comm_barrier(comm), MIMO_ERR_TIMEOUT);
        expect_ended(comm, &tile, MIMO_ERR_TIMEOUT);
    }
    end_behind_the_others(comm, &tile, "the others gave up");
}

/* One rank's call fails, and the others wait for that rank. No rank waits in destroy. */
MPI_TEST(deadline, failed_on_one_rank)
{
    test_tile tile = test_tile_new("t", MIMO_F32, COUNT, 1, 1);
    mimo_comm *comm = warm_comm(&tile, MIMO_NCCL_DEFAULT, DEADLINE);
    fails = mpi_test_rank() == LATE;
    if (fails) {
        MPI_FAILS(add_up(comm, &tile), MIMO_ERR_COMM, "ncclAllReduce: ");
    } else {
        MPI_EXPECT_OK(add_up(comm, &tile));
        MPI_EXPECT_STATUS(mimo_comm_synchronize(comm, test_stream()), MIMO_ERR_TIMEOUT);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    mimo_comm_destroy(comm);
    expect_life(&tile);
}

/* The first buffer splits the communicator by host, which may take NCCL longer than a deadline. */
static mimo_comm *warm_comm_of_buffers(const test_tile *tile)
{
    mimo_buffer *first = NULL;
    mimo_comm *comm = warm_comm(tile, 0, 0);
    MPI_EXPECT_OK(mimo_comm_set_deadline(comm, 0));
    MPI_EXPECT_OK(mimo_buffer_create(&first, comm, 4096));
    mimo_buffer_destroy(first);
    MPI_EXPECT_OK(mimo_comm_set_deadline(comm, DEADLINE));
    MPI_Barrier(MPI_COMM_WORLD);
    return comm;
}

/* With `call` NULL one rank is late for the creation of a buffer itself, otherwise for that NCCL
 * call inside it. The late rank's error depends on how far the others had come. */
static void miss_a_buffer(const char *call, bool behind)
{
    test_tile tile = test_tile_new("t", MIMO_F32, COUNT, 1, 1);
    mimo_comm *comm = warm_comm_of_buffers(&tile);
    mimo_buffer *buffer = NULL;
    bool late = mpi_test_rank() == LATE;
    if (late && !call)
        MPI_Barrier(MPI_COMM_WORLD);
    late_for = late ? call : NULL;
    behind_a_window = behind;
    mimo_status status = mimo_buffer_create(&buffer, comm, 4096);
    if (late) {
        MPI_EXPECT(status != MIMO_OK, "a buffer that the others gave up");
        MPI_EXPECT(!late_for, "nothing called %s", call);
    } else {
        MPI_EXPECT(status == MIMO_ERR_TIMEOUT, "late for %s: %s (%s)", call ? call : "all of it",
                   mimo_status_name(status), mimo_last_error());
        MPI_EXPECT_SENTENCE(call ? ": given up after " : "buffer create: given up after ");
        expect_ended(comm, &tile, MIMO_ERR_TIMEOUT);
    }
    if (!late || late_for)
        MPI_Barrier(MPI_COMM_WORLD);
    late_for = NULL;
    MPI_EXPECT(!buffer, "a buffer in spite of the error");
    mimo_comm_destroy(comm);
    expect_life(&tile);
    test_tile_free(&tile);
}

MPI_TEST(deadline, late_for_a_buffer)
{
    miss_a_buffer(NULL, false);
}

/* The others have windows open when they give up the agreement that follows. */
MPI_TEST(deadline, late_behind_a_window)
{
    test_needs_reach(2);
    miss_a_buffer("ncclAllReduce", true);
}

MPI_TEST(deadline, late_inside_a_buffer)
{
    test_needs_reach(2); /* otherwise NCCL registers nothing */
    miss_a_buffer("ncclCommWindowRegister", false);
    mimo_nccl_versions versions = mimo_nccl_read_versions();
    if (mimo_nccl_peer_way(&versions) == MIMO_PEERS_BY_DEVICE) /* NCCL 2.28 */
        miss_a_buffer("ncclDevCommCreate", false);
}

/* ------------------------------- messages without a receive ------------------------------- */

enum { WIDTH = 64 };

/* Every rank has a sample of its own, and takes a part of every sample. The batch is given, so the
 * ranks agree on nothing before rows move. */
static mimo_bridge *told_bridge(mimo_comm *comm)
{
    static const mimo_partition_rule zigzag = MIMO_PARTITION_RULE_INIT;
    mimo_bridge_desc desc = mpi_test_bridge_desc(mpi_test_grid_of("dp=%d", mpi_test_size()),
                                                 mpi_test_grid_of("cp=%d", mpi_test_size()));
    mimo_batch_desc batch = MIMO_BATCH_DESC_INIT;
    mimo_bridge *bridge = NULL;
    desc.partition = &zigzag;
    desc.executor = executor_of(EXECUTOR_ROUTED);
    batch.batch = mpi_test_size();
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, comm, &desc));
    MPI_EXPECT_OK(mimo_bridge_update(bridge, &batch, 1));
    return bridge;
}

/* The last rank's destination is in no buffer. So that rank sends and receives messages, while the
 * others write and await pushes. Its first messages to them wait inside NCCL, for connections. */
MPI_TEST(deadline, one_destination_in_no_buffer)
{
    int size = mpi_test_size();
    mimo_buffer *buffer = NULL;
    test_needs_reach(size);                 /* ranks of other hosts take messages all the same */
    setenv("MIMO_DEADLINE_MS", "60000", 1); /* the creation reads it, later calls do not */
    mimo_comm *comm = fresh_comm(MIMO_NCCL_DEFAULT);
    unsetenv("MIMO_DEADLINE_MS");
    test_tile tile = test_tile_new("t", MIMO_F32, COUNT, 1, 1);
    test_tile from = test_tile_new("sbh", MIMO_F32, 4 * size, 1, WIDTH);
    test_tile to = test_tile_new("sbh", MIMO_F32, 4, size, WIDTH);
    mimo_bridge *bridge = told_bridge(comm);
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, comm, to.room.bytes));
    if (mpi_test_rank() < size - 1 && buffer)
        to.view.data = mimo_buffer_data(buffer);
    MPI_EXPECT_OK(mimo_comm_set_deadline(comm, DEADLINE));
    MPI_Barrier(MPI_COMM_WORLD);
    mimo_status status = mimo_bridge_forward(bridge, &to.view, &from.view, 1, test_stream());
    if (status == MIMO_OK)
        status = mimo_comm_synchronize(comm, test_stream());
    MPI_EXPECT(status == MIMO_ERR_TIMEOUT, "%s: %s", mimo_status_name(status), mimo_last_error());
    MPI_EXPECT_SENTENCE(": given up after ");
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    MPI_Barrier(MPI_COMM_WORLD);
    mimo_bridge_destroy(bridge);
    mimo_buffer_destroy(buffer);
    mimo_comm_destroy(comm);
    expect_life(&tile);
}
