/* The communicators on real ranks: collectives, strided all-gather, split, agreement. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/check.h"
#include "core/float16.h"
#include "core/hash.h"
#include "comm/agreement.h"
#include "mpi_test.h"

static uint64_t word(int64_t rank, int64_t index)
{
    return mimo_mix64((uint64_t)(rank * 1000003 + index));
}

MPI_TEST(comm, collectives)
{
    mimo_comm *comm = mpi_test_comm();
    int rank = mimo_comm_rank(comm), size = mimo_comm_size(comm);
    static const int64_t counts[] = {0, 1, 7, 4097};
    for (int c = 0; c < 4; c++) {
        int64_t n = counts[c];
        int64_t *sum = malloc((size_t)(n + 1) * sizeof *sum);
        float *most = malloc((size_t)(n + 1) * sizeof *most);
        uint64_t *all = malloc((size_t)(n * size + 1) * sizeof *all);
        uint64_t *mine = malloc((size_t)(n + 1) * sizeof *mine);
        for (int64_t i = 0; i < n; i++) {
            sum[i] = (rank + 1) * i;
            most[i] = (float)((rank * 5 + i) % 7);
            mine[i] = word(rank, i);
        }
        MPI_EXPECT_OK(mimo_comm_allreduce(comm, sum, n, MIMO_I64, MIMO_SUM, NULL));
        MPI_EXPECT_OK(mimo_comm_allreduce(comm, most, n, MIMO_F32, MIMO_MAX, NULL));
        MPI_EXPECT_OK(mimo_comm_allgather(comm, all, mine, n * 8, NULL));
        MPI_EXPECT_OK(mimo_comm_broadcast(comm, mine, n * 8, size - 1, NULL));
        for (int64_t i = 0; i < n; i++) {
            float expected = 0;
            for (int r = 0; r < size; r++) {
                float other = (float)((r * 5 + i) % 7);
                expected = other > expected ? other : expected;
                MPI_EXPECT(all[r * n + i] == word(r, i), "gathered [%d, %d]", r, (int)i);
            }
            MPI_EXPECT(sum[i] == i * size * (size + 1) / 2, "sum %lld", (long long)sum[i]);
            MPI_EXPECT(most[i] == expected, "max %g", (double)most[i]);
            MPI_EXPECT(mine[i] == word(size - 1, i), "broadcast [%d]", (int)i);
        }
        free(sum), free(most), free(all), free(mine);
    }
    MPI_EXPECT_OK(mimo_comm_barrier(comm));
}

/* Tiles [3, 2, 1] with 5-byte rows land in [3, 2 * size, 1]: the batch all-gather of the bridge. */
MPI_TEST(comm, allgather_rows)
{
    enum { S = 3, B = 2, ROW = 5 };
    mimo_comm *comm = mpi_test_comm();
    int rank = mimo_comm_rank(comm), size = mimo_comm_size(comm);
    char *to = malloc((size_t)(S * B * size * ROW)), from[S * B * ROW];
    for (int in_place = 0; in_place < 2; in_place++) {
        memset(to, 0x5a, (size_t)(S * B * size * ROW));
        for (int i = 0; i < S * B * ROW; i++)
            from[i] = (char)word(rank, i);
        mimo_rows mine = {from, ROW, 0, S, B, B, 1};
        mimo_rows all = {to, ROW, 0, S, (int64_t)B * size, B, 1};
        if (in_place) {
            for (int s = 0; s < S; s++)
                memcpy(to + (s * B * size + rank * B) * ROW, from + s * B * ROW, B * ROW);
            mine.base = NULL;
        }
        mimo_request *request = NULL;
        MPI_EXPECT_OK(comm->backend->allgather_start(&request, comm, &all, B, &mine, NULL));
        MPI_EXPECT_OK(mimo_wait(comm, &request));
        for (int s = 0; s < S; s++)
            for (int r = 0; r < size; r++)
                for (int i = 0; i < B * ROW; i++)
                    MPI_EXPECT(to[(s * B * size + r * B) * ROW + i] ==
                                   (char)word(r, s * B * ROW + i),
                               "s %d, rank %d, byte %d", s, r, i);
    }
    free(to);
}

