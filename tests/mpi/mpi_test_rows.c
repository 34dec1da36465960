/* Rows that every rank gives: flat tiles on both sides, of which each rank has any number. The
 * calls then need no agreement. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/bridge_types.h"
#include "bridge_bed.h"
#include "cases_ran.h"
#include "guarded.h"
#include "reference_grid.h"

static void prepare(const bridge_bed *bed, bool backward)
{
    mimo_move_desc move = MIMO_MOVE_DESC_INIT;
    test_tile from = bed_tile_new(bed, backward ? MIMO_DST : MIMO_SRC);
    test_tile to = bed_target_new(bed, backward ? MIMO_SRC : MIMO_DST);
    move.to = &to.view;
    move.from = &from.view;
    move.n = 1;
    move.stream = test_stream();
    MPI_EXPECT_OK(mimo_bridge_prepare(bed->bridge, backward, &move));
    test_tile_free(&from);
    test_tile_free(&to);
}

static void move_both_ways(bridge_bed *bed, uint64_t seed)
{
    for (uint64_t round = 0; bed->bridge && round < 3; round++) {
        bed->c.sums = round > 0;
        bed->c.chunks = round < 2 ? 0 : 1 + (int)(seed % 4);
        bed_move(bed, false, seed + round);
        bed_move(bed, true, seed + round);
    }
    bed->c.chunks = 0;
}

/* ------------------------------------- random ------------------------------------- */

enum { CASES = 30, CASES_AT_LEAST = 25 };

static bed_case draw_case(uint64_t *random, char src[64], char dst[64])
{
    static const char *const letters[] = {"th", "bh"};
    bed_case c = {.executor = EXECUTOR_P2P, .seq = 1, .rows = true};
    bed_draw_grid(random, src, &c.src.offset);
    bed_draw_grid(random, dst, &c.dst.offset);
    c.src.grid = src;
    c.dst.grid = dst;
    c.dst.all_stages = random_below(random, 2);
    c.src.ragged = random_below(random, 4) ? next_random(random) | 1 : 0;
    c.dst.ragged = random_below(random, 4) ? next_random(random) | 1 : 0;
    c.src_letters = letters[random_below(random, 2)];
    c.dst_letters = letters[random_below(random, 2)];
    c.batch = random_below(random, 30);
    c.dtype = (mimo_dtype)random_below(random, MIMO_F8);
    return c;
}

/* Half of the bridges move with MIMO_AGREE=0, which forbids what a guess would need. Every fifth
 * one checks where its rows come from. */
BED_TEST(rows, told_by_every_rank)
{
    int64_t ran = 0;
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        uint64_t random = seed * 300 + (uint64_t)mpi_test_size();
        char src[64], dst[64];
        bed_case c = draw_case(&random, src, dst);
        c.buffer = buffer;
        setenv("MIMO_CHECK", seed % 5 == 0 ? "samples" : "", 1);
        bridge_bed bed = bed_create(&c);
        if (bed.bridge && seed % 3 == 0)
            prepare(&bed, seed % 2);
        setenv("MIMO_AGREE", seed % 2 ? "0" : "1", 1);
        move_both_ways(&bed, seed);
        setenv("MIMO_AGREE", "1", 1);
        bed_destroy(&bed);
        ran += c.batch > 0;
    }
    unsetenv("MIMO_CHECK");
    MPI_CASES_RAN(ran, CASES, CASES_AT_LEAST, "splits of rows");
}

/* -------------------------------------- beside ------------------------------------ */

/* The same bridge, for another case. */
static bridge_bed with_case(const bridge_bed *bed, const bed_case *c)
{
    bridge_bed other = *bed;
    other.c = *c;
    other.c.src.order = c->src_letters[0] == 's' ? MIMO_ROWS_SBH : MIMO_ROWS_BSH;
    other.c.dst.order = c->dst_letters[0] == 's' ? MIMO_ROWS_SBH : MIMO_ROWS_BSH;
    other.c.dst.partial = true;
    other.src = reference_of(&other.c.src, c->batch, c->seq);
    other.dst = reference_of(&other.c.dst, c->batch, c->seq);
    return other;
}

