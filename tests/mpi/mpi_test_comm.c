/* The communicators on real ranks: collectives, strided all-gather, split, agreement. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <mimo/log.h>

#include "core/check.h"
#include "core/float16.h"
#include "core/hash.h"
#include "comm/agreement.h"
#include "mpi_test.h"
#include "test_memory.h"
#include "same_bits.h"

static uint64_t word(int64_t rank, int64_t index)
{
    return mimo_mix64((uint64_t)(rank * 1000003 + index));
}

/* The values that each rank gives to the collectives of `n` elements. */
typedef struct givings {
    test_tile sum, most, all, mine;
} givings;

static givings givings_of(int64_t n)
{
    int rank = mpi_test_rank();
    givings it = {
        .sum = test_tile_new("t", MIMO_I64, n, 1, 1),
        .most = test_tile_new("t", MIMO_F32, n, 1, 1),
        .all = test_tile_new("t", MIMO_I64, n * mpi_test_size(), 1, 1),
        .mine = test_tile_new("t", MIMO_I64, n, 1, 1),
    };
    for (int64_t i = 0; i < n; i++) {
        ((int64_t *)it.sum.room.host)[i] = (rank + 1) * i;
        ((float *)it.most.room.host)[i] = (float)((rank * 5 + i) % 7);
        ((uint64_t *)it.mine.room.host)[i] = word(rank, i);
    }
    test_push(&it.sum.room);
    test_push(&it.most.room);
    test_push(&it.mine.room);
    return it;
}

static void check_givings(const givings *it, int64_t n)
{
    int size = mpi_test_size();
    const int64_t *sum = it->sum.room.host;
    const float *most = it->most.room.host;
    const uint64_t *all = it->all.room.host, *mine = it->mine.room.host;
    test_pull(&it->sum.room);
    test_pull(&it->most.room);
    test_pull(&it->all.room);
    test_pull(&it->mine.room);
    for (int64_t i = 0; i < n; i++) {
        float expected = 0;
        for (int r = 0; r < size; r++) {
            float other = (float)((r * 5 + i) % 7);
            expected = other > expected ? other : expected;
            MPI_EXPECT(all[r * n + i] == word(r, i),
                       "gathered row %d, column %d is %" PRIx64 ", not %" PRIx64, r, (int)i,
                       all[r * n + i], word(r, i));
        }
        MPI_EXPECT(sum[i] == i * size * (size + 1) / 2, "sum [%d] is %" PRId64 ", not %" PRId64,
                   (int)i, sum[i], i * size * (size + 1) / 2);
        MPI_EXPECT(most[i] == expected, "max [%d] is %g, not %g", (int)i, (double)most[i],
                   (double)expected);
        MPI_EXPECT(mine[i] == word(size - 1, i), "broadcast [%d] is %" PRIx64 ", not %" PRIx64,
                   (int)i, mine[i], word(size - 1, i));
    }
}

MPI_TEST(comm, collectives)
{
    mimo_comm *comm = mpi_test_comm();
    mimo_stream stream = test_stream();
    static const int64_t counts[] = {0, 1, 7, 4097};
    for (int c = 0; c < 8; c++) {
        int64_t n = counts[c / 2];
        mpi_test_guard(comm, c % 2);
        givings it = givings_of(n);
        MPI_EXPECT_OK(mimo_comm_allreduce(comm, it.sum.view.data, n, MIMO_I64, MIMO_SUM, stream));
        MPI_EXPECT_OK(mimo_comm_allreduce(comm, it.most.view.data, n, MIMO_F32, MIMO_MAX, stream));
        MPI_EXPECT_OK(
            mimo_comm_allgather(comm, it.all.view.data, it.mine.view.data, n * 8, stream));
        MPI_EXPECT_OK(
            mimo_comm_broadcast(comm, it.mine.view.data, n * 8, mpi_test_size() - 1, stream));
        check_givings(&it, n);
        test_tile_free(&it.sum);
        test_tile_free(&it.most);
        test_tile_free(&it.all);
        test_tile_free(&it.mine);
    }
    MPI_EXPECT_OK(mimo_comm_barrier(comm));
}