MPI_TEST(comm, split)
{
    mimo_comm *comm = mpi_test_comm(), *half = NULL;
    int rank = mimo_comm_rank(comm), size = mimo_comm_size(comm);
    /* Odd ranks in reverse, even ranks in order, the last rank nowhere. */
    int color = rank == size - 1 ? -1 : rank % 2;
    MPI_EXPECT_OK(mimo_comm_split(&half, comm, color, rank % 2 ? -rank : rank));
    MPI_EXPECT((half == NULL) == (color < 0), "colour %d, comm %p", color, (void *)half);
    if (half) {
        int members = (size - 1 + (color == 0)) / 2, place = rank / 2;
        MPI_EXPECT(mimo_comm_size(half) == members, "size %d", mimo_comm_size(half));
        MPI_EXPECT(mimo_comm_rank(half) == (color ? members - 1 - place : place), "rank %d",
                   mimo_comm_rank(half));
    }
    mimo_comm_destroy(half);
    MPI_EXPECT_STATUS(mimo_comm_split(&half, comm, rank == size - 1 ? -2 : 0, 0),
                      MIMO_ERR_ARGUMENT);
    MPI_EXPECT_SENTENCE("colour -2");
}

/* One rank's mistake is every rank's error; the communicator goes on. */
MPI_TEST(comm, agreement)
{
    mimo_comm *comm = mpi_test_comm();
    int rank = mimo_comm_rank(comm), size = mimo_comm_size(comm);
    int32_t values[4] = {1, 1, 1, 1};
    mimo_status local = rank >= 1 ? mimo_fail(MIMO_ERR_IO, "no file %d", rank) : MIMO_OK;
    MPI_EXPECT_STATUS(mimo_comm_agree(comm, local), MIMO_ERR_IO);
    MPI_EXPECT(strcmp(mimo_last_error(), "rank 1: no file 1") == 0, "%s", mimo_last_error());
    MPI_EXPECT_OK(mimo_comm_agree(comm, MIMO_OK));

    MPI_EXPECT_STATUS(
        mimo_comm_allreduce(comm, rank == 2 ? NULL : values, 4, MIMO_I32, MIMO_SUM, NULL),
        MIMO_ERR_ARGUMENT);
    MPI_EXPECT_SENTENCE("rank 2: allreduce: data is NULL");
    MPI_EXPECT_STATUS(
        mimo_comm_allreduce(comm, values, rank == 2 ? 3 : 4, MIMO_I32, MIMO_SUM, NULL),
        MIMO_ERR_MISMATCH);
    MPI_EXPECT_SENTENCE("rank 2 called allreduce SUM i32[3], rank 0 called allreduce SUM i32[4]");
    mimo_status other =
        rank == 1 ? mimo_comm_barrier(comm) : mimo_comm_broadcast(comm, values, 16, 0, NULL);
    MPI_EXPECT(other == MIMO_ERR_MISMATCH, "%s", mimo_status_name(other));
    MPI_EXPECT_SENTENCE("rank 1 called barrier, rank 0 called broadcast of 16 bytes");
    MPI_EXPECT_STATUS(mimo_comm_allreduce(comm, values, 1, MIMO_F8, MIMO_SUM, NULL),
                      MIMO_ERR_UNSUPPORTED);

    MPI_EXPECT_OK(mimo_comm_allreduce(comm, values, 4, MIMO_I32, MIMO_SUM, NULL));
    MPI_EXPECT(values[3] == size, "%d", values[3]);
    setenv("MIMO_AGREE", "0", 1);
    MPI_EXPECT_OK(mimo_comm_allreduce(comm, values, 4, MIMO_I32, MIMO_SUM, NULL));
    MPI_EXPECT(values[0] == size * size, "%d", values[0]);
    MPI_EXPECT_STATUS(mimo_comm_agree(comm, rank == 1 ? mimo_fail(MIMO_ERR_IO, "late") : MIMO_OK),
                      MIMO_ERR_IO);
}

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Nobody leaves before the last rank has come, with and without the agreement. */
MPI_TEST(comm, barrier)
{
    mimo_comm *comm = mpi_test_comm();
    const struct timespec a_while = {0, 20000000};
    for (int late = 0; late < 2 * mimo_comm_size(comm); late++) {
        bool last = mimo_comm_rank(comm) == late / 2;
        setenv("MIMO_AGREE", late % 2 ? "0" : "1", 1);
        if (last)
            nanosleep(&a_while, NULL);
        int64_t came = nanoseconds();
        MPI_EXPECT_OK(mimo_comm_barrier(comm));
        int64_t left = nanoseconds();
        MPI_Bcast(&came, 1, MPI_INT64_T, late / 2, MPI_COMM_WORLD);
        MPI_EXPECT(left >= came, "left %" PRId64 " ns before rank %d came", came - left, late / 2);
    }
}

