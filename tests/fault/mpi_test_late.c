/* What a rank sends on a communicator that the others have released already arrives in no later
 * one. MPI gives a number again once it is free, so later ones are made that could have it. */
#include "mpi_test.h"
#include "released_comms.h"

enum { DEADLINE = 150, LONG = 20000, ROUNDS = 20, MOST_CALLS = 4 };

/* The ranks that begin anew, as a communicator of MPI; the others have MPI_COMM_NULL. */
static MPI_Comm part_of_world(bool in_it)
{
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, in_it ? 0 : MPI_UNDEFINED, 0, &part);
    return part;
}

static void expect_sums(mimo_comm *comm)
{
    int64_t size = mimo_comm_size(comm);
    for (int i = 0; i < ROUNDS; i++) {
        int64_t sum = 1;
        MPI_EXPECT_OK(mimo_comm_allreduce(comm, &sum, 1, MIMO_I64, MIMO_SUM, NULL));
        MPI_EXPECT(sum == size, "%ld ranks, not %ld", (long)sum, (long)size);
    }
}

/* These ranks make a family, and parts of it. All of them work. */
static void begin_anew(MPI_Comm part)
{
    mimo_comm *comm = NULL, *pair = NULL, *single = NULL;
    mimo_comm_desc desc = MIMO_COMM_DESC_INIT;
    desc.deadline = LONG;
    MPI_EXPECT_OK(mimo_comm_create_mpi(&comm, part, &desc));
    if (!comm)
        return;
    int rank = mimo_comm_rank(comm);
    expect_sums(comm);
    MPI_EXPECT_OK(mimo_comm_split(&pair, comm, rank < 2 ? 0 : -1, 0));
    MPI_EXPECT_OK(mimo_comm_split(&single, comm, rank, 0));
    if (pair)
        expect_sums(pair);
    expect_sums(single);
    mimo_comm_destroy(comm);
    mimo_comm_destroy(single);
    mimo_comm_destroy(pair);
}

static void rest_begins_anew(bool in_it)
{
    MPI_Comm part = part_of_world(in_it);
    if (part == MPI_COMM_NULL)
        return;
    begin_anew(part);
    MPI_Comm_free(&part);
}

/* ------------------------------------- farewells -------------------------------------- */

/* The late rank tells the others that it aborts. They have released the communicator, and go on
 * without it. */
static void abort_late(int late, int calls)
{
    mimo_comm *comm = mpi_test_comm_new();
    bool is_late = mpi_test_rank() == late;
    for (int i = 0; i < calls; i++)
        MPI_EXPECT_OK(mimo_comm_barrier(comm));
    if (!is_late)
        mimo_comm_destroy(comm);
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_late) {
        MPI_EXPECT_OK(mimo_comm_abort(comm, "late"));
        mimo_comm_destroy(comm);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    rest_begins_anew(!is_late);
    MPI_Barrier(MPI_COMM_WORLD);
}

MPI_TEST(late, farewells)
{
    for (int late = 0; late < mpi_test_size(); late++)
        for (int calls = 0; calls < MOST_CALLS; calls++)
            abort_late(late, calls);
    rest_begins_anew(true);
}

/* ---------------------------------- parts of a call ----------------------------------- */

/* One rank destroys all it has, while the others make a call on a part of the family, and give it
 * up. */
static void leave_early(int early)
{
    mimo_comm *comm = mpi_test_comm_new(), *part = NULL;
    MPI_EXPECT_OK(mimo_comm_set_deadline(comm, DEADLINE));
    MPI_EXPECT_OK(mimo_comm_split(&part, comm, 0, -mpi_test_rank()));
    if (mpi_test_rank() != early)
        MPI_EXPECT_STATUS(mimo_comm_barrier(part), MIMO_ERR_TIMEOUT);
    mimo_comm_destroy(part);
    mimo_comm_destroy(comm);
    MPI_Barrier(MPI_COMM_WORLD);
    rest_begins_anew(mpi_test_rank() == early);
    MPI_Barrier(MPI_COMM_WORLD);
}

MPI_TEST(late, parts_of_a_call)
{
    for (int early = 0; early < mpi_test_size(); early++)
        leave_early(early);
    rest_begins_anew(true);
}

/* ----------------------------------- what is freed ------------------------------------ */

/* Each rank destroys in its own order, and at its own time. In the end MPI has all numbers back. */
MPI_TEST(late, all_are_freed_where_all_release)
{
    enum { LIVES = 100 };
    int before = next_comm_number();
    for (int i = 0; i < LIVES; i++) {
        mimo_comm *comm = mpi_test_comm_new(), *half = NULL, *rest = NULL;
        MPI_EXPECT_OK(mimo_comm_split(&half, comm, mpi_test_rank() % 2, 0));
        MPI_EXPECT_OK(
            mimo_comm_split(&rest, comm, mpi_test_rank() == i % mpi_test_size() ? -1 : 0, 0));
        mimo_comm *all[] = {comm, half, rest};
        for (int n = 0; n < 3; n++)
            mimo_comm_destroy(all[(mpi_test_rank() + n) % 3]);
    }
    int after = next_comm_number();
    MPI_EXPECT(after == before, "from %d to %d", before, after);
}
