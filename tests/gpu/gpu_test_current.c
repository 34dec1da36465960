/* Calls on a communicator while another device is current: they work, and that device stays
 * current. */
#include "bridge_bed.h"
#include "gpu_calls.h"

enum { NOWHERE = -1 };

static int own = NOWHERE, other = NOWHERE; /* this rank's device, and one that is not */

static int current(void)
{
    int device = NOWHERE;
    EXPECT_CUDA(cudaGetDevice(&device));
    return device;
}

/* The test's own device is the one of its rank (test_memory_cuda.c). Both have contexts. */
static void choose_devices(void)
{
    int count = 0;
    own = current();
    EXPECT_CUDA(cudaGetDeviceCount(&count));
    other = (own + 1) % count;
    if (other == own)
        mpi_test_skip("two GPUs on each host");
    EXPECT_CUDA(cudaSetDevice(other));
    EXPECT_CUDA(cudaFree(NULL));
    EXPECT_CUDA(cudaSetDevice(own));
}

/* A call that gives `wanted` with the other device current. */
#define EXPECT_AWAY(call, wanted)                                                             \
    do {                                                                                      \
        EXPECT_CUDA(cudaSetDevice(other));                                                    \
        MPI_EXPECT_STATUS(call, wanted);                                                      \
        MPI_EXPECT(current() == other, "%s left device %d current, not %d", #call, current(), \
                   other);                                                                    \
        EXPECT_CUDA(cudaSetDevice(own));                                                      \
    } while (0)

static void destroy_away(mimo_comm *comm)
{
    EXPECT_CUDA(cudaSetDevice(other));
    mimo_comm_destroy(comm);
    MPI_EXPECT(current() == other, "destroy left device %d current", current());
    EXPECT_CUDA(cudaSetDevice(own));
}

MPI_TEST(current, of_communicators)
{
    mimo_comm *comm = NULL, *half = NULL;
    mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    int device = NOWHERE, all[64], rank = mpi_test_rank();
    choose_devices();
    desc.device = 99;
    EXPECT_AWAY(gpu_comm_create(&comm, &desc), MIMO_ERR_ARGUMENT);
    desc.device = own;
    EXPECT_AWAY(gpu_comm_create(&comm, &desc), MIMO_OK);
    if (!comm)
        return;
    EXPECT_AWAY(mimo_nccl_device(&device, comm), MIMO_OK);
    MPI_EXPECT(device == own, "the communicator's device is %d, not %d", device, own);
    MPI_EXPECT_STATUS(mimo_nccl_device(NULL, comm), MIMO_ERR_ARGUMENT);
    EXPECT_AWAY(mimo_comm_barrier(comm), MIMO_OK);
    EXPECT_AWAY(mimo_comm_host_allgather(comm, all, &rank, sizeof rank), MIMO_OK);
    EXPECT_AWAY(mimo_comm_split(&half, comm, rank % 2, 0), MIMO_OK);
    test_tile one = test_tile_new("t", MIMO_BF16, 1000, 1, 1);
    test_push(&one.room);
    EXPECT_AWAY(mimo_comm_allreduce(comm, one.view.data, 1000, MIMO_BF16, MIMO_SUM, test_stream()),
                MIMO_OK);
    EXPECT_AWAY(mimo_comm_broadcast(comm, one.view.data, 2000, 0, test_stream()), MIMO_OK);
    int64_t part = 1000 / mpi_test_size();
    char *place = one.view.data, *block = place + rank * part * 2;
    EXPECT_AWAY(
        mimo_comm_reduce_scatter(comm, block, place, part, MIMO_BF16, MIMO_SUM, test_stream()),
        MIMO_OK);
    EXPECT_AWAY(mimo_comm_alltoall(comm, place, place + 1000, part, test_stream()), MIMO_OK);
    EXPECT_AWAY(mimo_comm_synchronize(comm, test_stream()), MIMO_OK);
    EXPECT_AWAY(mimo_comm_broadcast(comm, NULL, 2000, 0, test_stream()), MIMO_ERR_ARGUMENT);
    destroy_away(half);
    destroy_away(comm);
}

/* Forward and backward by this executor, its staging taken and its bridge made with the other
 * device current. */
static void move_away(executor_id executor)
{
    char src[32], dst[32];
    bed_case c = {.src = {.grid = src}, .dst = {.grid = dst}};
    snprintf(src, sizeof src, "tp=1,dp=%d", mpi_test_size());
    snprintf(dst, sizeof dst, "tp=1,cp=2,dp=%d", mpi_test_size() / 2);
    c.src_letters = "sbh";
    c.dst_letters = "bsh";
    c.executor = executor;
    c.buffer = executor == EXECUTOR_ZERO_COPY;
    c.dtype = MIMO_F32;
    c.batch = 2 * mpi_test_size();
    c.seq = 64;
    c.hidden = 256;
    (void)mpi_test_comm(); /* with its own device current: test tiles take it */
    EXPECT_CUDA(cudaSetDevice(other));
    bridge_bed bed = bed_create(&c);
    MPI_EXPECT(current() == other, "creation left device %d current", current());
    EXPECT_CUDA(cudaSetDevice(own));
    for (int backward = 0; bed.bridge && backward < 2; backward++) {
        test_tile from = bed_tile_new(&bed, backward ? MIMO_DST : MIMO_SRC);
        test_tile to = bed_target_new(&bed, backward ? MIMO_SRC : MIMO_DST);
        bed_fill(&bed, &from, backward, 7);
        EXPECT_AWAY(bed_call(&bed, backward, &to, &from), MIMO_OK);
        bed_check_target(&bed, &to, backward, 7);
        test_tile_free(&from);
        test_tile_free(&to);
    }
    if (bed.bridge)
        EXPECT_AWAY(mimo_bridge_self_test(bed.bridge, 3), MIMO_OK);
    EXPECT_CUDA(cudaSetDevice(other));
    bed_destroy(&bed);
    MPI_EXPECT(current() == other, "destroy left device %d current", current());
    EXPECT_CUDA(cudaSetDevice(own));
}

MPI_TEST(current, of_bridges)
{
    choose_devices();
    move_away(EXECUTOR_COLLECTIVE);
    move_away(EXECUTOR_P2P);
    move_away(EXECUTOR_STAGED);
    move_away(EXECUTOR_ZERO_COPY);
}

/* Which ranks a buffer reaches depends on the hosts, not on the current device: as many as one that
 * was made with this rank's own device current. */
MPI_TEST(current, of_buffers)
{
    mimo_buffer *buffer = NULL, *usual = NULL;
    choose_devices();
    mimo_comm *comm = mpi_test_comm();
    MPI_EXPECT_OK(mimo_buffer_create(&usual, comm, 1 << 20));
    EXPECT_AWAY(mimo_buffer_create(&buffer, comm, 1 << 20), MIMO_OK);
    if (usual && buffer)
        MPI_EXPECT(mimo_buffer_reach(buffer) == mimo_buffer_reach(usual), "reach %d, not %d",
                   mimo_buffer_reach(buffer), mimo_buffer_reach(usual));
    EXPECT_CUDA(cudaSetDevice(other));
    mimo_buffer_destroy(buffer);
    MPI_EXPECT(current() == other, "destroy left device %d current", current());
    EXPECT_CUDA(cudaSetDevice(own));
    mimo_buffer_destroy(usual);
}
