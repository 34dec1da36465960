/* Reduce-scatter on real ranks, against what each rank computes by itself. */
#include <inttypes.h>
#include <string.h>

#include "cases_ran.h"
#include "comm/comm_backend.h"
#include "comm/mpi/mpi_operators.h"
#include "core/float16.h"
#include "core/hash.h"
#include "mpi_test.h"
#include "same_bits.h"
#include "test_memory.h"

static const mimo_dtype dtypes[] = {MIMO_F16, MIMO_BF16, MIMO_F32, MIMO_F64, MIMO_I32, MIMO_I64};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

/* Small integers: a sum over 8 ranks is exact in any dtype and in any order. */
static int64_t number_of(uint64_t seed, int rank, int64_t i)
{
    uint64_t word = mimo_mix64(seed * 1000003 + (uint64_t)rank);
    return (int64_t)(mimo_mix64(word + (uint64_t)i) % 33) - 16;
}

static void write_number(void *data, mimo_dtype dtype, int64_t i, int64_t value)
{
    switch (dtype) {
    case MIMO_F16:
        ((uint16_t *)data)[i] = mimo_f16_from((float)value);
        return;
    case MIMO_BF16:
        ((uint16_t *)data)[i] = mimo_bf16_from((float)value);
        return;
    case MIMO_F32:
        ((float *)data)[i] = (float)value;
        return;
    case MIMO_F64:
        ((double *)data)[i] = (double)value;
        return;
    case MIMO_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        return;
    default:
        ((int64_t *)data)[i] = value;
        return;
    }
}

/* ----------------------------------------- cases ------------------------------------------ */

typedef struct scatter_case {
    uint64_t seed;
    mimo_dtype dtype;
    mimo_reduce op;
    int64_t count; /* elements of a block */
    bool in_place;
    bool guarded; /* may differ among the ranks */
} scatter_case;

/* The room that has the result, and where it begins there. */
typedef struct scatter_result {
    const test_room *room;
    int64_t first;
} scatter_result;

static scatter_result result_of(const scatter_case *c, const test_room *to, const test_room *from,
                                int64_t bytes)
{
    int64_t own = mpi_test_rank() * bytes;
    return c->in_place ? (scatter_result){from, own} : (scatter_result){to, 0};
}

static void combine(void *expected, const scatter_case *c, int rank)
{
    for (int64_t i = 0; i < c->count; i++) {
        int64_t at = rank * c->count + i, all = number_of(c->seed, 0, at);
        for (int other = 1; other < mpi_test_size(); other++) {
            int64_t number = number_of(c->seed, other, at);
            int64_t most = number > all ? number : all;
            all = c->op == MIMO_MAX ? most : all + number;
        }
        write_number(expected, c->dtype, i, all);
    }
}

/* The result is as expected, and of `from` nothing else was written. */
static void compare(const scatter_case *c, const scatter_result *result, const test_room *from,
                    const char *given, const char *expected, int64_t bytes)
{
    const int64_t own = mpi_test_rank() * bytes, behind = own + bytes;
    MPI_EXPECT_BITS(bits_of((char *)result->room->host + result->first, expected, bytes, 1, 0),
                    "%s %d of %" PRId64 ", seed %d, in place %d, guarded %d",
                    mimo_dtype_name(c->dtype), (int)c->op, c->count, (int)c->seed, c->in_place,
                    c->guarded);
    MPI_EXPECT_BITS(bits_of(from->host, given, c->in_place ? own : from->bytes, 1, 0),
                    "from, seed %d", (int)c->seed);
    if (c->in_place)
        MPI_EXPECT_BITS(
            bits_of((char *)from->host + behind, given + behind, from->bytes - behind, 1, 0),
            "from behind this rank's block, seed %d", (int)c->seed);
}

static char *copy_of(const test_room *room)
{
    char *copy = malloc((size_t)room->bytes + 1);
    memcpy(copy, room->host, (size_t)room->bytes);
    return copy;
}

static void run_reduce_scatter(mimo_comm *comm, const scatter_case *c)
{
    int64_t bytes = c->count * (int64_t)mimo_dtype_size(c->dtype);
    test_room to = test_room_new(bytes), from = test_room_new(bytes * comm->size);
    const scatter_result result = result_of(c, &to, &from, bytes);
    for (int64_t i = 0; i < c->count * comm->size; i++)
        write_number(from.host, c->dtype, i, number_of(c->seed, comm->rank, i));
    char *given = copy_of(&from), *expected = malloc((size_t)bytes + 1);
    combine(expected, c, comm->rank);
    test_push(&to);
    test_push(&from);
    mpi_test_guard(comm, c->guarded);
    MPI_EXPECT_OK(mimo_comm_reduce_scatter(comm, (char *)result.room->place + result.first,
                                           from.place, c->count, c->dtype, c->op, test_stream()));
    test_pull(&to);
    test_pull(&from);
    compare(c, &result, &from, given, expected, bytes);
    free(given);
    free(expected);
    test_room_free(&to);
    test_room_free(&from);
}

