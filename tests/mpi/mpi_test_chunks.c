/* Calls in chunks: what arrives and when, the same bits as whole calls, several in flight, and
 * wrong arguments. mpi_test_routed_general.c has chunks of every kind of grid and batch. */
#include <stdlib.h>
#include <string.h>

#include "bridge_bed.h"
#include "bridge_pairs.h"

static bed_case paired_case(const grids *pair, bool partition, bool buffer)
{
    bed_case c = {.src = {.grid = pair->src}, .dst = {.grid = pair->dst}};
    int64_t src_dp = ref_size(pair->src, "dp"), dst_dp = ref_size(pair->dst, "dp");
    c.dst.partition = partition;
    c.src_letters = c.dst_letters = "sbh";
    c.executor = EXECUTOR_P2P;
    c.buffer = buffer;
    c.batch = 3 * (src_dp > dst_dp ? src_dp : dst_dp);
    c.seq = 4 * ref_size(pair->dst, "cp");
    return c;
}

/* ----------------------------------- the same bits ------------------------------------ */

/* Numbers whose sums are rounded, so that another order of adding gives other bits. */
static void fill_with_fractions(const test_tile *tile, uint64_t seed)
{
    float *at = tile->room.host;
    for (int64_t i = 0; i < tile->room.bytes / (int64_t)sizeof *at; i++)
        at[i] = (float)(int64_t)(ref_word(seed, i, mpi_test_rank(), 0) >> 20) * 1e-9f - 5.0f;
    test_push(&tile->room);
}

/* Compare a whole call with a call in chunks. */
static void compare(bridge_bed *bed, bool backward, int chunks)
{
    mimo_side source = backward ? MIMO_DST : MIMO_SRC, target = backward ? MIMO_SRC : MIMO_DST;
    test_tile from = bed_tile_new(bed, source);
    test_tile whole = bed_target_new(bed, target), chunked = bed_target_new(bed, target);
    mimo_op *op = NULL;
    bed->c.chunks = chunks;
    fill_with_fractions(&from, 5);
    MPI_EXPECT_OK(bed_call(bed, backward, &whole, &from));
    MPI_EXPECT_OK(bed_start_chunked(&op, bed, backward, &chunked, &from));
    MPI_EXPECT_OK(mimo_op_wait_chunk(op, chunks - 1, test_stream()));
    MPI_EXPECT_OK(mimo_op_wait(&op));
    test_pull(&whole.room);
    test_pull(&chunked.room);
    MPI_EXPECT_BITS(bed_bits(bed, &chunked, &whole), "%s: %s, beside the whole call",
                    bed_text(&bed->c), backward ? "backward" : "forward");
    test_tile_free(&from);
    test_tile_free(&whole);
    test_tile_free(&chunked);
}

/* Contributions that are added, at their reader or where they are gathered first; and rows that
 * only move. Copies of a source differ, so that a wrong sender gives wrong bits. */
BED_TEST(chunks, same_bits)
{
    static const int counts[] = {2, 3, 7};
    FOR_EACH_PAIR(p)
    for (int way = 0; way < 4; way++) {
        bed_case c = paired_case(&bridge_pairs[p], way % 2, buffer);
        c.src_letters = way / 2 ? "bsh" : "sbh";
        bridge_bed bed = bed_create(&c);
        for (int i = 0; bed.bridge && i < 3; i++) {
            compare(&bed, false, counts[i]);
            compare(&bed, true, counts[i]);
        }
        bed_destroy(&bed);
    }
}

/* Collective makes one chunk, whatever the caller asks for. The first chunk brings everything. */
MPI_TEST(chunks, of_collective)
{
    FOR_EACH_PAIR(p)
    {
        bed_case c = paired_case(&bridge_pairs[p], p % 2, false);
        c.executor = EXECUTOR_COLLECTIVE;
        bridge_bed bed = bed_create(&c);
        for (int backward = 0; bed.bridge && backward < 2; backward++) {
            test_tile from = bed_tile_new(&bed, backward ? MIMO_DST : MIMO_SRC);
            test_tile to = bed_target_new(&bed, backward ? MIMO_SRC : MIMO_DST);
            mimo_op *op = NULL;
            bed.c.chunks = 3;
            bed_fill(&bed, &from, backward, 9);
            MPI_EXPECT_OK(bed_start_chunked(&op, &bed, backward, &to, &from));
            MPI_EXPECT_OK(mimo_op_wait_chunk(op, 0, test_stream()));
            bed_check_target(&bed, &to, backward, 9);
            MPI_EXPECT_OK(mimo_op_wait(&op));
            test_tile_free(&from);
            test_tile_free(&to);
        }
        bed_destroy(&bed);
    }
}

/* ------------------------------------- in time -------------------------------------- */

/* Rank r gives sample r, so chunk r of every target. Rank 3 takes nothing. It begins only when
 * ranks 0 and 1 have seen the chunks before its own. (A rank that takes rows can't be the late one:
 * the rows of a call are written once all ranks that it writes to are ready.) */
