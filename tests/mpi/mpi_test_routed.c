/* The routed executor on real ranks: the same bits as collective wherever both apply, several
 * tensors in one exchange, sums of contributions, and prepared calls that are used again.
 * Destinations in a buffer or elsewhere. */
#include <stdlib.h>
#include <string.h>

#include "bridge_bed.h"
#include "bridge_pairs.h"

/* A case of a pair that both executors take. */
static bed_case paired_case(const grids *pair, int cut)
{
    bed_case c = {.src = {.grid = pair->src}, .dst = {.grid = pair->dst}};
    int64_t src_dp = ref_size(pair->src, "dp"), dst_dp = ref_size(pair->dst, "dp");
    c.dst.partition = cut > 0;
    c.dst.sp = cut > 1;
    c.src_letters = c.dst_letters = "sbh";
    c.batch = 2 * (src_dp > dst_dp ? src_dp : dst_dp);
    c.seq = 2 * ref_size(pair->dst, "cp") * ref_size(pair->dst, "tp");
    return c;
}

static void compare_way(const bridge_bed *collective, const bridge_bed *routed, bool backward)
{
    const bed_case *c = &routed->c;
    mimo_side target = backward ? MIMO_SRC : MIMO_DST;
    test_tile from = bed_tile_new(routed, backward ? MIMO_DST : MIMO_SRC);
    test_tile to[2] = {bed_tile_new(routed, target), bed_target_new(routed, target)};
    bed_fill(routed, &from, backward, 3);
    for (int i = 0; i < 2; i++) {
        mimo_status status = bed_call(i == 0 ? collective : routed, backward, &to[i], &from);
        MPI_EXPECT(status == MIMO_OK, "%s: %s", bed_text(c), mimo_last_error());
        test_pull(&to[i].room);
    }
    MPI_EXPECT_BITS(bed_bits(routed, &to[1], &to[0]), "%s, beside collective", bed_text(c));
    bed_check_target(routed, &to[1], backward, 3);
    bed_check_source(routed, &from, backward, 3);
    test_tile_free(&from);
    test_tile_free(&to[0]);
    test_tile_free(&to[1]);
}

/* Both executors on the same source tiles, forward and backward. A bridge takes any letters and
 * dtype, so each pair needs two bridges only. */
static void compare_executors(bridge_bed *collective, bridge_bed *routed, const bed_case *c)
{
    bridge_bed shaped[2];
    for (int i = 0; i < 2; i++) {
        shaped[i] = i == 0 ? *collective : *routed;
        shaped[i].c = *c;
        shaped[i].c.src.order = c->src_letters[0] == 's' ? MIMO_ROWS_SBH : MIMO_ROWS_BSH;
        shaped[i].c.dst.order = c->dst_letters[0] == 's' ? MIMO_ROWS_SBH : MIMO_ROWS_BSH;
        shaped[i].c.dst.partial = true;
        shaped[i].src = reference_of(&shaped[i].c.src, c->batch, c->seq);
        shaped[i].dst = reference_of(&shaped[i].c.dst, c->batch, c->seq);
    }
    compare_way(&shaped[0], &shaped[1], false);
    if (c->dtype != MIMO_F8 || ref_size(c->dst.grid, "cp") == 1)
        compare_way(&shaped[0], &shaped[1], true);
    for (int i = 0; i < 2; i++) {
        reference_release(&shaped[i].src);
        reference_release(&shaped[i].dst);
    }
}

/* Every pair with every kind of tile; all letters in f32, all dtypes in two orders. */
static void compare_pair(const grids *pair, int cut, bool buffer)
{
    static const char *letters[] = {"sbh", "bsh", "bh", "th"};
    bed_case c = paired_case(pair, cut);
    bridge_bed collective, routed;
    c.executor = EXECUTOR_COLLECTIVE;
    collective = bed_create(&c);
    c.executor = EXECUTOR_ROUTED;
    c.buffer = buffer;
    routed = bed_create(&c);
    for (int way = 0; collective.bridge && routed.bridge && way < 16; way++) {
        c.src_letters = letters[way % 4];
        c.dst_letters = letters[way / 4];
        if (way / 4 < 2 || cut == 0)
            compare_executors(&collective, &routed, &c);
    }
    for (int i = MIMO_F32; routed.bridge && i <= MIMO_F8; i++) {
        c.dtype = (mimo_dtype)i;
        c.src_letters = letters[i % 2];
        c.dst_letters = letters[i / 2 % 2];
        c.hidden = i % 2 ? 0 : 64; /* also rows of wide words */
        compare_executors(&collective, &routed, &c);
    }
    bed_destroy(&collective);
    bed_destroy(&routed);
}

