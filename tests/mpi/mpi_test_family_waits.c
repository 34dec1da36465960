/* Waits on one communicator, while operations on others of its family are in flight. */
#include <stdio.h>

#include "mpi_test.h"

enum { ROWS = 3, H = 4 };

typedef struct hop {
    mimo_comm *world, *pair;
    mimo_bridge *hop, *whole; /* from the first rank of a pair to the second; of all ranks */
    float sent[ROWS][H], got[ROWS][H];
} hop;

static bool is_first(const hop *it)
{
    return mimo_comm_rank(it->pair) == 0;
}

static mimo_bridge *bridge_of(mimo_comm *comm, const mimo_grid *src, const mimo_grid *dst)
{
    mimo_bridge *bridge = NULL;
    mimo_bridge_desc desc = mpi_test_bridge_desc(src, dst);
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, comm, &desc));
    return bridge;
}

static void begin(hop *it)
{
    enum { LONG = 20000 }; /* milliseconds: a hang becomes a timeout */
    mimo_grid *all = mpi_test_grid_of("dp=%d", mpi_test_size());
    it->world = mpi_test_comm_new();
    MPI_EXPECT_OK(mimo_comm_set_deadline(it->world, LONG));
    MPI_EXPECT_OK(mimo_comm_split(&it->pair, it->world, mpi_test_rank() / 2, mpi_test_rank()));
    it->hop = bridge_of(it->pair, mpi_test_grid("dp=1", 0), mpi_test_grid("dp=1", 1));
    it->whole = bridge_of(it->world, all, all);
    for (int i = 0; i < ROWS * H; i++)
        it->sent[i / H][i % H] = (float)(100 * (mpi_test_rank() / 2) + i + 1);
}

static void end(hop *it)
{
    mimo_bridge_destroy(it->hop);
    mimo_bridge_destroy(it->whole);
    mimo_comm_destroy(it->pair);
    mimo_comm_destroy(it->world);
}

static mimo_op *start_hop(hop *it)
{
    mimo_op *op = NULL;
    bool first = is_first(it);
    mimo_tensor from = mimo_tensor_3d(it->sent, MIMO_F32, "sbh", 1, first ? ROWS : 0, H);
    mimo_tensor to = mimo_tensor_3d(it->got, MIMO_F32, "sbh", 1, first ? 0 : ROWS, H);
    MPI_EXPECT_OK(mimo_bridge_forward_start(&op, it->hop, &to, &from, 1, NULL));
    return op;
}

static void move_whole(hop *it)
{
    float sent = (float)mpi_test_rank(), got = -1;
    mimo_tensor from = mimo_tensor_3d(&sent, MIMO_F32, "sbh", 1, 1, 1);
    mimo_tensor to = mimo_tensor_3d(&got, MIMO_F32, "sbh", 1, 1, 1);
    MPI_EXPECT_OK(mimo_bridge_forward(it->whole, &to, &from, 1, NULL));
    MPI_EXPECT(got == sent, "%g came back as %g", sent, got);
}

/* The first rank of a pair begins a hop alone, so that its rows can't have left. Then it waits in a
 * call of all ranks, which the second one makes only once it has the rows. */
MPI_TEST(family_waits, move_what_other_communicators_began)
{
    hop it = {.world = NULL};
    begin(&it);
    mimo_op *op = is_first(&it) ? start_hop(&it) : NULL;
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_first(&it)) {
        move_whole(&it);
        MPI_EXPECT_OK(mimo_op_wait(&op));
    } else {
        op = start_hop(&it);
        MPI_EXPECT_OK(mimo_op_wait(&op));
        move_whole(&it);
        MPI_EXPECT(memcmp(it.got, it.sent, sizeof it.got) == 0, "other rows came");
    }
    end(&it);
}
