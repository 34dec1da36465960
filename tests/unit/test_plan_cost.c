/* The cost model: the loads of plans, by hand and against rows listed one by one; times by hand;
 * and properties of every estimate. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/plan_cost.h"
#include "expect_failure.h"

typedef struct bed {
    mimo_grid *grids[2];
    mimo_layout *layouts[2];
    mimo_cost_case of; /* its loads and pairing are filled in */
} bed;

/* A side's layout. With `cut` its sequences are split as by a partition. */
static mimo_layout *layout_of(const mimo_cost_case *of, mimo_side side, bool cut)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
    mimo_layout *layout;
    rule.sp = of->sp;
    desc.grid = side == MIMO_SRC ? of->src : of->dst;
    desc.order = of->order[side];
    desc.batch = of->batch;
    desc.seq = of->seq;
    desc.partition = cut ? &rule : NULL;
    desc.cp_copies = side == MIMO_DST ? MIMO_COPIES_PARTIAL : MIMO_COPIES_EQUAL;
    SUCCEEDS(mimo_layout_create(&layout, &desc));
    return layout;
}

static mimo_layout *layout_on(const mimo_cost_case *of, mimo_side side)
{
    return layout_of(of, side, side == MIMO_DST && of->cut);
}

static mimo_plan_load load_between(const mimo_layout *from, const mimo_layout *to, int64_t rank,
                                   int64_t row_bytes)
{
    mimo_plan *plan;
    SUCCEEDS(mimo_plan_create(&plan, from, to, rank));
    mimo_plan_load load = mimo_plan_load_of(plan, row_bytes);
    mimo_plan_destroy(plan);
    return load;
}

static mimo_plan_load load_of(const bed *b, int way, int64_t rank)
{
    return load_between(b->layouts[way], b->layouts[1 - way], rank, b->of.row_bytes);
}

static void add_phase(bed *b, int way, const mimo_layout *from, const mimo_layout *to)
{
    mimo_phases_load *load = &b->of.load[way];
    for (int64_t rank = 0; rank < mimo_grid_size(b->of.src); rank++) {
        mimo_plan_load own = load_between(from, to, rank, b->of.row_bytes);
        mimo_plan_load_merge(&load->phase[load->phases], &own);
    }
    load->phases++;
}

/* Contributions to full tiles are gathered first where many ranks read the sum. */
static void add_backward(bed *b)
{
    int64_t cp = mimo_grid_dim_size(b->of.dst, "cp"), dp = mimo_grid_dim_size(b->of.dst, "dp");
    if (b->of.cut || mimo_grid_dim_size(b->of.src, "dp") >= (cp - 1) * dp) {
        add_phase(b, 1, b->layouts[1], b->layouts[0]);
        return;
    }
    mimo_layout *shards = layout_of(&b->of, MIMO_DST, true);
    add_phase(b, 1, b->layouts[1], shards);
    add_phase(b, 1, shards, b->layouts[0]);
    mimo_layout_destroy(shards);
}

static bed bed_shaped(const char *src, const char *dst, const mimo_cost_case *shape)
{
    bed b = {.of = *shape};
    b.of.pairing.size = sizeof b.of.pairing;
    SUCCEEDS(mimo_grid_create_text(&b.grids[0], src, 0));
    SUCCEEDS(mimo_grid_create_text(&b.grids[1], dst, 0));
    b.of.src = b.grids[0];
    b.of.dst = b.grids[1];
    if (mimo_pairing_of(&b.of.pairing, b.of.src, b.of.dst) != MIMO_OK)
        b.of.pairing.scale = 0;
    for (int side = 0; side < 2; side++)
        b.layouts[side] = layout_on(&b.of, side);
    add_phase(&b, 0, b.layouts[0], b.layouts[1]);
    add_backward(&b);
    return b;
}

/* Batch 4, 8 positions, rows of 16 bytes; sbh on both sides. */
static bed bed_of(const char *src, const char *dst, bool cut, bool sp)
{
    const mimo_cost_case shape = {.cut = cut, .sp = sp, .batch = 4, .seq = 8, .row_bytes = 16};
    return bed_shaped(src, dst, &shape);
}