/* Tiles [3, 2, 1] with 5-byte rows land in [3, 2 * size, 1]: the batch all-gather of the bridge. */
MPI_TEST(comm, allgather_rows)
{
    enum { S = 3, B = 2, ROW = 5 };
    mimo_comm *comm = mpi_test_comm();
    int rank = mimo_comm_rank(comm), size = mimo_comm_size(comm);
    test_room gathered = test_room_new(S * B * size * ROW), given = test_room_new(S * B * ROW);
    char *to = gathered.host, *from = given.host;
    for (int turn = 0; turn < 4; turn++) {
        bool in_place = turn % 2;
        memset(to, 0x5a, (size_t)gathered.bytes);
        for (int i = 0; i < S * B * ROW; i++)
            from[i] = (char)word(rank, i);
        mimo_rows mine = {given.place, ROW, 0, S, B, B, 1};
        mimo_rows all = {gathered.place, ROW, 0, S, (int64_t)B * size, B, 1};
        if (in_place) {
            for (int s = 0; s < S; s++)
                memcpy(to + (s * B * size + rank * B) * ROW, from + s * B * ROW, B * ROW);
            mine.base = NULL;
        }
        mimo_request *request = NULL;
        test_push(&gathered);
        test_push(&given);
        const mimo_gather gather = {
            .to = all, .from = mine, .step = B, .guarded = (turn / 2 + rank) % 2};
        MPI_EXPECT_OK(comm->backend->allgather_start(&request, comm, &gather, test_stream()));
        MPI_EXPECT_OK(mimo_wait(comm, &request, "allgather"));
        test_pull(&gathered);
        for (int s = 0; s < S; s++)
            for (int r = 0; r < size; r++)
                for (int i = 0; i < B * ROW; i++)
                    MPI_EXPECT(
                        to[(s * B * size + r * B) * ROW + i] == (char)word(r, s * B * ROW + i),
                        "s %d, rank %d, byte %d is %d, not %d", s, r, i,
                        to[(s * B * size + r * B) * ROW + i], (char)word(r, s * B * ROW + i));
    }
}

MPI_TEST(comm, split)
{
    mimo_comm *comm = mpi_test_comm(), *half = NULL;
    int rank = mimo_comm_rank(comm), size = mimo_comm_size(comm);
    /* Odd ranks in reverse, even ranks in order, the last rank in no group. */
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
    MPI_FAILS(mimo_comm_split(&half, comm, rank == size - 1 ? -2 : 0, 0), MIMO_ERR_ARGUMENT,
              "colour -2");
}

/* MPI's profiling interface. */
static int mpi_splits;

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *out)
{
    mpi_splits++;
    return PMPI_Comm_split(comm, color, key, out);
}

/* Split, and use the group. `splits`: calls of MPI_Comm_split, which no deadline ends. */
static void expect_splits(int color, int key, int splits)
{
    mimo_comm *comm = mpi_test_comm(), *made = NULL;
    int64_t sum = comm->rank, members = 0, expected = 0;
    int key_of[64], color_of[64], place = 0;
    MPI_EXPECT_OK(mimo_comm_host_allgather(comm, color_of, &color, sizeof color));
    MPI_EXPECT_OK(mimo_comm_host_allgather(comm, key_of, &key, sizeof key));
    for (int i = 0; i < comm->size; i++) {
        bool before = key_of[i] < key || (key_of[i] == key && i < comm->rank);
        members += color_of[i] == color;
        expected += color_of[i] == color ? i : 0;
        place += color_of[i] == color && before;
    }
    mpi_splits = 0;
    MPI_EXPECT_OK(mimo_comm_split(&made, comm, color, key));
    MPI_EXPECT(mpi_splits == splits, "%d calls of MPI_Comm_split, not %d", mpi_splits, splits);
    MPI_EXPECT((made != NULL) == (color >= 0), "colour %d: %p", color, (void *)made);
    if (!made)
        return;
    MPI_EXPECT(made->size == members && made->rank == place, "rank %d of %d", made->rank,
               made->size);
    MPI_EXPECT_OK(mimo_comm_allreduce(made, &sum, 1, MIMO_I64, MIMO_SUM, NULL));
    MPI_EXPECT(sum == expected, "the sum is %" PRId64 ", not %" PRId64, sum, expected);
    mimo_comm_destroy(made);
}

