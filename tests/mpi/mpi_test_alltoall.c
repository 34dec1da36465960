/* All-to-all on real ranks: every part is filled by who sends it and to whom. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cases_ran.h"
#include "comm/comm_backend.h"
#include "core/hash.h"
#include "mpi_test.h"
#include "same_bits.h"
#include "test_memory.h"

typedef struct alltoall_case {
    uint64_t seed;
    int64_t bytes;
    bool side_by_side; /* `from` begins where `to` ends, or the other way round */
    bool guarded;      /* may differ among the ranks */
} alltoall_case;

/* Where the parts lie: in two rooms, or in both halves of the first. */
typedef struct alltoall_bed {
    test_room rooms[2];
    int64_t total, to, from; /* bytes of each side, and where it begins in its room */
} alltoall_bed;

static alltoall_bed bed_of(const mimo_comm *comm, const alltoall_case *c)
{
    int64_t total = comm->size * c->bytes, half = c->side_by_side ? total : 0;
    alltoall_bed bed = {.total = total};
    bed.rooms[0] = test_room_new(total + half);
    bed.rooms[1] = test_room_new(total);
    bed.to = c->seed % 2 ? half : 0;
    bed.from = half - bed.to;
    return bed;
}

/* The bytes that rank `from` of the communicator has for rank `to`. */
static void fill_part(char *part, const alltoall_case *c, int from, int to)
{
    uint64_t pair = (uint64_t)(from * 64 + to);
    fill_elements(part, mimo_mix64(c->seed * 1000003 + pair), c->bytes, 1);
}

static void run(mimo_comm *comm, const alltoall_case *c)
{
    alltoall_bed bed = bed_of(comm, c);
    const test_room *to = &bed.rooms[0], *from = &bed.rooms[c->side_by_side ? 0 : 1];
    char *given = malloc((size_t)bed.total + 1), *expected = malloc((size_t)bed.total + 1);
    for (int r = 0; r < comm->size; r++) {
        fill_part(given + r * c->bytes, c, comm->rank, r);
        fill_part(expected + r * c->bytes, c, r, comm->rank);
    }
    memcpy((char *)from->host + bed.from, given, (size_t)bed.total);
    test_push(&bed.rooms[0]);
    test_push(&bed.rooms[1]);
    mpi_test_guard(comm, c->guarded);
    MPI_EXPECT_OK(mimo_comm_alltoall(comm, (char *)to->place + bed.to,
                                     (char *)from->place + bed.from, c->bytes, test_stream()));
    test_pull(&bed.rooms[0]);
    test_pull(&bed.rooms[1]);
    MPI_EXPECT_BITS(bits_of((char *)to->host + bed.to, expected, bed.total, 1, 0),
                    "to, %" PRId64 " bytes of %d ranks, seed %d, side by side %d, guarded %d",
                    c->bytes, comm->size, (int)c->seed, c->side_by_side, c->guarded);
    MPI_EXPECT_BITS(bits_of((char *)from->host + bed.from, given, bed.total, 1, 0), "from, seed %d",
                    (int)c->seed);
    free(given);
    free(expected);
    test_room_free(&bed.rooms[0]);
    test_room_free(&bed.rooms[1]);
}

MPI_TEST(alltoall, goldens)
{
    mimo_comm *comm = mpi_test_comm();
    int rank = comm->rank, size = comm->size;
    test_room from = test_room_new((int64_t)4 * size), to = test_room_new((int64_t)4 * size);
    for (int r = 0; r < size; r++)
        ((int32_t *)from.host)[r] = 10 * rank + r; /* rank 1: 10 11 12 */
    test_push(&from);
    test_push(&to);
    MPI_EXPECT_OK(mimo_comm_alltoall(comm, to.place, from.place, 4, test_stream()));
    test_pull(&to);
    for (int r = 0; r < size; r++) { /* rank 1: 1 11 21 */
        int number = ((int32_t *)to.host)[r];
        MPI_EXPECT(number == 10 * r + rank, "part %d is %d", r, number);
    }
}

/* The ranks draw the same cases. Each decides by itself whether it guards. */
static void run_random_cases(mimo_comm *comm, uint64_t random, int cases)
{
    enum { MOST = 3000, LARGE = 200000 };
    int ran = 0;
    for (int i = 0; i < cases; i++) {
        static const int64_t special[] = {0, 1, 7, LARGE};
        alltoall_case c = {.seed = (uint64_t)i + 1};
        c.bytes = random_below(&random, MOST);
        c.bytes = i % 4 == 0 ? special[i / 4 % 4] : c.bytes;
        c.side_by_side = random_below(&random, 2) == 0;
        c.guarded = mimo_mix64((uint64_t)(i * 64 + comm->rank)) % 2;
        run(comm, &c);
        ran += c.bytes > 0;
    }
    MPI_CASES_RAN(ran, cases, cases - cases / 8, "calls");
}