static void release(bed *b)
{
    for (int side = 0; side < 2; side++) {
        mimo_layout_destroy(b->layouts[side]);
        mimo_grid_destroy(b->grids[side]);
    }
}

#define EXPECT_LOAD(load, ...)                                                              \
    do {                                                                                    \
        const mimo_plan_load expected = {__VA_ARGS__}, got = (load);                        \
        cr_assert_arr_eq(&got, &expected, sizeof got,                                       \
                         "in %" PRId64 " out %" PRId64 " local %" PRId64 " packed %" PRId64 \
                         " unpacked %" PRId64 " staged %" PRId64 " pair %" PRId64,          \
                         got.in, got.out, got.local, got.packed, got.unpacked, got.staged,  \
                         got.pair);                                                         \
    } while (0)

/* slow: a byte takes 1 us over the link and half of that in a copy. h200: a machine with 4 H200.
 * The last one has links beside which copies and starts cost nothing. */
static const mimo_link_speed slow = {1e-3, 10, 2e-3}, h200 = {342, 8, 0},
                             links_alone = {1, 0, 1e18};

#define EXPECT_US(got, expected)                                                         \
    cr_assert_float_eq((got), (expected), 1e-9, "%s is %g, not %g", #got, (double)(got), \
                       (double)(expected))

/* ------------------------------------------- loads ------------------------------------------ */

/* Rank 0 holds sample 0 and reads positions 0 1 6 7 of samples 0 and 1. It receives two runs, which
 * are packed. It sends positions 2 to 5, which are one run in a tile of one sample. Rank 1 sends
 * two runs, and receives one run between the rows of its own sample. */
Test(plan_cost, loads_by_hand)
{
    bed b = bed_of("tp=1,dp=4", "tp=1,cp=2,dp=2", true, false);
    EXPECT_LOAD(load_of(&b, 0, 0), 64, 64, 64, 0, 64, 0, 64);
    EXPECT_LOAD(load_of(&b, 0, 1), 64, 64, 64, 64, 64, 0, 64);
    EXPECT_LOAD(b.of.load[0].phase[0], 64, 64, 64, 64, 64, 0, 64);
    release(&b);
}

/* Without a partition both cp ranks contribute to each row. Rank 0 keeps its own gradient of sample
 * 0 and gets rank 1's, 8 rows, which go beside the tile as class 1. */
Test(plan_cost, contributions_are_staged)
{
    bed b = bed_of("tp=1,dp=4", "tp=1,cp=2,dp=2", false, false);
    mimo_plan_load load = load_of(&b, 1, 0);
    cr_assert(load.in == 128 && load.out == 128 && load.local == 128 && load.staged == 128);
    load = load_of(&b, 1, 1); /* keeps class 1, receives class 0 */
    cr_assert(load.in == 128 && load.local == 128 && load.staged == 128);
    release(&b);
}

Test(plan_cost, the_busiest_pair)
{
    /* In backward each of 4 encoder copies gathers 4 gradients, of which one is its own. */
    bed b = bed_of("tp=4,dp=1", "tp=1,dp=4", false, false);
    mimo_plan_load load = load_of(&b, 1, 0);
    cr_assert(load.in == 3 * 128 && load.out == 3 * 128 && load.pair == 128 && load.local == 128);
    release(&b);
}