MPI_TEST(comm, split_without_mpi_split)
{
    int rank = mpi_test_rank(), size = mpi_test_size(), alone = size == 1;
    expect_splits(0, rank, 0);
    expect_splits(7, 3, 0);
    expect_splits(rank, -rank, 0);
    expect_splits(rank == 0 ? 1 : -1, 0, 0);
    expect_splits(-1, 0, 0);
    expect_splits(0, -rank, !alone);
    expect_splits(rank == 0 ? -1 : 1, 0, size > 2);
    expect_splits(rank / 2, 0, size > 2);
    expect_splits(rank == size - 1, 0, size > 2);
}

/* The name of a step stands in sentences, and has to be the same. */
MPI_TEST(comm, named_agreement)
{
    mimo_comm *comm = mpi_test_comm();
    bool here = mimo_comm_rank(comm) == 1;
    MPI_EXPECT_OK(mimo_comm_agree_named(comm, MIMO_OK, "load"));
    MPI_FAILS(
        mimo_comm_agree_named(comm, here ? mimo_fail(MIMO_ERR_IO, "no file") : MIMO_OK, "load"),
        MIMO_ERR_IO, "rank 1: no file");
    MPI_FAILS(mimo_comm_agree_named(comm, MIMO_OK, here ? "save" : "load"), MIMO_ERR_MISMATCH,
              "rank 1 called save, rank 0 called load");
    MPI_FAILS(here ? mimo_comm_agree(comm, MIMO_OK) : mimo_comm_agree_named(comm, MIMO_OK, "load"),
              MIMO_ERR_MISMATCH, "rank 1 called agree, rank 0 called load");
    MPI_FAILS(mimo_comm_agree_named(comm, MIMO_OK, here ? NULL : "load"), MIMO_ERR_ARGUMENT,
              "rank 1: mimo_comm_agree_named: name is NULL");
    MPI_FAILS(mimo_comm_agree_named(comm, here ? (mimo_status)77 : MIMO_OK, "load"),
              MIMO_ERR_ARGUMENT, "rank 1: mimo_comm_agree_named: 77 is no mimo_status");
    MPI_EXPECT_OK(mimo_comm_agree_named(comm, MIMO_OK, "load"));
}