BED_TEST(routed, same_bits)
{
    FOR_EACH_PAIR(p)
    for (int cut = 0; cut < 3; cut++)
        compare_pair(&bridge_pairs[p], cut, buffer);
}

/* Every cp rank has a gradient of its own for every row. All classes are added, in every dtype. */
BED_TEST(routed, sums_of_classes)
{
    FOR_EACH_PAIR(p)
    if (ref_size(bridge_pairs[p].dst, "cp") > 1)
        for (int dtype = MIMO_F32; dtype < MIMO_F8; dtype++) {
            bed_case c = paired_case(&bridge_pairs[p], 0);
            c.executor = EXECUTOR_P2P;
            c.buffer = buffer;
            c.dtype = (mimo_dtype)dtype;
            c.sums = true;
            bridge_bed bed = bed_create(&c);
            for (uint64_t seed = 1; bed.bridge && seed < 3; seed++)
                bed_move(&bed, true, seed);
            bed_destroy(&bed);
        }
}

/* Five operations in flight, forward and backward, on tiles of their own, ended in another order
 * than begun. Then once more on the same tiles, so that the prepared calls are used again. */
static void fly(executor_id forward, executor_id backward, bool buffer)
{
    enum { FLIGHTS = 5 };
    bed_case c = paired_case(&(grids){"tp=1,dp=4", "tp=1,cp=2,dp=2"}, 0);
    test_tile from[FLIGHTS], to[FLIGHTS];
    mimo_op *ops[FLIGHTS];
    int rank = mpi_test_rank();
    c.executor = forward;
    c.backward_executor = backward;
    c.buffer = buffer;
    c.sums = true;
    bridge_bed bed = bed_create(&c);
    for (int i = 0; i < FLIGHTS; i++) {
        from[i] = bed_tile_new(&bed, i % 2 ? MIMO_DST : MIMO_SRC);
        to[i] = bed_target_new(&bed, i % 2 ? MIMO_SRC : MIMO_DST);
    }
    for (uint64_t round = 0; bed.bridge && round < 3; round++) {
        for (int i = 0; i < FLIGHTS; i++) {
            bool done, back = i % 2;
            bed_fill(&bed, &from[i], back, round * FLIGHTS + (uint64_t)i);
            MPI_EXPECT_OK((back ? mimo_bridge_backward_start : mimo_bridge_forward_start)(
                &ops[i], bed.bridge, &to[i].view, &from[i].view, 1, test_stream()));
            for (int tests = 0; tests < rank * 7; tests++)
                MPI_EXPECT_OK(mimo_op_test(&done, ops[i]));
        }
        for (int i = 0; i < FLIGHTS; i++) {
            mimo_op **op = &ops[(i * 2 + rank) % FLIGHTS];
            MPI_EXPECT_OK(mimo_op_wait(op));
            MPI_EXPECT(!*op, "the handle was kept");
            MPI_EXPECT_OK(mimo_op_wait(op));
        }
        for (int i = 0; i < FLIGHTS; i++)
            bed_check_target(&bed, &to[i], i % 2, round * FLIGHTS + (uint64_t)i);
    }
    bed_destroy(&bed);
}

BED_TEST(routed, several_in_flight)
{
    fly(EXECUTOR_ROUTED, EXECUTOR_AUTO, buffer);
    if (!buffer)
        fly(EXECUTOR_COLLECTIVE, EXECUTOR_AUTO, false);
}

