/*
 * Rules for backends whose calls only enqueue work: ranks do not agree before each call. Here the
 * host's functions stand in a table that says so.
 */
#include <stdlib.h>
#include <string.h>

#include "bridge/bridge_types.h"
#include "mpi_test.h"

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
    const mimo_gradient_bucket buckets[] = {
        {sizeof(mimo_gradient_bucket), "encoder", encoder, trains ? count : 0, MIMO_F32, MIMO_SRC,
         "", "", NULL},
        {sizeof(mimo_gradient_bucket), "llm", &llm, trains ? 0 : 1, MIMO_F32, MIMO_DST, "", "",
         NULL},
    };
    mimo_gradient_reset(gradient);
    MPI_EXPECT_OK(mimo_gradient_add(gradient, !trains, !trains));
    MPI_EXPECT_OK(mimo_gradient_count(NULL, NULL, gradient));
    mimo_status status = mimo_gradient_finalize(gradient, buckets, 2, NULL);
    MPI_EXPECT(status != MIMO_OK || trains || llm == 1, "a sum over 2 ranks of 2 tokens is %g",
               (double)llm);
    return status;
}

/* More of an encoder is trained from the third step on. The LLM's ranks see no change, and no rank
 * may wait for them. Then one rank makes a mistake, which stays its own error. */
MPI_TEST(enqueuing, counts_that_change)
{
    enum { WRONG = 1, MOST = 8 };
    mimo_device device = enqueuing();
    mimo_comm *comm = mpi_test_comm_new();
    mimo_grid *src = mpi_test_grid("dp=2", 0), *dst = mpi_test_grid("dp=2", 2);
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
    mimo_comm_destroy(comm);
}

/* ------------------------------------------ bridges ----------------------------------------- */

/* The rows of two flat tiles may have any batch split. Ranks that hold one side alone can't give
 * that from an even split of another batch, so all ranks must agree. */
MPI_TEST(enqueuing, flat_rows_of_one_side)
{
    enum { ROWS = 10, FIRST = 6 };
    mimo_device device = enqueuing();
    mimo_comm *comm = mpi_test_comm();
    mimo_grid *src = mpi_test_grid("dp=2", 0), *dst = mpi_test_grid("dp=1", 2);
    mimo_bridge *bridge = NULL;
    int rank = mpi_test_rank();
    int64_t rows = rank == 0 ? FIRST : rank == 1 ? ROWS - FIRST : 0;
    float from[ROWS], to[ROWS];
    for (int i = 0; i < ROWS; i++)
        from[i] = (float)(rank * FIRST + i);
    mimo_bridge_desc desc = mpi_test_bridge_desc(src, dst);
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, comm, &desc));
    bridge->mover.comm->device = &device;
    const mimo_tensor source = mimo_tensor_2d(from, MIMO_F32, "th", rows, 1);
    const mimo_tensor target = mimo_tensor_2d(to, MIMO_F32, "th", rank == 2 ? ROWS : 0, 1);
    MPI_EXPECT_OK(mimo_bridge_forward(bridge, &target, &source, 1, NULL));
    for (int i = 0; rank == 2 && i < ROWS; i++)
        MPI_EXPECT(to[i] == (float)i, "row %d is %g", i, (double)to[i]);
    bridge->mover.comm->device = &mimo_device_host;
    mimo_bridge_destroy(bridge);
}

/* Agreements of this rank. */
static int votes;

int MPI_Iallreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request *request)
{
    votes++;
    return PMPI_Iallreduce(from, to, count, type, op, comm, request);
}

static bool always_records(mimo_stream stream)
{
    (void)stream;
    return true;
}

/* Samples of one row, numbered over the batch. Two src ranks give what two dst ranks take. */
static mimo_status forward_samples(mimo_bridge *bridge, const int64_t held[4], float *to)
{
    enum { MOST = 10 };
    int rank = mpi_test_rank();
    bool gives = rank < 2;
    float from[MOST];
    for (int64_t i = 0; i < MOST; i++)
        from[i] = (float)((rank == 1 ? held[0] : 0) + i);
    memset(to, 0xff, MOST * sizeof *to);
    const mimo_tensor source = mimo_tensor_3d(from, MIMO_F32, "sbh", 1, gives ? held[rank] : 0, 1);
    const mimo_tensor target = mimo_tensor_3d(to, MIMO_F32, "sbh", 1, gives ? 0 : held[rank], 1);
    return mimo_bridge_forward(bridge, &target, &source, 1, NULL);
}