/* One rank's mistake is an error on every rank. The communicator still works. */
MPI_TEST(comm, agreement)
{
    mimo_comm *comm = mpi_test_comm();
    int rank = mimo_comm_rank(comm), size = mimo_comm_size(comm);
    test_tile tile = test_tile_new("t", MIMO_I32, 4, 1, 1);
    int32_t *here = tile.room.host, *values = tile.view.data;
    mimo_stream stream = test_stream();
    test_agree_on_data();
    for (int i = 0; i < 4; i++)
        here[i] = 1;
    test_push(&tile.room);
    mimo_status local = rank >= 1 ? mimo_fail(MIMO_ERR_IO, "no file %d", rank) : MIMO_OK;
    MPI_EXPECT_STATUS(mimo_comm_agree(comm, local), MIMO_ERR_IO);
    MPI_EXPECT(strcmp(mimo_last_error(), "rank 1: no file 1") == 0, "%s", mimo_last_error());
    MPI_EXPECT_OK(mimo_comm_agree(comm, MIMO_OK));
    MPI_FAILS(mimo_comm_agree(comm, rank == 1 ? (mimo_status)77 : MIMO_OK), MIMO_ERR_ARGUMENT,
              "rank 1: mimo_comm_agree: 77 is no mimo_status");

    MPI_FAILS(mimo_comm_allreduce(comm, rank == 2 ? NULL : values, 4, MIMO_I32, MIMO_SUM, stream),
              MIMO_ERR_ARGUMENT, "rank 2: allreduce: data is NULL");
    void *odd = (char *)values + (rank == 2 ? 2 : 0);
    MPI_FAILS(mimo_comm_allreduce(comm, odd, 3, MIMO_I32, MIMO_SUM, stream), MIMO_ERR_ARGUMENT,
              "rank 2: allreduce: data lies at 0x",
              "i32 numbers have to lie at a multiple of 4 bytes");
    MPI_FAILS(mimo_comm_allreduce(comm, values, rank == 2 ? 3 : 4, MIMO_I32, MIMO_SUM, stream),
              MIMO_ERR_MISMATCH,
              "rank 2 called allreduce SUM i32[3], rank 0 called allreduce SUM i32[4]");
    mimo_status other =
        rank == 1 ? mimo_comm_barrier(comm) : mimo_comm_broadcast(comm, values, 16, 0, stream);
    MPI_EXPECT(other == MIMO_ERR_MISMATCH, "%s", mimo_status_name(other));
    MPI_EXPECT_SENTENCE("rank 1 called barrier, rank 0 called broadcast of 16 bytes");
    MPI_EXPECT_STATUS(mimo_comm_allreduce(comm, values, 1, MIMO_F8, MIMO_SUM, stream),
                      MIMO_ERR_UNSUPPORTED);
    char *own = (char *)values + rank;
    MPI_FAILS(mimo_comm_allgather(comm, values, rank == 2 ? own - 1 : own, 1, stream),
              MIMO_ERR_ARGUMENT, "rank 2: allgather: the 1 bytes at ", " lie at byte 1 of the ",
              "this rank's place is byte 2");

    MPI_EXPECT_OK(mimo_comm_allreduce(comm, values, 4, MIMO_I32, MIMO_SUM, stream));
    test_pull(&tile.room);
    MPI_EXPECT(here[3] == size, "%d", here[3]);
    setenv("MIMO_AGREE", "maybe", 1); /* the wrong argument is reported, not the wrong variable */
    MPI_FAILS(mimo_comm_host_allgather(comm, NULL, NULL, 4), MIMO_ERR_ARGUMENT,
              "rank 0: host_allgather: to is NULL");
    setenv("MIMO_AGREE", "7", 1);
    int32_t mine = rank, all[8];
    MPI_FAILS(mimo_comm_host_allgather(comm, all, &mine, sizeof mine), MIMO_ERR_ARGUMENT,
              "MIMO_AGREE=7 is neither 0 nor 1");
    setenv("MIMO_AGREE", "0", 1);
    MPI_EXPECT_OK(mimo_comm_allreduce(comm, values, 4, MIMO_I32, MIMO_SUM, stream));
    test_pull(&tile.room);
    MPI_EXPECT(here[0] == size * size, "%d", here[0]);
    MPI_EXPECT_STATUS(mimo_comm_agree(comm, rank == 1 ? mimo_fail(MIMO_ERR_IO, "late") : MIMO_OK),
                      MIMO_ERR_IO);
    /* One rank makes one call more, which no rank waits for. The next agreement reports it. */
    unsetenv("MIMO_CHECK");
    if (rank == 2)
        MPI_EXPECT_OK(mimo_comm_allreduce(comm, NULL, 0, MIMO_I32, MIMO_SUM, stream));
    MPI_FAILS(mimo_comm_barrier(comm), MIMO_ERR_MISMATCH,
              "rank 2 called barrier, rank 0 called barrier (the same in words: an "
              "earlier call was missing or extra");
}

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* No rank leaves before the last one has come, with and without the agreement. */
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

/* Sums of all dtypes, on the caller's memory and through the library's. Both give the same rounded
 * bits. */
