/* Messages past 2^31 bytes. Skipped visibly where memory is short. */
#include <stdlib.h>

#include "comm/comm_backend.h"
#include "free_memory.h"
#include "mpi_test.h"
#include "reference_grid.h"

/* The next byte to look at: one in every 4,099, and the last. */
static int64_t next_probe(int64_t i, int64_t bytes)
{
    return i + 4099 < bytes || i == bytes - 1 ? i + 4099 : bytes - 1;
}

static unsigned char probe(int64_t rank, int64_t i)
{
    return (unsigned char)ref_word(9, rank, i & 0xfffff, i >> 20);
}

MPI_TEST(large, broadcast)
{
    int64_t bytes = (INT64_C(1) << 31) + 4099 * 3 + 5;
    skip_unless_free(3 * bytes);
    unsigned char *data = malloc((size_t)bytes);
    for (int64_t i = 0; i < bytes; i = next_probe(i, bytes))
        data[i] = mpi_test_rank() == 0 ? probe(0, i) : 0;
    MPI_EXPECT_OK(mimo_comm_broadcast(mpi_test_comm(), data, bytes, 0, NULL));
    for (int64_t i = 0; i < bytes; i = next_probe(i, bytes))
        MPI_EXPECT(data[i] == probe(0, i), "byte %lld is %d, not %d", (long long)i, data[i],
                   probe(0, i));
    free(data);
}

/* The strided all-gather of the bridge: 2 positions x 2 ranks x 0.6 GiB a row. */
MPI_TEST(large, allgather_rows)
{
    int64_t row = (INT64_C(6) << 27) / 10 * 8 + 3;
    mimo_comm *comm = mpi_test_comm();
    int rank = mpi_test_rank();
    skip_unless_free(10 * row);
    unsigned char *to = malloc((size_t)(4 * row));
    for (int s = 0; s < 2; s++)
        for (int64_t i = 0; i < row; i = next_probe(i, row)) {
            to[(s * 2 + rank) * row + i] = probe(rank, s * row + i);
            to[(s * 2 + 1 - rank) * row + i] = 0;
        }
    mimo_rows all = {to, row, 0, 2, 2, 1, 1}, mine = {NULL, row, 0, 2, 1, 1, 1};
    mimo_request *request = NULL;
    const mimo_gather gather = {.to = all, .from = mine, .step = 1};
    MPI_EXPECT_OK(comm->backend->allgather_start(&request, comm, &gather, NULL));
    MPI_EXPECT_OK(mimo_wait(comm, &request, "allgather"));
    for (int s = 0; s < 2; s++)
        for (int r = 0; r < 2; r++)
            for (int64_t i = 0; i < row; i = next_probe(i, row))
                MPI_EXPECT(to[(s * 2 + r) * row + i] == probe(r, s * row + i),
                           "s %d, rank %d, byte %lld is %d, not %d", s, r, (long long)i,
                           to[(s * 2 + r) * row + i], probe(r, s * row + i));
    free(to);
}

MPI_TEST(large, allreduce)
{
    int64_t count = (INT64_C(1) << 31) / 2 + 77;
    skip_unless_free(8 * count);
    uint16_t *data = calloc((size_t)count, sizeof *data);
    for (int64_t i = 0; i < count; i = next_probe(i, count))
        data[i] = (uint16_t)(0x3f80 + mpi_test_rank() * 0x80); /* bf16 1 and 2 */
    MPI_EXPECT_OK(mimo_comm_allreduce(mpi_test_comm(), data, count, MIMO_BF16, MIMO_SUM, NULL));
    for (int64_t i = 0; i < count; i = next_probe(i, count))
        MPI_EXPECT(data[i] == 0x4040, "element %lld is %04x, not 4040", (long long)i, data[i]);
    free(data);
}

/* One in every 2^18 + 1, and the last. So most pages of what is sent stay untouched, which is
 * quicker. */
static int64_t next_far_probe(int64_t i, int64_t bytes)
{
    enum { FAR = (1 << 18) + 1 };
    return i + FAR < bytes || i == bytes - 1 ? i + FAR : bytes - 1;
}

MPI_TEST(large, alltoall)
{
    int64_t bytes = (INT64_C(1) << 30) + 4099 * 3 + 5;
    mimo_comm *comm = mpi_test_comm();
    int64_t rank = comm->rank;
    skip_unless_free(9 * bytes);
    unsigned char *from = malloc((size_t)(2 * bytes)), *to = malloc((size_t)(2 * bytes));
    for (int64_t r = 0; r < 2; r++)
        for (int64_t i = 0; i < bytes; i = next_far_probe(i, bytes))
            from[r * bytes + i] = probe(2 * rank + r, i);
    MPI_EXPECT_OK(mimo_comm_alltoall(comm, to, from, bytes, NULL));
    for (int64_t r = 0; r < 2; r++)
        for (int64_t i = 0; i < bytes; i = next_far_probe(i, bytes))
            MPI_EXPECT(to[r * bytes + i] == probe(2 * r + rank, i),
                       "byte %lld from rank %d is %d, not %d", (long long)i, (int)r,
                       to[r * bytes + i], probe(2 * r + rank, i));
    free(from);
    free(to);
}