BED_TEST(chunks, first_before_the_last_is_sent)
{
    enum { LATE = 3, SEEN_TAG = 77 };
    bed_case c = bed_case_of(EXECUTOR_P2P, "dp=4", "cp=2,dp=1", "sbh", "sbh");
    c.dst.partition = true;
    c.buffer = buffer;
    c.batch = 4;
    c.seq = 16;
    c.given = true;
    c.chunks = 4;
    int rank = mpi_test_rank(), seen = 1;
    mimo_op *op = NULL;
    bridge_bed bed = bed_create(&c);
    test_tile from = bed_tile_new(&bed, MIMO_SRC), to = bed_target_new(&bed, MIMO_DST);
    if (buffer)
        test_needs_reach(mpi_test_size()); /* NCCL's first message waits for rank 3 */
    bed_fill(&bed, &from, false, 3);
    setenv("MIMO_AGREE", "0", 1); /* agreeing would wait for rank 3 */
    for (int peer = 0; peer <= 1 && rank == LATE; peer++)
        MPI_Recv(&seen, 1, MPI_INT, peer, SEEN_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_EXPECT_OK(bed_start_chunked(&op, &bed, false, &to, &from));
    if (rank <= 1) {
        for (int chunk = 0; chunk < LATE; chunk++) {
            MPI_EXPECT_OK(mimo_op_wait_chunk(op, chunk, test_stream()));
            bed_check_chunk(&bed, &to, false, 3, chunk);
        }
        bed_check_no_chunk(&bed, &to, false, LATE);
        MPI_Send(&seen, 1, MPI_INT, LATE, SEEN_TAG, MPI_COMM_WORLD);
    }
    MPI_EXPECT_OK(mimo_op_wait_chunk(op, 3, test_stream()));
    MPI_EXPECT_OK(mimo_op_wait(&op));
    bed_check_target(&bed, &to, false, 3);
    setenv("MIMO_AGREE", "1", 1);
    bed_destroy(&bed);
}

/* Calls in chunks and whole ones, forward and backward, in flight together. Chunks are waited for
 * from the last operation to the first, some not at all. Then again on the same tiles. */
BED_TEST(chunks, several_in_flight)
{
    enum { FLIGHTS = 6 };
    bed_case c = paired_case(&(grids){"tp=1,dp=4", "tp=1,cp=2,dp=2"}, false, buffer);
    test_tile from[FLIGHTS], to[FLIGHTS];
    mimo_op *ops[FLIGHTS] = {NULL};
    c.sums = true;
    bridge_bed bed = bed_create(&c);
    for (int i = 0; i < FLIGHTS; i++) {
        from[i] = bed_tile_new(&bed, i % 2 ? MIMO_DST : MIMO_SRC);
        to[i] = bed_target_new(&bed, i % 2 ? MIMO_SRC : MIMO_DST);
    }
    for (uint64_t round = 0; bed.bridge && round < 3; round++) {
        for (int i = 0; i < FLIGHTS; i++)
            bed_fill(&bed, &from[i], i % 2, round * FLIGHTS + (uint64_t)i);
        for (int i = 0; i < FLIGHTS; i++) {
            bool backward = i % 2;
            bed.c.chunks = 1 + i;
            MPI_EXPECT_OK(
                i == 3 ? (backward ? mimo_bridge_backward_start : mimo_bridge_forward_start)(
                             &ops[i], bed.bridge, &to[i].view, &from[i].view, 1, test_side_stream())
                       : bed_start_chunked(&ops[i], &bed, backward, &to[i], &from[i]));
        }
        for (int i = FLIGHTS - 1; i >= 0; i -= 2) {
            bed.c.chunks = 1 + i;
            for (int chunk = i; chunk >= 0 && i != 3; chunk--) {
                MPI_EXPECT_OK(mimo_op_wait_chunk(ops[i], chunk, test_stream()));
                bed_check_chunk(&bed, &to[i], i % 2, round * FLIGHTS + (uint64_t)i, chunk);
            }
        }
        MPI_EXPECT_OK(mimo_op_wait_chunk(ops[FLIGHTS - 1], FLIGHTS - 1, test_stream()));
        for (int i = 0; i < FLIGHTS; i++)
            MPI_EXPECT_OK(mimo_op_wait(&ops[i]));
        for (int i = 0; i < FLIGHTS; i++)
            bed_check_target(&bed, &to[i], i % 2, round * FLIGHTS + (uint64_t)i);
    }
    bed_destroy(&bed);
}

/* ------------------------------------- mistakes ------------------------------------- */

static mimo_status forward_in(const bridge_bed *bed, int chunks, const test_tile *to,
                              const test_tile *from)
{
    bridge_bed asked = *bed;
    mimo_op *op = NULL;
    asked.c.chunks = chunks;
    mimo_status status = bed_start_chunked(&op, &asked, false, to, from);
    return status == MIMO_OK ? mimo_op_wait(&op) : status;
}

static void expect_wrong_waits(const bridge_bed *bed, const test_tile *to, const test_tile *from)
{
    mimo_op *op = NULL;
    MPI_EXPECT_STATUS(mimo_op_wait_chunk(NULL, 0, test_stream()), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_OK(
        mimo_bridge_forward_start(&op, bed->bridge, &to->view, &from->view, 1, test_stream()));
    MPI_FAILS(mimo_op_wait_chunk(op, 0, test_stream()), MIMO_ERR_STATE, "was not begun in chunks");
    MPI_EXPECT_OK(mimo_op_wait(&op));
    MPI_EXPECT_OK(bed_start_chunked(&op, bed, false, to, from));
    MPI_FAILS(mimo_op_wait_chunk(op, bed->c.chunks, test_stream()), MIMO_ERR_ARGUMENT,
              "there is no chunk 2 of 2");
    MPI_FAILS(mimo_op_wait_chunk(op, -1, test_stream()), MIMO_ERR_ARGUMENT,
              "there is no chunk -1 of 2");
    MPI_EXPECT_OK(mimo_op_wait_chunk(op, 1, test_stream()));
    MPI_EXPECT_OK(mimo_op_wait(&op));
}

/* One rank passes no tensors: no rank's chunk arrives. */
static void expect_told_in_a_chunk(executor_id executor)
{
    bed_case c = paired_case(&(grids){"tp=1,dp=4", "tp=1,cp=2,dp=2"}, true, false);
    mimo_op *op = NULL;
    mimo_move_desc move = MIMO_MOVE_DESC_INIT;
    c.executor = executor;
    bridge_bed bed = bed_create(&c);
    test_tile from = bed_tile_new(&bed, MIMO_SRC), to = bed_target_new(&bed, MIMO_DST);
    move.to = &to.view;
    move.from = &from.view;
    move.n = mpi_test_rank() != 3;
    move.chunks = 2;
    move.stream = test_side_stream();
    MPI_EXPECT_OK(mimo_bridge_forward_start_chunked(&op, bed.bridge, &move));
    MPI_FAILS(mimo_op_wait_chunk(op, 0, test_stream()), MIMO_ERR_ARGUMENT, "rank 3: bridge ",
              " forward of 0 in 2 chunks: 0 tensors");
    MPI_EXPECT_STATUS(mimo_op_wait(&op), MIMO_ERR_ARGUMENT);
    bed_destroy(&bed);
}

/* If one rank passes wrong arguments all ranks get the error, even those that wait for a chunk. The
 * next call works. */
BED_TEST(chunks, mistakes_of_one_rank)
{
    bed_case c = paired_case(&(grids){"tp=1,dp=4", "tp=1,cp=2,dp=2"}, true, buffer);
    mimo_op *op = NULL;
    int rank = mpi_test_rank();
    test_agree_on_data();
    c.chunks = 2;
    bridge_bed bed = bed_create(&c);
    test_tile from = bed_tile_new(&bed, MIMO_SRC), to = bed_target_new(&bed, MIMO_DST);
    MPI_FAILS(forward_in(&bed, rank == 1 ? 0 : 2, &to, &from), MIMO_ERR_ARGUMENT,
              "rank 1: bridge 1 forward of 1", ": 0 chunks");
    MPI_FAILS(forward_in(&bed, rank == 2 ? -7 : 2, &to, &from), MIMO_ERR_ARGUMENT, ": -7 chunks");
    MPI_FAILS(forward_in(&bed, rank == 3 ? 5 : 2, &to, &from), MIMO_ERR_MISMATCH,
              "rank 3 called bridge 1 forward of 1 in 5 chunks",
              "bridge 1 forward of 1 in 2 chunks");
    MPI_EXPECT_STATUS(mimo_bridge_forward_start_chunked(NULL, bed.bridge, NULL), MIMO_ERR_ARGUMENT);
    mimo_move_desc move = MIMO_MOVE_DESC_INIT;
    move.size = rank == 2 ? 7 : sizeof move;
    move.to = &to.view;
    move.from = &from.view;
    move.n = 1;
    move.stream = test_side_stream();
    MPI_EXPECT_OK(mimo_bridge_forward_start_chunked(&op, bed.bridge, &move));
    MPI_FAILS(mimo_op_wait_chunk(op, 0, test_stream()), MIMO_ERR_ARGUMENT,
              "rank 2: bridge 1: move: the descriptor's size is 7");
    MPI_EXPECT_STATUS(mimo_op_wait(&op), MIMO_ERR_ARGUMENT);
    move.size = sizeof move;
    MPI_EXPECT_OK(mimo_bridge_forward_start_chunked(&op, bed.bridge, rank == 1 ? NULL : &move));
    MPI_FAILS(mimo_op_wait(&op), MIMO_ERR_ARGUMENT, "rank 1: bridge 1: forward: desc is NULL");
    expect_wrong_waits(&bed, &to, &from);
    expect_told_in_a_chunk(EXECUTOR_P2P);
    expect_told_in_a_chunk(EXECUTOR_COLLECTIVE);
    bed_move(&bed, false, 4);
    bed_destroy(&bed);
}