static void compare_sums(mimo_dtype dtype)
{
    enum { MANY = 40001 };
    mimo_comm *comm = mpi_test_comm();
    int64_t bytes = MANY * (int64_t)mimo_dtype_size(dtype);
    test_room room[2];
    for (int guarded = 0; guarded < 2; guarded++) {
        room[guarded] = test_room_new(bytes);
        for (int64_t i = 0; i < MANY; i++) {
            float value = (float)(int64_t)(word(comm->rank, i) % 2000001) / 1001 - 999;
            uint16_t half = dtype == MIMO_F16 ? mimo_f16_from(value) : mimo_bf16_from(value);
            if (dtype == MIMO_F32)
                ((float *)room[guarded].host)[i] = value;
            else
                ((uint16_t *)room[guarded].host)[i] = half;
        }
        test_push(&room[guarded]);
        mpi_test_guard(comm, guarded);
        MPI_EXPECT_OK(
            mimo_comm_allreduce(comm, room[guarded].place, MANY, dtype, MIMO_SUM, test_stream()));
        test_pull(&room[guarded]);
    }
    MPI_EXPECT_BITS(bits_of(room[1].host, room[0].host, bytes, bytes / MANY, 0),
                    "guarded sums of %s", mimo_dtype_name(dtype));
    test_room_free(&room[0]);
    test_room_free(&room[1]);
}

/* Small integers are exact in both 16-bit floats, in any order. */
MPI_TEST(comm, sums_of_16_bits)
{
    enum { HALF, BRAIN, MOST, KINDS, COUNT = 33 };
    mimo_comm *comm = mpi_test_comm();
    int rank = mimo_comm_rank(comm), size = mimo_comm_size(comm);
    test_tile tile[KINDS];
    uint16_t *at[KINDS];
    for (int k = 0; k < KINDS; k++) {
        mimo_dtype dtype = k == HALF ? MIMO_F16 : MIMO_BF16;
        tile[k] = test_tile_new("t", dtype, COUNT, 1, 1);
        at[k] = tile[k].room.host;
        for (int i = 0; i < COUNT; i++)
            at[k][i] =
                k == HALF ? mimo_f16_from((float)(rank * i)) : mimo_bf16_from((float)(rank - i));
        test_push(&tile[k].room);
        MPI_EXPECT_OK(mimo_comm_allreduce(comm, tile[k].view.data, COUNT, dtype,
                                          k == MOST ? MIMO_MAX : MIMO_SUM, test_stream()));
        test_pull(&tile[k].room);
    }
    int ranks = size * (size - 1) / 2;
    for (int i = 0; i < COUNT; i++) {
        MPI_EXPECT(mimo_f16_to(at[HALF][i]) == (float)(ranks * i), "f16 [%d]", i);
        MPI_EXPECT(mimo_bf16_to(at[BRAIN][i]) == (float)(ranks - size * i), "bf16 [%d]", i);
        MPI_EXPECT(mimo_bf16_to(at[MOST][i]) == (float)(size - 1 - i), "max [%d]", i);
    }
    compare_sums(MIMO_F32);
    compare_sums(MIMO_F16);
    compare_sums(MIMO_BF16);
}

MPI_TEST(comm, bootstrap)
{
    MPI_Comm world = MPI_COMM_WORLD;
    mimo_bootstrap bootstrap = MIMO_BOOTSTRAP_INIT;
    int all[3] = {-1, -1, -1};
    MPI_EXPECT_OK(mimo_bootstrap_from_mpi(&bootstrap, &world));
    MPI_EXPECT(bootstrap.rank == mpi_test_rank() && bootstrap.ranks == 3, "rank %d of %d",
               bootstrap.rank, bootstrap.ranks);
    int code = bootstrap.allgather(bootstrap.context, all, &bootstrap.rank, sizeof(int));
    MPI_EXPECT(code == 0 && all[0] == 0 && all[1] == 1 && all[2] == 2, "gathered %d %d %d", all[0],
               all[1], all[2]);
}

static mimo_status create(mimo_comm **out, int agree, int checks, int64_t deadline)
{
    mimo_comm_desc desc = MIMO_COMM_DESC_INIT;
    desc.agree = agree;
    desc.checks = checks;
    desc.deadline = deadline;
    return mimo_comm_create_mpi(out, MPI_COMM_WORLD, &desc);
}