/* One bridge that moves forward by one executor and backward by another. */
BED_TEST(routed, two_executors)
{
    static const executor_id ways[][2] = {{EXECUTOR_COLLECTIVE, EXECUTOR_ROUTED},
                                          {EXECUTOR_P2P, EXECUTOR_COLLECTIVE},
                                          {EXECUTOR_ROUTED, EXECUTOR_P2P}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        fly(ways[i][0], ways[i][1], buffer); /* buffer: forward is zero-copy */
}

/* Features, a wider level of other letters, an empty one and words of 8 bytes in one call. */
static void move_many(executor_id executor, bool buffer, bool backward, int cut)
{
    enum { TENSORS = 4 };
    static const mimo_dtype dtypes[TENSORS] = {MIMO_BF16, MIMO_F64, MIMO_F32, MIMO_I64};
    static const char *const letters[TENSORS][2] = {
        {"sbh", "sbh"}, {"bsh", "sbh"}, {"sbh", "bsh"}, {"bsh", "bsh"}};
    bridge_bed beds[TENSORS];
    test_tile from[TENSORS], to[TENSORS];
    mimo_tensor from_views[TENSORS], to_views[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        bed_case c = paired_case(&(grids){"tp=2,dp=2", "tp=1,cp=4,dp=1"}, cut);
        c.executor = executor;
        c.buffer = buffer;
        c.dtype = dtypes[i];
        c.src_letters = letters[i][0];
        c.dst_letters = letters[i][1];
        c.sums = i > 1;
        beds[i] = bed_create(&c);
        from[i] = bed_tile_new(&beds[i], backward ? MIMO_DST : MIMO_SRC);
        to[i] = bed_target_new(&beds[i], backward ? MIMO_SRC : MIMO_DST);
        bed_fill(&beds[i], &from[i], backward, (uint64_t)i);
        from_views[i] = from[i].view;
        to_views[i] = to[i].view;
    }
    from_views[2].shape[2] = to_views[2].shape[2] = 0;
    MPI_EXPECT_OK((backward ? mimo_bridge_backward : mimo_bridge_forward)(
        beds[0].bridge, to_views, from_views, TENSORS, test_stream()));
    for (int i = 0; i < TENSORS; i++) {
        if (i != 2)
            bed_check_target(&beds[i], &to[i], backward, (uint64_t)i);
        bed_destroy(&beds[i]);
    }
}

BED_TEST(routed, many_tensors)
{
    for (int backward = 0; backward < 2; backward++)
        for (int cut = 0; cut < 2; cut++) {
            move_many(EXECUTOR_ROUTED, buffer, backward, cut);
            if (!buffer)
                move_many(EXECUTOR_COLLECTIVE, false, backward, cut);
        }
}

/* Calls on the same tiles that differ in the dtype or the size of a row alone. Then the first call
 * once more, after a larger one took the staging. A prepared call must not serve another call. */
BED_TEST(routed, calls_that_look_alike)
{
    enum { ROW = 1 << 13 };
    static const struct {
        mimo_dtype dtype;
        int64_t hidden;
    } calls[] = {{MIMO_F32, ROW},     {MIMO_I32, ROW},     {MIMO_F64, ROW / 2},
                 {MIMO_F32, ROW - 1}, {MIMO_F32, 2 * ROW}, {MIMO_F32, ROW}};
    bed_case c = paired_case(&(grids){"tp=1,dp=4", "tp=1,cp=2,dp=2"}, 0);
    c.executor = EXECUTOR_ROUTED;
    c.buffer = buffer;
    c.sums = true;
    c.hidden = 2 * ROW;
    bridge_bed bed = bed_create(&c);
    test_tile from = bed_tile_new(&bed, MIMO_DST), to = bed_target_new(&bed, MIMO_SRC);
    for (size_t i = 0; bed.bridge && i < sizeof calls / sizeof *calls; i++) {
        bed.c.dtype = from.view.dtype = to.view.dtype = calls[i].dtype;
        bed.c.hidden = from.view.shape[2] = to.view.shape[2] = calls[i].hidden;
        bed_fill(&bed, &from, true, i);
        MPI_EXPECT_OK(bed_call(&bed, true, &to, &from));
        bed_check_target(&bed, &to, true, i);
    }
    bed_destroy(&bed);
}