static int compare_rows(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* Whether the rows at one end of a message are contiguous, by listing them all. */
static bool rows_follow(const mimo_block *block, int64_t blocks, bool receiver)
{
    int64_t rows[64], count = 0;
    for (int64_t i = 0; i < blocks; i++)
        for (int64_t j = 0; j < block[i].nb * block[i].ns; j++) {
            int64_t at_b = j / block[i].ns, at_s = j % block[i].ns;
            cr_assert_lt(count, 64);
            rows[count++] = receiver
                                ? block[i].dst_row + at_b * block[i].dst_b + at_s * block[i].dst_s
                                : block[i].src_row + at_b * block[i].src_b + at_s * block[i].src_s;
        }
    qsort(rows, (size_t)count, sizeof *rows, compare_rows);
    return rows[count - 1] - rows[0] == count - 1;
}

static int64_t packed_rows(const mimo_plan *plan, mimo_block_kind kind)
{
    int64_t count, packed = 0, end;
    const mimo_block *block = mimo_plan_blocks(&count, plan, kind);
    for (int64_t first = 0; first < count; first = end) {
        int64_t rows = 0;
        for (end = first; end < count && block[end].peer == block[first].peer; end++)
            rows += block[end].nb * block[end].ns;
        if (end - first > 1 || !rows_follow(&block[first], 1, kind == MIMO_RECV))
            packed += rows;
    }
    return packed;
}

Test(plan_cost, packed_bytes_are_those_of_scattered_messages)
{
    static const char *const pairs[][2] = {
        {"tp=1,dp=4", "tp=1,cp=2,dp=2"}, {"tp=2,dp=2", "tp=1,cp=4,dp=1"},
        {"tp=4,dp=1", "tp=1,cp=2,dp=2"}, {"tp=1,dp=4", "cp=2,tp=2,dp=1"},
        {"dp=2,tp=2", "tp=1,cp=1,dp=4"},
    };
    for (int i = 0; i < 5 * 8; i++) {
        bed b = bed_of(pairs[i / 8][0], pairs[i / 8][1], i & 1, (i & 3) == 3);
        b.of.order[MIMO_SRC] = b.of.order[MIMO_DST] = i & 4 ? MIMO_ROWS_BSH : MIMO_ROWS_SBH;
        for (int side = 0; side < 2; side++) {
            mimo_layout_destroy(b.layouts[side]);
            b.layouts[side] = layout_on(&b.of, side);
        }
        for (int64_t rank = 0; rank < 4; rank++) {
            mimo_plan *plan;
            SUCCEEDS(mimo_plan_create(&plan, b.layouts[0], b.layouts[1], rank));
            const mimo_plan_load load = mimo_plan_load_of(plan, 1);
            cr_assert_eq(load.packed, packed_rows(plan, MIMO_SEND), "case %d rank %" PRId64, i,
                         rank);
            cr_assert_eq(load.unpacked, packed_rows(plan, MIMO_RECV), "case %d rank %" PRId64, i,
                         rank);
            mimo_plan_destroy(plan);
        }
        release(&b);
    }
}

/* ------------------------------------------- times ------------------------------------------ */

Test(plan_cost, fan_in_by_hand)
{
    bed b = bed_of("tp=1,dp=4", "tp=1,cp=2,dp=2", true, false);
    mimo_cost cost = mimo_cost_estimate(&b.of, &slow);
    EXPECT_US(cost.collective[0], 10 + 128 + 128 / 2.);
    EXPECT_US(cost.collective[1], 2 * 10 + 256 + (256 + 128) / 2.);
    EXPECT_US(cost.p2p[0], 10 + 64 + (128 + 64) / 2.);
    EXPECT_US(cost.zero_copy[0], 7.5 + 64);
    b.of.cut = false;
    cost = mimo_cost_estimate(&b.of, &slow);
    EXPECT_US(cost.collective[0], 10 + 128 + 256 / 2.);
    b.of.order[MIMO_DST] = MIMO_ROWS_BSH; /* gathered samples are already in order */
    cost = mimo_cost_estimate(&b.of, &slow);
    EXPECT_US(cost.collective[0], 10 + 128);
    release(&b);
}

Test(plan_cost, fan_out_by_hand)
{
    /* W = 1 sample, 128 bytes. V = 2 samples. cp 1. Forward moves nothing. */
    bed b = bed_of("tp=2,dp=2", "tp=1,dp=4", false, false);
    mimo_cost cost = mimo_cost_estimate(&b.of, &slow);
    EXPECT_US(cost.collective[0], 5 + 128 / 2.);
    EXPECT_US(cost.collective[1], 10 + 128 + 256 / 2.);
    EXPECT_US(cost.p2p[0], 5 + 128 / 2.);
    EXPECT_US(cost.zero_copy[0], 5 + 128 / 2.);
    EXPECT_US(cost.zero_copy[1], 7.5 + 128);
    release(&b);
}

Test(plan_cost, sequence_parallel_by_hand)
{
    /* W = 4 samples, 512 bytes. A cp rank has 256 of them, and a tp rank 128. */
    bed b = bed_of("tp=1,dp=4", "tp=2,cp=2,dp=1", true, true);
    mimo_cost cost = mimo_cost_estimate(&b.of, &slow);
    EXPECT_US(cost.collective[0], 10 + 3 * 128 + 128 / 2.);
    EXPECT_US(cost.collective[1], 3 * 10 + 128 + 512 + (256 + 512 + 128) / 2.);
    release(&b);
}

Test(plan_cost, grids_that_do_not_pair)
{
    bed b = bed_of("tp=1,dp=4", "tp=2,dp=2,cp=1", false, false);
    cr_assert_gt(b.of.pairing.scale, 0);
    b.of.pairing.scale = 0;
    mimo_cost cost = mimo_cost_estimate(&b.of, &slow);
    cr_assert(isinf(cost.collective[0]) && isinf(cost.collective[1]));
    cr_assert(isfinite(cost.p2p[0]) && isfinite(cost.zero_copy[1]));
    release(&b);
}

Test(plan_cost, phases_add_up)
{
    bed b = bed_of("tp=1,dp=4", "tp=1,cp=2,dp=2", false, false);
    mimo_cost once = mimo_cost_estimate(&b.of, &slow);
    b.of.load[1].phase[1] = b.of.load[1].phase[0];
    b.of.load[1].phases = 2;
    mimo_cost twice = mimo_cost_estimate(&b.of, &slow);
    EXPECT_US(twice.p2p[1], 2 * once.p2p[1]);
    EXPECT_US(twice.zero_copy[1], 2 * once.zero_copy[1]);
    EXPECT_US(twice.p2p[0], once.p2p[0]);
    EXPECT_US(twice.collective[1], once.collective[1]);
    release(&b);
}

/* The estimate for 4 H200 of the first case of S = 8192, H = 4096: 98 us for 32 MiB over the link.
 * Measured were 102.9 us. */
Test(plan_cost, a_measured_case)
{
    bed b = bed_of("tp=1,dp=4", "tp=1,cp=2,dp=2", true, false);
    b.of.seq = 8192;
    b.of.row_bytes = 8192;
    for (int side = 0; side < 2; side++) {
        mimo_layout_destroy(b.layouts[side]);
        b.layouts[side] = layout_on(&b.of, side);
    }
    mimo_plan_load load = load_of(&b, 0, 1);
    cr_assert_eq(load.in, 32 << 20);
    b.of.load[0].phase[0] = load;
    mimo_cost cost = mimo_cost_estimate(&b.of, &h200);
    cr_assert_float_eq(cost.zero_copy[0], 104.1, 0.1, "%g", cost.zero_copy[0]);
    cr_assert_float_eq(cost.p2p[0], 165, 1, "%g", cost.p2p[0]);
    release(&b);
}

/* Faster links and copies, or less latency, never increase a time. No executor beats the link. */
Test(plan_cost, estimates_are_monotonous)
{
    bed b = bed_of("tp=2,dp=2", "tp=1,cp=4,dp=1", true, false);
    for (int i = 0; i < 2; i++) {
        mimo_cost base = mimo_cost_estimate(&b.of, &slow);
        const mimo_link_speed faster[] = {{2e-3, 10, 2e-3}, {1e-3, 5, 2e-3}, {1e-3, 10, 4e-3}};
        double floor = (double)b.of.load[i].phase[0].in;
        cr_assert(base.collective[i] > floor && base.p2p[i] > floor && base.zero_copy[i] > floor);
        for (int j = 0; j < 3; j++) {
            mimo_cost cost = mimo_cost_estimate(&b.of, &faster[j]);
            cr_assert(cost.collective[i] < base.collective[i] && cost.p2p[i] < base.p2p[i]);
            cr_assert(cost.zero_copy[i] <= base.zero_copy[i]);
        }
    }
    release(&b);
}

/* ---------------------------------- routed by default --------------------------------------- */

/* S and H of the bench, in bf16. */
static const struct {
    int64_t seq, row_bytes;
} bench_shapes[] = {{256, 2048}, {2048, 8192}, {8192, 8192}, {32768, 8192}};

enum { BENCH_SHAPES = sizeof bench_shapes / sizeof bench_shapes[0] };

typedef void (*cost_check)(const bed *b, const char *src, const char *dst);

/* A pair in the bench's shapes: full, cut or with sp, with all row orders. */
static void each_shape(const char *src, const char *dst, int64_t batch, cost_check check)
{
    for (int i = 0; i < BENCH_SHAPES * 12; i++) {
        const mimo_cost_case shape = {.batch = batch,
                                      .seq = bench_shapes[i / 12].seq,
                                      .row_bytes = bench_shapes[i / 12].row_bytes,
                                      .cut = i % 3 > 0,
                                      .sp = i % 3 > 1,
                                      .order = {i / 3 % 2, i / 6 % 2}};
        bed b = bed_shaped(src, dst, &shape);
        check(&b, src, dst);
        release(&b);
    }
}

/* All pairs of grids of powers of two. */
static void each_pair(cost_check check)
{
    char src[64], dst[64];
    for (int n = 2; n <= 8; n *= 2)
        for (int src_dp = 1; src_dp <= n; src_dp *= 2)
            for (int cp = 1; cp <= n; cp *= 2)
                for (int dst_dp = 1; cp * dst_dp <= n; dst_dp *= 2) {
                    snprintf(src, sizeof src, "tp=%d,dp=%d", n / src_dp, src_dp);
                    snprintf(dst, sizeof dst, "tp=%d,cp=%d,dp=%d", n / cp / dst_dp, cp, dst_dp);
                    each_shape(src, dst, src_dp > dst_dp ? src_dp : dst_dp, check);
                }
}

static void expect_no_more_bytes(const bed *b, const char *src, const char *dst)
{
    mimo_cost cost = mimo_cost_estimate(&b->of, &links_alone);
    for (int way = 0; way < 2; way++)
        cr_assert_leq(cost.p2p[way], cost.collective[way] * (1 + 1e-9), "%s -> %s, cut %d, way %d",
                      src, dst, b->of.cut, way);
}

/* The busiest link carries no more by routed than by collective. */
Test(plan_cost, routed_moves_no_more_than_collective)
{
    each_pair(expect_no_more_bytes);
}

static void expect_zero_copy_ahead(const bed *b, const char *src, const char *dst)
{
    mimo_cost cost = mimo_cost_estimate(&b->of, &h200);
    for (int way = 0; way < 2; way++)
        cr_assert_leq(cost.zero_copy[way], 1.05 * fmin(cost.p2p[way], cost.collective[way]),
                      "%s -> %s, S %" PRId64 ", cut %d, way %d", src, dst, b->of.seq, b->of.cut,
                      way);
}

Test(plan_cost, into_buffers_routed_is_within_5_percent_of_the_best)
{
    each_pair(expect_zero_copy_ahead);
}

/* The cases of the bench on GPUs: sbh shards. */
Test(plan_cost, on_the_bench_p2p_is_within_5_percent_of_collective)
{
    static const char *const pairs[][2] = {
        {"tp=1,dp=2", "tp=1,cp=2,dp=1"}, {"tp=2,dp=1", "tp=1,cp=2,dp=1"},
        {"tp=2,dp=1", "tp=1,cp=1,dp=2"}, {"tp=1,dp=4", "tp=1,cp=2,dp=2"},
        {"tp=1,dp=4", "tp=1,cp=4,dp=1"}, {"tp=2,dp=2", "tp=1,cp=4,dp=1"},
        {"tp=4,dp=1", "tp=1,cp=2,dp=2"}, {"tp=2,dp=2", "tp=1,cp=2,dp=2"},
    };
    for (int i = 0; i < 8 * BENCH_SHAPES; i++) {
        const char *src = pairs[i / BENCH_SHAPES][0], *dst = pairs[i / BENCH_SHAPES][1];
        const mimo_cost_case shape = {.batch = 4,
                                      .seq = bench_shapes[i % BENCH_SHAPES].seq,
                                      .row_bytes = bench_shapes[i % BENCH_SHAPES].row_bytes,
                                      .cut = true};
        bed b = bed_shaped(src, dst, &shape);
        mimo_cost cost = mimo_cost_estimate(&b.of, &h200);
        for (int way = 0; way < 2; way++)
            cr_assert_leq(cost.p2p[way], 1.05 * cost.collective[way], "%s -> %s, way %d", src, dst,
                          way);
        release(&b);
    }
}