static bed_case thirteen_rows(bool buffer)
{
    bed_case c = bed_case_of(EXECUTOR_ROUTED, "dp=4", "cp=2,dp=2", "th", "bh");
    c.src.ragged = 3;
    c.dst.ragged = 4;
    c.buffer = buffer;
    c.rows = true;
    c.batch = 13;
    c.seq = 1;
    return c;
}

/* One update gives rows for the flat calls of a bridge, and a batch for the others. */
BED_TEST(rows, beside_samples)
{
    bed_case c = thirteen_rows(buffer);
    bridge_bed bed, shaped;
    bed_given given;
    bed = bed_create(&c);
    c.rows = false;
    c.given = true;
    c.src.ragged = c.dst.ragged = 0;
    c.src_letters = "sbh";
    c.batch = 7;
    c.seq = 4;
    shaped = with_case(&bed, &c);
    mimo_batch_desc both = bed_describe(&bed, &given);
    free(given.spans);
    both.batch = 7;
    MPI_EXPECT_OK(mimo_bridge_update(bed.bridge, &both, 1));
    setenv("MIMO_AGREE", "0", 1);
    for (uint64_t round = 0; bed.bridge && round < 3; round++) {
        bed_move(&bed, false, round);
        bed_move(&shaped, false, round);
        bed_move(&bed, true, round);
        bed_move(&shaped, true, round);
    }
    setenv("MIMO_AGREE", "1", 1);
    if (bed.bridge)
        MPI_EXPECT_OK(mimo_bridge_self_test(bed.bridge, 1));
    reference_release(&shaped.src);
    reference_release(&shaped.dst);
    bed_destroy(&bed);
}

/* More splits than are remembered do not push out the one that was given. */
BED_TEST(rows, after_many_splits)
{
    enum { SPLITS = 12 };
    bed_case c = thirteen_rows(buffer);
    test_agree_on_data();
    bridge_bed bed = bed_create(&c);
    c.rows = false;
    c.src.ragged = c.dst.ragged = 0;
    c.src_letters = "sbh";
    c.seq = 4;
    for (int i = 1; bed.bridge && i <= SPLITS; i++) {
        c.batch = i;
        bridge_bed shaped = with_case(&bed, &c);
        bed_move(&shaped, false, (uint64_t)i);
        reference_release(&shaped.src);
        reference_release(&shaped.dst);
    }
    if (bed.bridge)
        bed_move(&bed, true, 1);
    bed_destroy(&bed);
}

/* ------------------------------------- questions ---------------------------------- */

/* On a device messages are staged: rank 0 gets 34 rows in two messages, and sends as many back.
 * Each message takes up to 16 bytes more. */
static void expect_messages(const bridge_bed *bed, const mimo_bridge_sizes *sizes)
{
    int64_t bytes = -1;
    mimo_comm *comm = bed->bridge->mover.comm;
    const mimo_device *real = comm->device;
    mimo_device device = *real;
    device.enqueues = true;
    comm->device = &device;
    MPI_EXPECT_OK(mimo_bridge_staging(&bytes, bed->bridge, sizes));
    comm->device = real;
    MPI_EXPECT(mpi_test_rank() > 0 || bytes == 2 * (34 * 12 + 2 * 16), "%d bytes of staging",
               (int)bytes);
}

static mimo_status give(mimo_bridge *bridge, int64_t src, int64_t dst)
{
    mimo_batch_desc desc = MIMO_BATCH_DESC_INIT;
    desc.src_rows = src;
    desc.dst_rows = dst;
    return mimo_bridge_update(bridge, &desc, 1);
}

static mimo_bridge_sizes flat_sizes(int64_t batch, int64_t seq)
{
    mimo_bridge_sizes sizes = MIMO_BRIDGE_SIZES_INIT;
    sizes.batch = batch;
    sizes.seq = seq;
    sizes.hidden = 3;
    sizes.dtype = MIMO_F32;
    sizes.src_letters = sizes.dst_letters = "th";
    return sizes;
}

