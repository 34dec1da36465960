/* A send that MPI refuses on one rank alone must end as an error, and not as a hang or a late
 * write. */
#include <string.h>

#include "comm/comm_backend.h"
#include "mpi_test.h"
#include "same_bits.h"

enum { WORDS = 5, GATHER_TAG = 1 };

static int sends_left; /* sends until MPI refuses one; 0: it refuses none */

/* MPI's profiling interface: this definition replaces the library's. */
int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    if (sends_left > 0 && --sends_left == 0)
        return MPI_ERR_OTHER;
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

/* Start an all-gather whose second send MPI refuses, while all receives are in flight. */
static void start_refused(mimo_comm *comm, int *to, int *from, bool guarded)
{
    mimo_request *request = NULL;
    mimo_rows all = {to, WORDS * sizeof *to, 0, 1, 1, 1, 1};
    mimo_rows mine = {from, WORDS * sizeof *from, 0, 1, 1, 1, 1};
    sends_left = 2;
    const mimo_gather gather = {.to = all, .from = mine, .step = 1, .guarded = guarded};
    MPI_FAILS(comm->backend->allgather_start(&request, comm, &gather, NULL), MIMO_ERR_COMM,
              "MPI_Isend");
    MPI_EXPECT(!request, "a request in spite of the error");
}

/* The failed start must have cancelled its receives. Otherwise each of them would take one of two
 * messages that are sent now. */
static void expect_called_off(int peer)
{
    int got[WORDS] = {0};
    for (int i = 1; i <= 2 && (i == 1 || got[0] == 1); i++) {
        MPI_Recv(got, WORDS, MPI_INT, peer, GATHER_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_EXPECT(got[0] == i, "message %d of rank %d came as number %d", got[0], peer, i);
    }
}

static void refuse_gather(bool guarded)
{
    enum { SIZE = 4, FAILING = 1 };
    mimo_comm *comm = NULL;
    int to[SIZE * WORDS], poison[SIZE * WORDS], from[WORDS], rank = mpi_test_rank();
    MPI_EXPECT_OK(mimo_comm_borrow_mpi(&comm, MPI_COMM_WORLD, NULL));
    memset(to, 0x5a, sizeof to);
    memcpy(poison, to, sizeof to);
    for (int i = 0; i < WORDS; i++)
        from[i] = 100 * rank + i;
    if (rank == FAILING)
        start_refused(comm, to, from, guarded);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == FAILING) {
        for (int peer = 0; peer < SIZE; peer++)
            if (peer != FAILING)
                expect_called_off(peer);
    } else {
        for (int i = 1; i <= 2; i++)
            MPI_Send((int[WORDS]){i}, WORDS, MPI_INT, FAILING, GATHER_TAG, MPI_COMM_WORLD);
    }
    MPI_EXPECT_BITS(bits_of(to, poison, sizeof to, sizeof *to, WORDS), "written after the error");
    if (rank == FAILING + 1) /* its send left before the refusal */
        MPI_Recv(to, WORDS, MPI_INT, FAILING, GATHER_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_EXPECT_OK(mimo_comm_allgather(comm, to, from, sizeof from, NULL));
    for (int i = 0; i < SIZE * WORDS; i++)
        MPI_EXPECT(to[i] == 100 * (i / WORDS) + i % WORDS, "[%d] is %d", i, to[i]);
    mimo_comm_destroy(comm);
}

MPI_TEST(faults, gather_that_is_refused)
{
    refuse_gather(false);
    refuse_gather(true);
}
