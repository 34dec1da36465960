/*
 * What is ruled otherwise where calls only enqueue their work: here by the host's functions in a
 * table that says so, on which ranks do not agree before each call.
 */
#include <stdlib.h>
#include <string.h>

#include "bridge/bridge_types.h"
#include "mpi_test.h"

static mimo_grid *grid_of(const char *spec, int64_t offset)
{
    mimo_grid *grid = NULL;
    MPI_EXPECT_OK(mimo_grid_parse(&grid, spec, offset));
    return grid;
}

static mimo_device enqueuing(void)
{
    mimo_device device = mimo_device_host;
    device.enqueues = true;
    return device;
}

/* ----------------------------------------- gradients ---------------------------------------- */

static mimo_status finalize(mimo_gradient *gradient, float *encoder, int64_t count)
{
    bool trains = mpi_test_rank() < 2;
    float llm = 1;
    const mimo_gradient_span spans[] = {
        {"encoder", encoder, trains ? count : 0, MIMO_F32, MIMO_SRC, "", ""},
        {"llm", &llm, trains ? 0 : 1, MIMO_F32, MIMO_DST, "", ""},
    };
    mimo_gradient_reset(gradient);
    MPI_EXPECT_OK(mimo_gradient_add(gradient, 1, 1));
    MPI_EXPECT_OK(mimo_gradient_count(gradient, NULL, NULL));
    mimo_status status = mimo_gradient_finalize(gradient, spans, 2, NULL);
    MPI_EXPECT(status != MIMO_OK || trains || llm == 1, "a sum over 2 ranks of 2 tokens is %g",
               (double)llm);
    return status;
}

/* An encoder of which more is trained from the third step on: the LLM's ranks see no change, and
 * none may wait for them. Then a mistake of one rank, which is its own. */
MPI_TEST(enqueuing, counts_that_change)
{
    enum { WRONG = 1, MOST = 8 };
    mimo_device device = enqueuing();
    mimo_comm *comm = mpi_test_comm_new();
    mimo_grid *src = grid_of("dp=2", 0), *dst = grid_of("dp=2", 2);
    mimo_gradient *gradient = NULL;
    comm->device = &device;
    MPI_EXPECT_OK(mimo_comm_set_deadline(comm, 20000));
    MPI_EXPECT_OK(mimo_gradient_create(&gradient, comm, src, dst));
    for (int step = 0; step < 4; step++) {
        float encoder[MOST];
        int64_t count = step < 2 ? MOST / 2 : MOST;
        for (int i = 0; i < MOST; i++)
            encoder[i] = (float)i;
        MPI_EXPECT_OK(finalize(gradient, encoder, count));
        for (int64_t i = 0; mpi_test_rank() < 2 && i < count; i++)
            MPI_EXPECT(encoder[i] == (float)i, "step %d: element %d is %g", step, (int)i,
                       (double)encoder[i]);
    }
    bool wrong = mpi_test_rank() == WRONG;
    float none = 0;
    MPI_EXPECT_STATUS(finalize(gradient, wrong ? NULL : &none, wrong ? 1 : 0),
                      wrong ? MIMO_ERR_ARGUMENT : MIMO_OK);
    MPI_EXPECT_OK(mimo_comm_barrier(comm));
    mimo_gradient_destroy(gradient);
    mimo_grid_destroy(dst);
    mimo_grid_destroy(src);
    mimo_comm_destroy(comm);
}

/* ------------------------------------------ bridges ----------------------------------------- */

/* The rows of two flat tiles are cut as they are. Ranks that hold one side alone can't tell that
 * from an even cut of another batch: they agree all the same. */
MPI_TEST(enqueuing, flat_rows_of_one_side)
{
    enum { ROWS = 10, FIRST = 6 };
    mimo_device device = enqueuing();
    mimo_comm *comm = mpi_test_comm();
    mimo_grid *src = grid_of("dp=2", 0), *dst = grid_of("dp=1", 2);
    mimo_bridge *bridge = NULL;
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    int rank = mpi_test_rank();
    int64_t rows = rank == 0 ? FIRST : rank == 1 ? ROWS - FIRST : 0;
    float from[ROWS], to[ROWS];
    for (int i = 0; i < ROWS; i++)
        from[i] = (float)(rank * FIRST + i);
    desc.src = src;
    desc.dst = dst;
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, comm, &desc));
    bridge->comm->device = &device;
    const mimo_tensor source = mimo_tensor_2d(from, MIMO_F32, "th", rows, 1);
    const mimo_tensor target = mimo_tensor_2d(to, MIMO_F32, "th", rank == 2 ? ROWS : 0, 1);
    MPI_EXPECT_OK(mimo_bridge_forward(bridge, &target, &source, 1, NULL));
    for (int i = 0; rank == 2 && i < ROWS; i++)
        MPI_EXPECT(to[i] == (float)i, "row %d is %g", i, (double)to[i]);
    bridge->comm->device = &mimo_device_host;
    mimo_bridge_destroy(bridge);
    mimo_grid_destroy(dst);
    mimo_grid_destroy(src);
}

/* Room as a device gives it: of any content, and of another on every rank. */
static mimo_status dirty_room(void **out, int64_t bytes)
{
    mimo_status status = mimo_device_host.reserve(out, bytes);
    if (status == MIMO_OK)
        memset(*out, 1 + mpi_test_rank(), (size_t)bytes);
    return status;
}

/* What is moved to find the fastest executor is alike where sources are copies. */
MPI_TEST(enqueuing, replicas_in_a_trial)
{
    mimo_device device = mimo_device_host;
    mimo_comm *comm = mpi_test_comm_new();
    mimo_grid *src = grid_of("tp=2,dp=2", 0), *dst = grid_of("tp=1,cp=2,dp=2", 0);
    mimo_bridge *bridge = NULL;
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    mimo_bridge_sizes sizes = MIMO_BRIDGE_SIZES_INIT;
    device.reserve = dirty_room;
    comm->device = &device;
    desc.src = src;
    desc.dst = dst;
    sizes.batch = 4;
    sizes.seq = 8;
    sizes.hidden = 16;
    setenv("MIMO_CHECK", "replicas", 1);
    MPI_EXPECT_OK(mimo_bridge_create_fastest(&bridge, comm, &desc, &sizes));
    mimo_bridge_destroy(bridge);
    mimo_grid_destroy(dst);
    mimo_grid_destroy(src);
    mimo_comm_destroy(comm);
}