/* What the descriptor says wins over the environment, which is then not even read. */
MPI_TEST(comm, policy)
{
    bool last = mpi_test_rank() == mpi_test_size() - 1;
    mimo_comm *comm = NULL, *half = NULL;
    mimo_grid *grid = mpi_test_grid("dp=3", 0);
    mimo_bridge *bridge = NULL;
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    setenv("MIMO_AGREE", last ? "0" : "1", 1);
    setenv("MIMO_CHECK", "nonsense", 1);
    setenv("MIMO_DEADLINE_MS", "soon", 1);
    MPI_EXPECT_OK(create(&comm, 1, 0, 45000));
    MPI_EXPECT(comm && mimo_comm_deadline(comm) == 45000, "a deadline");
    MPI_EXPECT_OK(mimo_comm_split(&half, comm, 0, 0));
    MPI_EXPECT(mimo_comm_deadline(half) == 45000, "a deadline of the family");
    desc.src = desc.dst = grid;
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, half, &desc));
    mimo_bridge_destroy(bridge);
    mimo_comm_destroy(half);
    mimo_comm_destroy(comm);
    comm = NULL;
    setenv("MIMO_AGREE", "1", 1);
    setenv("MIMO_CHECK", "", 1);
    MPI_FAILS(create(&comm, !last, MIMO_FROM_ENV, 0), MIMO_ERR_MISMATCH,
              "rank 2 called mimo_comm_create_mpi under MIMO_AGREE=0");
    MPI_FAILS(create(&comm, 1, last ? MIMO_CHECK_CALLS : 0, 0), MIMO_ERR_MISMATCH,
              "rank 2 called mimo_comm_create_mpi under MIMO_CHECK=calls");
    MPI_EXPECT_STATUS(create(&comm, 1, MIMO_FROM_ENV, MIMO_FROM_ENV), MIMO_ERR_ARGUMENT);
    unsetenv("MIMO_DEADLINE_MS");
    static const int wrong[][3] = {{2, 0, 0}, {-2, 0, 0}, {0, 8, 0}, {0, -2, 0}, {0, 0, -2}};
    static const char *const words[] = {"agree = 2 is neither", "agree = -2 is", "checks = 8 has",
                                        "checks = -2 has", "deadline=-2 is not in [0, "};
    for (int i = 0; i < 5; i++) {
        MPI_FAILS(create(&comm, wrong[i][0], wrong[i][1], wrong[i][2]), MIMO_ERR_ARGUMENT,
                  words[i]);
    }
    /* One rank's mistake: all get its sentence. */
    MPI_FAILS(create(&comm, last ? 2 : 1, 0, 0), MIMO_ERR_ARGUMENT,
              "rank 2: communicator: agree = 2 is neither 0 nor 1");
    MPI_FAILS(create(&comm, 2, last ? 0 : 8, 0), MIMO_ERR_ARGUMENT,
              "rank 0: communicator: agree = 2");
    MPI_EXPECT(!comm, "a failed call made a communicator");
    unsetenv("MIMO_AGREE");
    unsetenv("MIMO_CHECK");
}

static void count_zeros(void *context, mimo_log_level level, const char *text)
{
    *(int *)context +=
        level == MIMO_LOG_WARNING && strstr(text, "are all 0, so ranks do not agree");
}

/* A designated initialiser that sets the size alone switches agreement off. */
MPI_TEST(comm, descriptor_of_zeros)
{
    int lines = 0;
    mimo_comm *comm = NULL;
    const mimo_comm_desc zeros = {.size = sizeof zeros};
    mimo_log_set(count_zeros, &lines);
    MPI_EXPECT_OK(mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, &zeros));
    MPI_EXPECT(lines == 1, "%d lines", lines);
    mimo_comm_destroy(comm);
    MPI_EXPECT_OK(create(&comm, 0, MIMO_FROM_ENV, 0));
    MPI_EXPECT(lines == 1, "%d lines, where agree = 0 was meant", lines);
    mimo_comm_destroy(comm);
    mimo_log_set(NULL, NULL);
}