/* ----------------------------------------- tests ------------------------------------------ */

MPI_TEST(scatter, goldens)
{
    mimo_comm *comm = mpi_test_comm();
    int rank = mimo_comm_rank(comm);
    static const float given[2][4] = {{1, 2, 3, 4}, {10, 20, 30, 40}};
    static const float sums[2][2] = {{11, 22}, {33, 44}}, most[2] = {10, 20};
    test_room from = test_room_new(sizeof given[0]), to = test_room_new(sizeof sums[0]);
    memcpy(from.host, given[rank], sizeof given[0]);
    test_push(&from);
    MPI_EXPECT_OK(
        mimo_comm_reduce_scatter(comm, to.place, from.place, 2, MIMO_F32, MIMO_SUM, test_stream()));
    test_pull(&to);
    MPI_EXPECT_BITS(bits_of(to.host, sums[rank], sizeof sums[0], 4, 0), "sums");
    MPI_EXPECT_OK(
        mimo_comm_reduce_scatter(comm, to.place, from.place, 1, MIMO_F32, MIMO_MAX, test_stream()));
    test_pull(&to);
    MPI_EXPECT_BITS(bits_of(to.host, &most[rank], sizeof most[0], 4, 0), "max");
}

/* The ranks draw the same cases. Each decides by itself whether it guards. */
static void run_random_cases(uint64_t random)
{
    enum { CASES = 120, MOST = 3000 };
    mimo_comm *comm = mpi_test_comm();
    int ran = 0;
    for (int i = 0; i < CASES; i++) {
        static const int64_t small[] = {0, 1, 7};
        scatter_case c = {.seed = (uint64_t)i + 1};
        c.dtype = dtypes[i % DTYPES];
        c.op = random_below(&random, 3) == 0 ? MIMO_MAX : MIMO_SUM;
        c.count = random_below(&random, MOST);
        c.count = i % 4 == 0 ? small[i / 4 % 3] : c.count;
        c.in_place = random_below(&random, 3) == 0;
        c.guarded = mimo_mix64((uint64_t)(i * 64 + comm->rank)) % 2;
        run_reduce_scatter(comm, &c);
        ran += c.count > 0;
    }
    MPI_CASES_RAN(ran, CASES, CASES - CASES / 8, "calls");
}

MPI_TEST(scatter, random_blocks)
{
    run_random_cases(19);
}

/* As calls of more elements than MPI counts in an int. The first counts are those at which one
 * piece, and one call for all blocks, becomes several. */
MPI_TEST(scatter, in_many_pieces)
{
    enum { PIECE = 500 };
    mimo_comm *comm = mpi_test_comm();
    mimo_mpi_split_sums(PIECE);
    for (int i = 0; i < 8; i++) {
        int64_t all = PIECE / (i < 4 ? comm->size : 1);
        const scatter_case c = {
            .seed = 5, .dtype = dtypes[i % DTYPES], .count = all + i % 4 / 2, .guarded = i % 2};
        run_reduce_scatter(comm, &c);
    }
    run_random_cases(20);
    mimo_mpi_split_sums(0);
}

/* Numbers that are rounded: the same bits on the caller's memory, through the library's, and in
 * place. */
MPI_TEST(scatter, rounded_sums)
{
    enum { MANY = 4001, WAYS = 3 };
    static const mimo_dtype rounded[] = {MIMO_F32, MIMO_F16, MIMO_BF16};
    mimo_comm *comm = mpi_test_comm();
    for (int k = 0; k < 3; k++) {
        int64_t element = (int64_t)mimo_dtype_size(rounded[k]), bytes = MANY * element;
        test_room first = test_room_new(bytes);
        for (int way = 0; way < WAYS; way++) {
            test_room to = test_room_new(bytes), from = test_room_new(bytes * comm->size);
            const scatter_case c = {.in_place = way == 2};
            const scatter_result result = result_of(&c, &to, &from, bytes);
            for (int64_t i = 0; i < MANY * comm->size; i++) {
                float value = (float)(mimo_mix64((uint64_t)(i * 64 + comm->rank)) % 2000001) / 1001;
                if (rounded[k] == MIMO_F32)
                    ((float *)from.host)[i] = value;
                else
                    ((uint16_t *)from.host)[i] =
                        rounded[k] == MIMO_F16 ? mimo_f16_from(value) : mimo_bf16_from(value);
            }
            test_push(&to);
            test_push(&from);
            mpi_test_guard(comm, way == 1);
            MPI_EXPECT_OK(mimo_comm_reduce_scatter(comm, (char *)result.room->place + result.first,
                                                   from.place, MANY, rounded[k], MIMO_SUM,
                                                   test_stream()));
            test_pull(result.room);
            if (way == 0)
                memcpy(first.host, to.host, (size_t)bytes);
            MPI_EXPECT_BITS(
                bits_of((char *)result.room->host + result.first, first.host, bytes, element, 0),
                "%s, way %d", mimo_dtype_name(rounded[k]), way);
            test_room_free(&to);
            test_room_free(&from);
        }
        test_room_free(&first);
    }
}