static void expect_samples(mimo_bridge *bridge, const int64_t held[4])
{
    float to[10];
    int rank = mpi_test_rank();
    int64_t first = rank == 3 ? held[2] : 0;
    MPI_EXPECT_OK(forward_samples(bridge, held, to));
    for (int64_t i = 0; rank > 1 && i < held[rank]; i++)
        MPI_EXPECT(to[i] == (float)(first + i), "sample %d of [%d,%d] from [%d,%d] is %g", (int)i,
                   (int)held[2], (int)held[3], (int)held[0], (int)held[1], (double)to[i]);
}

/* [7,3] is no even batch split, though each rank takes its number for an even one. [5,3] after
 * [5,5] is new to one rank only. So the ranks agree in every call, unless the batch is given. */
MPI_TEST(enqueuing, cuts_that_nobody_told)
{
    static const int64_t cuts[][4] = {{5, 5, 5, 5}, {7, 3, 5, 5}, {5, 5, 5, 5},
                                      {5, 3, 4, 4}, {3, 7, 9, 1}, {5, 5, 5, 5}};
    float unused[10];
    mimo_device device = enqueuing();
    mimo_comm *comm = mpi_test_comm_new();
    mimo_grid *src = mpi_test_grid("dp=2", 0), *dst = mpi_test_grid("dp=2", 2);
    mimo_bridge *bridge = NULL;
    mimo_bridge_desc desc = mpi_test_bridge_desc(src, dst);
    MPI_EXPECT_OK(mimo_comm_set_deadline(comm, 20000));
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, comm, &desc));
    bridge->mover.comm->device = &device;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        expect_samples(bridge, cuts[i]);
    device.records = always_records;
    MPI_FAILS(forward_samples(bridge, cuts[0], unused), MIMO_ERR_STATE,
              "while a graph is captured: give the batch by mimo_bridge_update");
    mimo_batch_desc batch = MIMO_BATCH_DESC_INIT;
    batch.batch = 10;
    MPI_EXPECT_OK(mimo_bridge_update(bridge, &batch, 1));
    votes = 0;
    expect_samples(bridge, cuts[0]);
    MPI_EXPECT(votes == 0, "a call whose batch is given votes %d times", votes);
    bridge->mover.comm->device = &mimo_device_host;
    mimo_bridge_destroy(bridge);
    mimo_comm_destroy(comm);
}

static int looks;

static mimo_status finished_at_every_third_look(bool *out, mimo_stream stream)
{
    (void)stream;
    *out = ++looks % 3 == 0;
    return MIMO_OK;
}

/* The samples check reads rows when the stream has written them. While it waits, other operations
 * move on, and not the one that it belongs to. */
MPI_TEST(enqueuing, checks_wait_for_their_stream)
{
    static const int64_t held[] = {5, 5, 5, 5};
    mimo_device device = enqueuing();
    mimo_comm *comm = mpi_test_comm_new();
    mimo_grid *src = mpi_test_grid("dp=2", 0), *dst = mpi_test_grid("dp=2", 2);
    mimo_bridge *bridge = NULL;
    device.finished = finished_at_every_third_look;
    mimo_bridge_desc desc = mpi_test_bridge_desc(src, dst);
    setenv("MIMO_CHECK", "samples", 1);
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, comm, &desc));
    unsetenv("MIMO_CHECK");
    bridge->mover.comm->device = &device;
    looks = 0;
    for (int i = 0; i < 3; i++)
        expect_samples(bridge, held);
    MPI_EXPECT(looks >= 9 || mpi_test_rank() < 2, "the checks of 3 calls looked %d times", looks);
    bridge->mover.comm->device = &mimo_device_host;
    mimo_bridge_destroy(bridge);
    mimo_comm_destroy(comm);
}