MPI_TEST(alltoall, random_parts)
{
    run_random_cases(mpi_test_comm(), 23, 120);
}

/* Parts of the communicator, in another order than their ranks, at the same time. */
MPI_TEST(alltoall, split)
{
    mimo_comm *comm = mpi_test_comm(), *part = NULL;
    MPI_EXPECT_OK(mimo_comm_split(&part, comm, comm->rank % 2, -comm->rank));
    if (!part)
        return;
    run_random_cases(part, 24 + (uint64_t)comm->rank % 2, 24);
    mimo_comm_destroy(part);
}

/* ---------------------------------------- mistakes ---------------------------------------- */

enum { BYTES = 16 };

/* What the last rank passes wrongly. */
static void wrong_arguments(mimo_comm *comm, char *to, char *from)
{
    const int last = comm->size - 1;
    const int64_t total = (int64_t)comm->size * BYTES;
    char *overlapping[] = {from, from + total - 1, from - total + 1};
    bool wrong = comm->rank == last;
    mimo_stream stream = test_stream();
    char rank[32] = "", words[128];
    if (last > 0) /* one rank has no need of its number */
        snprintf(rank, sizeof rank, "rank %d: ", last);
    snprintf(words, sizeof words, "%salltoall: to and from overlap: %d bytes at 0x", rank,
             (int)total);
    for (int i = 0; i < 3; i++)
        MPI_FAILS(mimo_comm_alltoall(comm, wrong ? overlapping[i] : to, from, BYTES, stream),
                  MIMO_ERR_ARGUMENT, words);
    snprintf(words, sizeof words, "%salltoall: to is NULL, 16 bytes a rank", rank);
    MPI_FAILS(mimo_comm_alltoall(comm, wrong ? NULL : to, from, BYTES, stream), MIMO_ERR_ARGUMENT,
              words);
    snprintf(words, sizeof words, "%salltoall: from is NULL, 16 bytes a rank", rank);
    MPI_FAILS(mimo_comm_alltoall(comm, to, wrong ? NULL : from, BYTES, stream), MIMO_ERR_ARGUMENT,
              words);
    snprintf(words, sizeof words, "%salltoall: -1 bytes", rank);
    MPI_FAILS(mimo_comm_alltoall(comm, to, from, wrong ? -1 : BYTES, stream), MIMO_ERR_ARGUMENT,
              words);
}

/* What differs on the last of several ranks. */
static void wrong_calls(mimo_comm *comm, char *to, char *from)
{
    bool wrong = comm->rank == comm->size - 1;
    mimo_stream stream = test_stream();
    char words[128];
    snprintf(words, sizeof words,
             "rank %d called alltoall of 15 bytes a rank, rank 0 called alltoall of 16 bytes a "
             "rank",
             comm->size - 1);
    MPI_FAILS(mimo_comm_alltoall(comm, to, from, wrong ? 15 : BYTES, stream), MIMO_ERR_MISMATCH,
              words);
    snprintf(words, sizeof words, "rank %d called allgather of 16 bytes a rank", comm->size - 1);
    MPI_FAILS(wrong ? mimo_comm_allgather(comm, to, from, BYTES, stream)
                    : mimo_comm_alltoall(comm, to, from, BYTES, stream),
              MIMO_ERR_MISMATCH, words);
    snprintf(words, sizeof words, "rank %d: 9223372036854775807 * %d does not fit 64 bits",
             comm->size - 1, comm->size);
    MPI_FAILS(mimo_comm_alltoall(comm, to, from, wrong ? INT64_MAX : BYTES, stream),
              MIMO_ERR_OVERFLOW, words);
}

/* One rank's mistake is an error on every rank, and nothing is written. The communicator still
 * works. */
MPI_TEST(alltoall, mistakes)
{
    mimo_comm *comm = mpi_test_comm();
    int64_t total = (int64_t)comm->size * BYTES;
    const alltoall_case right = {.seed = 3, .bytes = 9};
    test_room room = test_room_new(4 * total); /* room around `from` for what overlaps it */
    char *to = room.place, *from = to + 2 * total;
    test_agree_on_data();
    for (int guarded = 0; guarded < 2; guarded++) {
        mpi_test_guard(comm, guarded);
        wrong_arguments(comm, to, from);
        if (comm->size > 1)
            wrong_calls(comm, to, from);
    }
    test_pull(&room);
    MPI_EXPECT_BITS(bits_of_poison(room.host, 0, room.bytes), "after mistakes");
    run(comm, &right);
    MPI_EXPECT_OK(mimo_comm_alltoall(comm, NULL, NULL, 0, test_stream()));
    MPI_EXPECT_OK(mimo_comm_alltoall(comm, from, from, 0, test_stream()));
}