/* ---------------------------------------- mistakes ---------------------------------------- */

enum { WRONG = 2 };

typedef struct mistake_bed {
    mimo_comm *comm;
    test_room to, from; /* 4 elements of i32, and so for each rank */
} mistake_bed;

static mimo_status reduce(const mistake_bed *bed, void *to, const void *from, int64_t count,
                          mimo_dtype dtype)
{
    return mimo_comm_reduce_scatter(bed->comm, to, from, count, dtype, MIMO_SUM, test_stream());
}

static void wrong_reductions(const mistake_bed *bed)
{
    bool wrong = bed->comm->rank == WRONG;
    char *to = bed->to.place, *from = bed->from.place;
    MPI_FAILS(reduce(bed, wrong ? NULL : to, from, 4, MIMO_I32), MIMO_ERR_ARGUMENT,
              "rank 2: reduce_scatter: to is NULL, count 4 a rank");
    MPI_FAILS(reduce(bed, to, wrong ? NULL : from, 4, MIMO_I32), MIMO_ERR_ARGUMENT,
              "rank 2: reduce_scatter: from is NULL, count 4 a rank");
    MPI_FAILS(reduce(bed, to + wrong * 2, from, 3, MIMO_I32), MIMO_ERR_ARGUMENT,
              "rank 2: reduce_scatter: to lies at 0x");
    MPI_FAILS(reduce(bed, to, from + wrong * 2, 3, MIMO_I32), MIMO_ERR_ARGUMENT,
              "rank 2: reduce_scatter: from lies at 0x");
    MPI_EXPECT_SENTENCE("i32 numbers have to lie at a multiple of 4 bytes");
    MPI_FAILS(reduce(bed, wrong ? from + 4 : to, from, 4, MIMO_I32), MIMO_ERR_ARGUMENT,
              "rank 2: reduce_scatter: the 16 bytes at 0x");
    MPI_EXPECT_SENTENCE(" lie at byte 4 of the ");
    MPI_EXPECT_SENTENCE("this rank's place is byte 32");
    MPI_FAILS(reduce(bed, to, from, wrong ? 3 : 4, MIMO_I32), MIMO_ERR_MISMATCH,
              "rank 2 called reduce_scatter SUM i32[3] a rank, rank 0 called reduce_scatter SUM "
              "i32[4] a rank");
    MPI_FAILS(reduce(bed, to, from, 4, wrong ? MIMO_F32 : MIMO_I32), MIMO_ERR_MISMATCH,
              "rank 2 called reduce_scatter SUM f32[4] a rank");
    MPI_FAILS(mimo_comm_reduce_scatter(bed->comm, to, from, 4, MIMO_I32,
                                       wrong ? MIMO_MAX : MIMO_SUM, test_stream()),
              MIMO_ERR_MISMATCH, "rank 2 called reduce_scatter MAX i32[4] a rank");
    MPI_FAILS(reduce(bed, to, from, 4, wrong ? MIMO_F8 : MIMO_I32), MIMO_ERR_UNSUPPORTED,
              "rank 2: reduce_scatter: f8 can be moved, not combined (count 4)");
    MPI_FAILS(reduce(bed, to, from, wrong ? INT64_MAX / 2 : 4, MIMO_I32), MIMO_ERR_OVERFLOW,
              "rank 2: 4611686018427387903 * 4 does not fit 64 bits");
    MPI_FAILS(reduce(bed, to, from, wrong ? INT64_MAX / 4 : 4, MIMO_I32), MIMO_ERR_OVERFLOW,
              "rank 2: 9223372036854775804 * ");
}

/* One rank's mistake is an error on every rank, and nothing is written. The communicator still
 * works. */
MPI_TEST(scatter, mistakes)
{
    mimo_comm *comm = mpi_test_comm();
    mistake_bed bed = {comm, test_room_new(16), test_room_new((int64_t)16 * comm->size)};
    const scatter_case right = {.seed = 3, .dtype = MIMO_I32, .count = 9};
    test_agree_on_data();
    for (int guarded = 0; guarded < 2; guarded++) {
        mpi_test_guard(comm, guarded);
        wrong_reductions(&bed);
    }
    test_pull(&bed.to);
    MPI_EXPECT_BITS(bits_of_poison(bed.to.host, 0, 16), "to, after mistakes");
    test_pull(&bed.from);
    MPI_EXPECT_BITS(bits_of_poison(bed.from.host, 0, (int64_t)16 * comm->size),
                    "from, after mistakes");
    run_reduce_scatter(comm, &right);
    MPI_EXPECT_OK(reduce(&bed, NULL, NULL, 0, MIMO_I32));
    test_room_free(&bed.to);
    test_room_free(&bed.from);
}