/* Flat rows, numbered over the ranks of a side. Two src ranks give what two dst ranks take. */
static void expect_rows(mimo_bridge *bridge, const int64_t held[4])
{
    enum { MOST = 10 };
    int rank = mpi_test_rank();
    float from[MOST], to[MOST];
    int64_t first = rank == 1 ? held[0] : (rank == 3 ? held[2] : 0);
    for (int64_t i = 0; i < MOST; i++)
        from[i] = (float)(first + i);
    memset(to, 0xff, sizeof to);
    const mimo_tensor source = mimo_tensor_2d(from, MIMO_F32, "th", rank < 2 ? held[rank] : 0, 1);
    const mimo_tensor target = mimo_tensor_2d(to, MIMO_F32, "bh", rank < 2 ? 0 : held[rank], 1);
    MPI_EXPECT_OK(mimo_bridge_forward(bridge, &target, &source, 1, NULL));
    for (int64_t i = 0; rank > 1 && i < held[rank]; i++)
        MPI_EXPECT(to[i] == (float)(first + i), "row %d is %g", (int)i, (double)to[i]);
}

/* Calls whose rows every rank gave only enqueue, also while a graph is captured: of several
 * micro-batches, given at once. */
MPI_TEST(enqueuing, rows_that_are_told)
{
    enum { SPLITS = 4 };
    static const int64_t cuts[SPLITS][4] = {{7, 3, 5, 5}, {0, 10, 10, 0}, {1, 2, 0, 3}, {0}};
    mimo_batch_desc descs[SPLITS];
    mimo_device device = enqueuing();
    mimo_comm *comm = mpi_test_comm_new();
    mimo_grid *src = mpi_test_grid("dp=2", 0), *dst = mpi_test_grid("dp=2", 2);
    mimo_bridge *bridge = NULL;
    int rank = mpi_test_rank();
    mimo_bridge_desc desc = mpi_test_bridge_desc(src, dst);
    MPI_EXPECT_OK(mimo_comm_set_deadline(comm, 20000));
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, comm, &desc));
    for (int i = 0; i < SPLITS; i++) {
        mimo_batch_desc_init(&descs[i], sizeof *descs);
        descs[i].src_rows = rank < 2 ? cuts[i][rank] : 0;
        descs[i].dst_rows = rank < 2 ? 0 : cuts[i][rank];
    }
    votes = 0;
    MPI_EXPECT_OK(mimo_bridge_update(bridge, descs, SPLITS));
    MPI_EXPECT(votes == 2, "an update votes %d times", votes);
    device.records = always_records;
    bridge->mover.comm->device = &device;
    votes = 0;
    for (int i = 0; i < 2 * SPLITS; i++) {
        MPI_EXPECT_OK(mimo_bridge_select(bridge, i % SPLITS));
        expect_rows(bridge, cuts[i % SPLITS]);
    }
    MPI_EXPECT(votes == 0, "calls whose rows are given vote %d times", votes);
    bridge->mover.comm->device = &mimo_device_host;
    mimo_bridge_destroy(bridge);
    mimo_comm_destroy(comm);
}

/* Memory as a device gives it: with any content, and with different content on every rank. */
static mimo_status dirty_room(void **out, int64_t bytes)
{
    mimo_status status = mimo_device_host.reserve(out, bytes);
    if (status == MIMO_OK)
        memset(*out, 1 + mpi_test_rank(), (size_t)bytes);
    return status;
}

/* In a trial for the fastest executor, copies of a source have equal content. */
MPI_TEST(enqueuing, replicas_in_a_trial)
{
    mimo_device device = mimo_device_host;
    mimo_comm *comm = mpi_test_comm_new();
    mimo_grid *src = mpi_test_grid("tp=2,dp=2", 0), *dst = mpi_test_grid("tp=1,cp=2,dp=2", 0);
    mimo_bridge *bridge = NULL;
    mimo_bridge_sizes sizes = MIMO_BRIDGE_SIZES_INIT;
    device.reserve = dirty_room;
    comm->device = &device;
    mimo_bridge_desc desc = mpi_test_bridge_desc(src, dst);
    sizes.batch = 4;
    sizes.seq = 8;
    sizes.hidden = 16;
    setenv("MIMO_CHECK", "replicas", 1);
    MPI_EXPECT_OK(mimo_bridge_create_fastest(&bridge, comm, &desc, &sizes));
    mimo_bridge_destroy(bridge);
    mimo_comm_destroy(comm);
}
