/* A rank that is missing while the others wait on the host, or inside their GPUs. */
#include <string.h>

#include <cuda_runtime_api.h>
#include <mimo/nccl.h>

#include "mpi_test.h"
#include "test_memory.h"

enum { LATE = 1, DEADLINE = 500, COUNT = 1000 };

#define EXPECT_CUDA(call)                                                                       \
    do {                                                                                        \
        cudaError_t cuda_got = (call);                                                          \
        MPI_EXPECT(cuda_got == cudaSuccess, "%s gave %s", #call, cudaGetErrorString(cuda_got)); \
    } while (0)

static mimo_comm *fresh_comm(void)
{
    mimo_comm *comm = NULL;
    MPI_EXPECT_OK(test_comm_create(&comm));
    if (!comm)
        MPI_Abort(MPI_COMM_WORLD, 1);
    return comm;
}

static mimo_status add_up(mimo_comm *comm, const test_tile *tile)
{
    return mimo_comm_allreduce(comm, tile->view.data, COUNT, MIMO_F32, MIMO_SUM, test_stream());
}

/* Connections are made by the first call, inside NCCL and without a deadline. */
static mimo_comm *warm_comm(const test_tile *tile)
{
    mimo_comm *comm = fresh_comm();
    MPI_EXPECT_OK(add_up(comm, tile));
    MPI_EXPECT_OK(mimo_comm_synchronize(comm, test_stream()));
    MPI_EXPECT_OK(mimo_comm_barrier(comm));
    MPI_EXPECT_OK(mimo_comm_set_deadline(comm, DEADLINE));
    MPI_Barrier(MPI_COMM_WORLD);
    return comm;
}

/* The stream runs to its end, the device works, and so does a new communicator. */
static void expect_life(const test_tile *tile)
{
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    mimo_comm *comm = fresh_comm();
    memset(tile->room.host, 0, COUNT * sizeof(float));
    ((float *)tile->room.host)[7] = 1;
    test_push(&tile->room);
    MPI_EXPECT_OK(add_up(comm, tile));
    MPI_EXPECT_OK(mimo_comm_synchronize(comm, test_stream()));
    test_pull(&tile->room);
    float sum = ((const float *)tile->room.host)[7];
    MPI_EXPECT(sum == (float)mpi_test_size(), "the sum is %g", (double)sum);
    mimo_comm_destroy(comm);
}

static void expect_ended(mimo_comm *comm, const test_tile *tile, mimo_status status)
{
    MPI_EXPECT_STATUS(mimo_comm_state(comm), status);
    MPI_EXPECT_STATUS(mimo_comm_barrier(comm), status);
    MPI_EXPECT_STATUS(add_up(comm, tile), status);
    MPI_EXPECT_STATUS(mimo_comm_synchronize(comm, test_stream()), status);
}

/* Host words: the barrier's vote. */
MPI_TEST(deadline, late_for_a_barrier)
{
    test_tile tile = test_tile_new("t", MIMO_F32, COUNT, 1, 1);
    mimo_comm *comm = warm_comm(&tile);
    if (mpi_test_rank() != LATE) {
        MPI_EXPECT_STATUS(mimo_comm_barrier(comm), MIMO_ERR_TIMEOUT);
        MPI_EXPECT_SENTENCE("barrier: given up after ");
        expect_ended(comm, &tile, MIMO_ERR_TIMEOUT);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (mpi_test_rank() == LATE) /* nobody tells it: it gives up, or finds the others' words */
        (void)mimo_comm_barrier(comm);
    mimo_comm_destroy(comm);
    expect_life(&tile);
    test_tile_free(&tile);
}

/* A kernel waits inside the device, and the host for its stream. */
MPI_TEST(deadline, late_for_data)
{
    test_tile tile = test_tile_new("t", MIMO_F32, COUNT, 1, 1);
    mimo_comm *comm = warm_comm(&tile);
    if (mpi_test_rank() != LATE) {
        MPI_EXPECT_OK(add_up(comm, &tile));
        MPI_EXPECT_STATUS(mimo_comm_synchronize(comm, test_stream()), MIMO_ERR_TIMEOUT);
        MPI_EXPECT_SENTENCE("the work on a stream: given up after ");
        expect_ended(comm, &tile, MIMO_ERR_TIMEOUT);
        EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_EXPECT_OK(mimo_comm_abort(comm, "the others gave up"));
    mimo_comm_destroy(comm);
    expect_life(&tile);
    test_tile_free(&tile);
}

/* Abort ends what waits in the device, without a deadline. */
MPI_TEST(deadline, abort_of_data)
{
    test_tile tile = test_tile_new("t", MIMO_F32, COUNT, 1, 1);
    mimo_comm *comm = warm_comm(&tile);
    MPI_EXPECT_OK(mimo_comm_set_deadline(comm, 0));
    if (mpi_test_rank() != LATE)
        MPI_EXPECT_OK(add_up(comm, &tile));
    MPI_EXPECT_OK(mimo_comm_abort(comm, "enough"));
    MPI_EXPECT_STATUS(mimo_comm_state(comm), MIMO_ERR_ABORTED);
    MPI_EXPECT_SENTENCE("aborted here: enough");
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    expect_ended(comm, &tile, MIMO_ERR_ABORTED);
    mimo_comm_destroy(comm);
    MPI_Barrier(MPI_COMM_WORLD);
    expect_life(&tile);
    test_tile_free(&tile);
}