static void expect_range(const mimo_bridge *bridge, mimo_side side, int64_t first, int64_t count)
{
    int64_t got_first = -7, got_count = -7;
    MPI_EXPECT_OK(mimo_bridge_samples(&got_first, &got_count, bridge, side, -1));
    MPI_EXPECT(got_first == first && got_count == count, "rows [%d, +%d) of %s, not [%d, +%d)",
               (int)got_first, (int)got_count, side == MIMO_SRC ? "src" : "dst", (int)first,
               (int)count);
}

/* Tiles, numbers of rows and staging on 4 ranks: 0, 5, 30 and 1 rows go to cp pairs with 34 and 2.
 * Backward stages one contribution of every src row. */
MPI_TEST(rows, what_the_bridge_says)
{
    static const int64_t src[] = {0, 5, 30, 1}, src_first[] = {0, 0, 5, 35};
    bed_case c = {.src = {.grid = "dp=4"},
                  .dst = {.grid = "cp=2,dp=2"},
                  .src_letters = "th",
                  .dst_letters = "th",
                  .executor = EXECUTOR_ROUTED};
    int rank = mpi_test_rank();
    int64_t dst = rank < 2 ? 34 : 2, bytes = -1, first = -7, count = -7;
    mimo_tensor tile;
    mimo_bridge_sizes sizes = flat_sizes(-1, 0);
    bridge_bed bed = bed_create(&c);
    MPI_EXPECT_STATUS(mimo_bridge_samples(&first, &count, bed.bridge, MIMO_SRC, -1),
                      MIMO_ERR_SHAPE);
    MPI_EXPECT_OK(give(bed.bridge, src[rank], dst));
    expect_range(bed.bridge, MIMO_SRC, src_first[rank], src[rank]);
    expect_range(bed.bridge, MIMO_DST, rank < 2 ? 0 : 34, dst);
    MPI_EXPECT_OK(mimo_bridge_tile(&tile, bed.bridge, MIMO_SRC, &sizes));
    MPI_EXPECT(tile.shape[0] == src[rank] && tile.shape[1] == 3, "%d rows", (int)tile.shape[0]);
    MPI_EXPECT_OK(mimo_bridge_staging(&bytes, bed.bridge, &sizes));
    MPI_EXPECT(bytes == (src[rank] * 12 + 63) / 64 * 64, "%d bytes of staging", (int)bytes);
    expect_messages(&bed, &sizes);
    sizes = flat_sizes(9, 4);
    MPI_EXPECT_OK(mimo_bridge_tile(&tile, bed.bridge, MIMO_DST, &sizes));
    MPI_EXPECT(tile.shape[0] == dst, "%d rows", (int)tile.shape[0]);
    sizes = flat_sizes(9, 3);
    MPI_FAILS(mimo_bridge_tile(&tile, bed.bridge, MIMO_DST, &sizes), MIMO_ERR_SHAPE,
              "9 samples of 3 positions, and the ranks gave 36 rows");
    sizes.dst_letters = "sbh"; /* the call would count samples */
    MPI_EXPECT_OK(mimo_bridge_tile(&tile, bed.bridge, MIMO_SRC, &sizes));
    MPI_EXPECT(tile.shape[0] == (rank == 0 ? 9 : 6), "%d rows", (int)tile.shape[0]);
    bed_destroy(&bed);
}

/* ------------------------------------- mistakes ----------------------------------- */

enum { WRONG = 2 };

static void refuse(mimo_bridge *bridge, int64_t src, int64_t dst, mimo_status status,
                   const char *words)
{
    MPI_FAILS(give(bridge, src, dst), status, words);
}