MPI_TEST(comm, wrong_handles)
{
    mimo_comm *comm = NULL;
    MPI_Comm null = MPI_COMM_NULL, solo, inter;
    mimo_bootstrap bootstrap = MIMO_BOOTSTRAP_INIT;
    MPI_EXPECT_STATUS(mimo_comm_create_mpi(NULL, MPI_COMM_WORLD, NULL), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_STATUS(mimo_comm_create_mpi(&comm, MPI_COMM_NULL, NULL), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_STATUS(mimo_bootstrap_from_mpi(&bootstrap, &null), MIMO_ERR_ARGUMENT);
    MPI_FAILS(mimo_comm_create_mpi(&comm, (MPI_Comm)0, NULL), MIMO_ERR_ARGUMENT,
              "mimo_comm_create_mpi: the communicator is a handle that was never set");
    MPI_EXPECT_STATUS(mimo_comm_borrow_mpi(&comm, (MPI_Comm)0, NULL), MIMO_ERR_ARGUMENT);
    null = (MPI_Comm)0;
    MPI_EXPECT_STATUS(mimo_bootstrap_from_mpi(&bootstrap, &null), MIMO_ERR_ARGUMENT);
    MPI_Comm_split(MPI_COMM_WORLD, mpi_test_rank(), 0, &solo);
    MPI_Intercomm_create(solo, 0, MPI_COMM_WORLD, 1 - mpi_test_rank(), 7, &inter);
    MPI_FAILS(mimo_comm_create_mpi(&comm, inter, NULL), MIMO_ERR_ARGUMENT, "intercommunicator");
    MPI_EXPECT(comm == NULL, "a failed call wrote its output");
    MPI_Comm_free(&inter);

    /* Borrowed: ours to use, not to free. */
    MPI_EXPECT_OK(mimo_comm_borrow_mpi(&comm, solo, NULL));
    MPI_EXPECT(mimo_comm_size(comm) == 1, "size %d", mimo_comm_size(comm));
    mimo_comm_destroy(comm);
    int size = 0;
    MPI_EXPECT(MPI_Comm_size(solo, &size) == MPI_SUCCESS && size == 1, "the handle was freed");
    MPI_Comm_free(&solo);
}

/* Two gathers in flight, with other calls between, end in any order. The ranks' communicator may
 * go before. */
MPI_TEST(comm, gathers_that_were_begun)
{
    mimo_comm *comm = mpi_test_comm_new();
    int rank = mpi_test_rank(), size = mpi_test_size(), squares[64], cubes[64];
    int square = rank * rank, cube = square * rank;
    mimo_host_gather *first = NULL, *second = NULL;
    MPI_EXPECT_OK(
        mimo_comm_host_allgather_start(&first, comm, squares, &square, sizeof square, NULL));
    MPI_EXPECT_OK(
        mimo_comm_host_allgather_start(&second, comm, cubes, &cube, sizeof cube, "cubes"));
    MPI_EXPECT_OK(mimo_comm_barrier(comm));
    MPI_EXPECT_OK(mimo_comm_host_allgather_wait(&second));
    if (size > 1) {
        MPI_FAILS(mimo_comm_host_allgather_start(&second, comm, cubes, &cube, sizeof cube,
                                                 rank == 1 ? "cubes" : "squares"),
                  MIMO_ERR_MISMATCH,
                  "rank 1 called cubes host_allgather of 4 bytes a rank, rank 0 called "
                  "squares host_allgather of 4 bytes a rank");
    }
    mimo_comm_destroy(comm);
    MPI_EXPECT_OK(mimo_comm_host_allgather_wait(&first));
    MPI_EXPECT(!first && !second, "a wait left its handle");
    for (int r = 0; r < size; r++)
        MPI_EXPECT(squares[r] == r * r && cubes[r] == r * r * r, "rank %d gave %d and %d", r,
                   squares[r], cubes[r]);
}