/* Small integers are exact in both 16-bit floats, whatever the order. */
MPI_TEST(comm, sums_of_16_bits)
{
    mimo_comm *comm = mpi_test_comm();
    int rank = mimo_comm_rank(comm), size = mimo_comm_size(comm);
    uint16_t half[33], brain[33], most[33];
    for (int i = 0; i < 33; i++) {
        half[i] = mimo_f16_from((float)(rank * i));
        brain[i] = mimo_bf16_from((float)(rank - i));
        most[i] = mimo_bf16_from((float)(rank - i));
    }
    MPI_EXPECT_OK(mimo_comm_allreduce(comm, half, 33, MIMO_F16, MIMO_SUM, NULL));
    MPI_EXPECT_OK(mimo_comm_allreduce(comm, brain, 33, MIMO_BF16, MIMO_SUM, NULL));
    MPI_EXPECT_OK(mimo_comm_allreduce(comm, most, 33, MIMO_BF16, MIMO_MAX, NULL));
    int ranks = size * (size - 1) / 2;
    for (int i = 0; i < 33; i++) {
        MPI_EXPECT(mimo_f16_to(half[i]) == (float)(ranks * i), "f16 [%d]", i);
        MPI_EXPECT(mimo_bf16_to(brain[i]) == (float)(ranks - size * i), "bf16 [%d]", i);
        MPI_EXPECT(mimo_bf16_to(most[i]) == (float)(size - 1 - i), "max [%d]", i);
    }
}

MPI_TEST(comm, bootstrap)
{
    MPI_Comm world = MPI_COMM_WORLD;
    mimo_bootstrap bootstrap;
    int all[3] = {-1, -1, -1};
    MPI_EXPECT_OK(mimo_bootstrap_from_mpi(&bootstrap, &world));
    MPI_EXPECT(bootstrap.rank == mpi_test_rank() && bootstrap.size == 3, "rank %d of %d",
               bootstrap.rank, bootstrap.size);
    int code = bootstrap.allgather(bootstrap.context, all, &bootstrap.rank, sizeof(int));
    MPI_EXPECT(code == 0 && all[0] == 0 && all[1] == 1 && all[2] == 2, "gathered %d %d %d", all[0],
               all[1], all[2]);
}

MPI_TEST(comm, wrong_handles)
{
    mimo_comm *comm = NULL;
    MPI_Comm null = MPI_COMM_NULL, solo, inter;
    mimo_bootstrap bootstrap;
    MPI_EXPECT_STATUS(mimo_comm_from_mpi(NULL, MPI_COMM_WORLD), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_STATUS(mimo_comm_from_mpi(&comm, MPI_COMM_NULL), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_STATUS(mimo_bootstrap_from_mpi(&bootstrap, &null), MIMO_ERR_ARGUMENT);
    MPI_Comm_split(MPI_COMM_WORLD, mpi_test_rank(), 0, &solo);
    MPI_Intercomm_create(solo, 0, MPI_COMM_WORLD, 1 - mpi_test_rank(), 7, &inter);
    MPI_EXPECT_STATUS(mimo_comm_from_mpi(&comm, inter), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_SENTENCE("intercommunicator");
    MPI_EXPECT(comm == NULL, "a failed call wrote its output");
    MPI_Comm_free(&inter);

    /* Borrowed: ours to use, not to free. */
    MPI_EXPECT_OK(mimo_comm_borrow_mpi(&comm, solo));
    MPI_EXPECT(mimo_comm_size(comm) == 1, "size %d", mimo_comm_size(comm));
    mimo_comm_destroy(comm);
    int size = 0;
    MPI_EXPECT(MPI_Comm_size(solo, &size) == MPI_SUCCESS && size == 1, "the handle was freed");
    MPI_Comm_free(&solo);
}