/* Of one rank, on 4: src copies 3 3 5 5, dst 0 8 on the last two. */
static void refuse_numbers(mimo_bridge *bridge, int64_t src, int64_t dst)
{
    int rank = mpi_test_rank();
    refuse(bridge, rank == 1 ? 4 : src, dst, MIMO_ERR_SHAPE,
           "bridge 1: update: src tiles: rank 1 holds 4 rows and rank 0, at the same dp coordinate "
           "0, holds 3");
    refuse(bridge, src, rank == 3 ? 7 : dst, MIMO_ERR_SHAPE,
           "the src tiles of all dp ranks hold 8 rows, the dst tiles 7");
    refuse(bridge, src, rank == 0 ? 2 : dst, MIMO_ERR_SHAPE,
           "rank 0: bridge 1: update: this rank gives 2 dst rows, and it has no role on that side");
    refuse(bridge, rank == WRONG ? -1 : src, dst, MIMO_ERR_ARGUMENT,
           "rank 2: bridge 1: update: -1 src rows and 0 dst rows: give both, or neither by -1");
    refuse(bridge, src, rank == WRONG ? -5 : dst, MIMO_ERR_ARGUMENT, "5 src rows and -5 dst rows");
    refuse(bridge, rank < 2 ? INT64_MAX : src, dst, MIMO_ERR_OVERFLOW, "");
    refuse(bridge, rank == WRONG ? -1 : src, rank == WRONG ? -1 : dst, MIMO_ERR_MISMATCH,
           "rank 2 called bridge 1 update to a batch that is not given, rank 0 called bridge 1 "
           "update to a batch that is not given with 3 src and 0 dst rows");
}

static mimo_status forward_flat(const bridge_bed *bed, int64_t src, int64_t dst)
{
    test_tile from = test_tile_new("th", MIMO_F32, src, 3, 1);
    test_tile to = test_tile_new("th", MIMO_F32, dst, 3, 1);
    mimo_status status = bed_call(bed, false, &to, &from);
    test_tile_free(&from);
    test_tile_free(&to);
    return status;
}

/* Rows where there can be none. */
static void refuse_kinds(void)
{
    bed_case c = bed_fan_in;
    mimo_batch_desc ragged = MIMO_BATCH_DESC_INIT;
    c.buffer = false;
    bridge_bed bed = bed_create(&c);
    MPI_FAILS(give(bed.bridge, 1, 2), MIMO_ERR_UNSUPPORTED, "a bridge with a partition has none");
    ragged.batch = 4;
    ragged.ragged = true;
    ragged.src_rows = ragged.dst_rows = 1;
    MPI_EXPECT_STATUS(mimo_bridge_update(bed.bridge, &ragged, 1), MIMO_ERR_UNSUPPORTED);
    bed_destroy(&bed);
    c.dst.partition = false;
    bed = bed_create(&c);
    MPI_FAILS(mimo_bridge_update(bed.bridge, &ragged, 1), MIMO_ERR_ARGUMENT,
              "1 src rows are given, and the spans of a ragged batch say these");
    bed_destroy(&bed);
}

/* Every rank gets the sentence, and the last update stays in force. */
MPI_TEST(rows, mistakes)
{
    bed_case c = {.src = {.grid = "tp=2,dp=2"},
                  .dst = {.grid = "dp=2", .offset = 2},
                  .src_letters = "th",
                  .dst_letters = "th",
                  .executor = EXECUTOR_ROUTED};
    int rank = mpi_test_rank();
    int64_t src = rank < 2 ? 3 : 5, dst = rank == 3 ? 8 : 0;
    test_agree_on_data();
    bridge_bed bed = bed_create(&c);
    MPI_EXPECT_OK(give(bed.bridge, src, dst));
    refuse_numbers(bed.bridge, src, dst);
    MPI_FAILS(forward_flat(&bed, 4, dst), MIMO_ERR_SHAPE,
              "src tile is f32 th[4,3], and this rank gave the update 3 src rows");
    MPI_FAILS(
        forward_flat(&bed, src, rank == WRONG ? 1 : dst), MIMO_ERR_SHAPE,
        "rank 2: bridge 1: dst tile is f32 th[1,3], and this rank gave the update 0 dst rows");
    MPI_EXPECT_OK(forward_flat(&bed, src, dst));
    MPI_EXPECT_OK(mimo_bridge_update(bed.bridge, NULL, 0)); /* nothing is given any more */
    MPI_EXPECT_OK(forward_flat(&bed, 4, rank < 2 ? 0 : 4));
    MPI_FAILS(forward_flat(&bed, 4, rank < 2 ? 0 : 5), MIMO_ERR_SHAPE,
              "hold 8 rows, the dst tiles 10");
    bed_destroy(&bed);
    refuse_kinds();
}
