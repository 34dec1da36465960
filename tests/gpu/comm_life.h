/* Communicators of all ranks whose sum of a tile of floats says whether they work. */
#ifndef MIMO_TESTS_COMM_LIFE_H
#define MIMO_TESTS_COMM_LIFE_H

#include <string.h>

#include "gpu_calls.h"
#include "test_memory.h"

enum { LATE = 1, COUNT = 1000 };

static inline mimo_comm *fresh_comm(int blocking)
{
    mimo_comm *comm = NULL;
    mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    desc.blocking = blocking;
    MPI_EXPECT_OK(gpu_comm_create(&comm, &desc));
    if (!comm)
        MPI_Abort(MPI_COMM_WORLD, 1);
    return comm;
}

static inline mimo_status add_up(mimo_comm *comm, const test_tile *tile)
{
    return mimo_comm_allreduce(comm, tile->view.data, COUNT, MIMO_F32, MIMO_SUM, test_stream());
}

/* The first call makes connections, inside NCCL and without a deadline; later calls only enqueue.
 * Then the deadline is set; 0: none. */
static inline mimo_comm *warm_comm(const test_tile *tile, int blocking, int64_t deadline_ms)
{
    mimo_comm *comm = fresh_comm(blocking);
    MPI_EXPECT_OK(add_up(comm, tile));
    MPI_EXPECT_OK(mimo_comm_synchronize(comm, test_stream()));
    MPI_EXPECT_OK(mimo_comm_barrier(comm));
    if (deadline_ms > 0)
        MPI_EXPECT_OK(mimo_comm_set_deadline(comm, deadline_ms));
    MPI_Barrier(MPI_COMM_WORLD);
    return comm;
}

/* The stream completes, the device works, and so does a new communicator. */
static inline void expect_life(const test_tile *tile)
{
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    MPI_Barrier(MPI_COMM_WORLD);
    mimo_comm *comm = fresh_comm(MIMO_NCCL_DEFAULT);
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

#endif
