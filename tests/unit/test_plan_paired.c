/* What ranks of paired grids exchange, in closed form: by hand, against the plan of every rank on
 * random pairs, and on 16,384 ranks. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/plan_paired.h"
#include "core/hash.h"
#include "cases_ran.h"
#include "expect_failure.h"

enum { SPEC = 64, ROW_BYTES = 16 };

typedef struct paired_case {
    char spec[2][SPEC]; /* by mimo_side */
    int64_t offset, batch, seq;
    mimo_row_order order[2];
    bool sp;
} paired_case;

typedef struct bed {
    mimo_grid *grids[2];
    mimo_layout *layouts[2];
} bed;

/* Shards on the LLM's side, whole sequences on the encoder's. */
static mimo_layout *layout_of(const paired_case *of, const mimo_grid *grid, mimo_side side)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
    mimo_layout *layout;
    rule.sp = of->sp;
    desc.grid = grid;
    desc.order = of->order[side];
    desc.batch = of->batch;
    desc.seq = of->seq;
    desc.partition = side == MIMO_DST ? &rule : NULL;
    SUCCEEDS(mimo_layout_create(&layout, &desc));
    return layout;
}

/* False where the grids do not pair. Then there is nothing to release. */
static bool make_bed(bed *b, const paired_case *of)
{
    mimo_pairing pairing = MIMO_PAIRING_INIT;
    for (int side = 0; side < 2; side++)
        cr_assert_eq(mimo_grid_create_text(&b->grids[side], of->spec[side], of->offset), MIMO_OK,
                     "%s", of->spec[side]);
    bool pairs = mimo_pairing_of(&pairing, b->grids[0], b->grids[1]) == MIMO_OK;
    for (int side = 0; side < 2; side++)
        if (pairs)
            b->layouts[side] = layout_of(of, b->grids[side], (mimo_side)side);
        else
            mimo_grid_destroy(b->grids[side]);
    return pairs;
}

static void release(bed *b)
{
    for (int side = 0; side < 2; side++) {
        mimo_layout_destroy(b->layouts[side]);
        mimo_grid_destroy(b->grids[side]);
    }
}

static mimo_plan_load paired_load(const bed *b, int way)
{
    mimo_plan_load load;
    SUCCEEDS(mimo_plan_load_paired(&load, b->layouts[way], b->layouts[1 - way], ROW_BYTES));
    return load;
}

static int64_t peers_of(const mimo_plan *plan, mimo_block_kind kind)
{
    int64_t count, peers = 0;
    const mimo_block *block = mimo_plan_blocks(&count, plan, kind);
    for (int64_t i = 0; i < count; i++)
        peers += i == 0 || block[i].peer != block[i - 1].peer;
    return peers;
}

/* Check one rank's plan: it must have the load that the closed form gives for every rank. */
static mimo_plan_load check_rank(const bed *b, int way, int64_t rank, const char *text)
{
    const mimo_plan_load all = paired_load(b, way);
    mimo_plan *plan;
    SUCCEEDS(mimo_plan_create(&plan, b->layouts[way], b->layouts[1 - way], rank));
    mimo_plan_load load = mimo_plan_load_of(plan, ROW_BYTES);
    cr_assert(load.in == all.in && load.out == all.out && load.local == all.local &&
                  load.pair == all.pair && load.staged == 0,
              "%s: rank %" PRId64 " way %d has in %" PRId64 " out %" PRId64 " local %" PRId64
              " pair %" PRId64 ", all have %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64,
              text, rank, way, load.in, load.out, load.local, load.pair, all.in, all.out, all.local,
              all.pair);
    cr_assert_eq(peers_of(plan, MIMO_SEND) * all.pair, all.out, "%s: rank %" PRId64 " way %d", text,
                 rank, way);
    cr_assert_eq(peers_of(plan, MIMO_RECV) * all.pair, all.in, "%s: rank %" PRId64 " way %d", text,
                 rank, way);
    cr_assert(load.packed <= all.packed && load.unpacked <= all.unpacked, "%s: rank %" PRId64, text,
              rank);
    mimo_plan_destroy(plan);
    return load;
}

/* ------------------------------------------ by hand ----------------------------------------- */

/* Rank 0 holds sample 0 and reads positions 0 1 6 7 of two samples. Each of its messages is 4 rows.
 * It receives two runs. Rank 1 reads positions 2 to 5, and sends it two runs. */
Test(plan_paired, fan_in_by_hand)
{
    const paired_case of = {.spec = {"tp=1,dp=4", "tp=1,cp=2,dp=2"}, .batch = 4, .seq = 8};
    bed b;
    cr_assert(make_bed(&b, &of));
    const mimo_plan_load load = paired_load(&b, 0);
    cr_assert(load.in == 64 && load.out == 64 && load.local == 64 && load.pair == 64);
    cr_assert(load.packed == 64 && load.unpacked == 64 && load.staged == 0);
    release(&b);
}

/* Forward, each rank holds what it needs. Backward, each of 4 copies needs 4 gradients and has
 * one. */
Test(plan_paired, fan_out_by_hand)
{
    const paired_case of = {.spec = {"tp=4,dp=1", "tp=1,dp=4"}, .batch = 4, .seq = 8};
    bed b;
    cr_assert(make_bed(&b, &of));
    mimo_plan_load load = paired_load(&b, 0);
    cr_assert(load.in == 0 && load.out == 0 && load.local == 128 && load.pair == 0);
    cr_assert(load.packed == 0 && load.unpacked == 0);
    load = paired_load(&b, 1);
    cr_assert(load.in == 384 && load.out == 384 && load.local == 128 && load.pair == 128);
    cr_assert(load.packed == 0 && load.unpacked == 384); /* a sample's rows lie 4 apart */
    release(&b);
}

/* ------------------------------------------ random ------------------------------------------ */

static int64_t draw(uint64_t *state, int64_t choices)
{
    return (int64_t)(mimo_mix64(++*state) % (uint64_t)choices);
}

static int64_t draw_divisor(uint64_t *state, int64_t number)
{
    int64_t divisor = 1 + draw(state, number);
    while (number % divisor)
        divisor = 1 + draw(state, number);
    return divisor;
}

/* Three dimensions, in half of the cases in the usual order. */
static void draw_spec(char *spec, uint64_t *state, const int64_t sizes[3])
{
    static const char *const names[] = {"tp", "cp", "dp"};
    static const int orders[][3] = {{0, 1, 2}, {0, 1, 2}, {0, 1, 2}, {1, 0, 2},
                                    {2, 0, 1}, {0, 2, 1}, {2, 1, 0}};
    const int *order = orders[draw(state, 7)];
    snprintf(spec, SPEC, "%s=%" PRId64 ",%s=%" PRId64 ",%s=%" PRId64, names[order[0]],
             sizes[order[0]], names[order[1]], sizes[order[1]], names[order[2]], sizes[order[2]]);
}

/* Two grids of 1 to `most` ranks whose dp sizes divide one another. */
static paired_case draw_case(uint64_t *state, int64_t most)
{
    int64_t ranks = 1 + draw(state, most), wide = draw_divisor(state, ranks);
    int64_t narrow = draw_divisor(state, wide);
    bool in = draw(state, 2);
    int64_t src_dp = in ? wide : narrow, dst_dp = in ? narrow : wide;
    int64_t cp = draw_divisor(state, ranks / dst_dp), tp = ranks / dst_dp / cp;
    paired_case of = {.offset = 5 * draw(state, 2), .batch = wide * (1 + draw(state, 3))};
    draw_spec(of.spec[0], state, (const int64_t[]){ranks / src_dp, 1, src_dp});
    draw_spec(of.spec[1], state, (const int64_t[]){tp, cp, dst_dp});
    of.sp = draw(state, 2);
    of.seq = 2 * cp * (of.sp ? tp : 1) * (1 + draw(state, 3));
    for (int side = 0; side < 2; side++)
        of.order[side] = draw(state, 2) ? MIMO_ROWS_BSH : MIMO_ROWS_SBH;
    return of;
}

static void check_case(const bed *b, const paired_case *of)
{
    char text[256];
    snprintf(text, sizeof text,
             "%s -> %s at %" PRId64 ", batch %" PRId64 ", seq %" PRId64 ", sp %d, orders %d %d",
             of->spec[0], of->spec[1], of->offset, of->batch, of->seq, of->sp, (int)of->order[0],
             (int)of->order[1]);
    for (int way = 0; way < 2; way++) {
        const mimo_plan_load all = paired_load(b, way);
        mimo_plan_load most = {0, 0, 0, 0, 0, 0, 0};
        for (int64_t r = 0; r < mimo_grid_size(b->grids[0]); r++) {
            const mimo_plan_load load = check_rank(b, way, of->offset + r, text);
            mimo_plan_load_merge(&most, &load);
        }
        cr_assert(most.packed == all.packed && most.unpacked == all.unpacked,
                  "%s, way %d: most packed %" PRId64 " unpacked %" PRId64 ", not %" PRId64
                  " %" PRId64,
                  text, way, most.packed, most.unpacked, all.packed, all.unpacked);
    }
}

Test(plan_paired, is_what_the_plans_of_all_ranks_say)
{
    enum { CASES = 1500, MOST_DRAWN = 4 * CASES };
    uint64_t state = 0;
    int checked = 0, drawn = 0;
    for (; checked < CASES && drawn < MOST_DRAWN; drawn++) {
        const paired_case of = draw_case(&state, checked < 1400 ? 48 : 192);
        bed b;
        if (!make_bed(&b, &of))
            continue;
        check_case(&b, &of);
        release(&b);
        checked++;
    }
    CASES_RAN(checked, drawn, CASES, "random pairs");
}

/* ------------------------------------------ large ------------------------------------------- */

/* Grids where a rank has thousands of peers. Only some ranks are planned. */
Test(plan_paired, ranks_16384)
{
    static const paired_case cases[] = {
        {.spec = {"tp=8,dp=2048", "tp=8,cp=2048,dp=1"}, .batch = 2048, .seq = 8192},
        {.spec = {"tp=1,dp=16384", "tp=8,cp=256,dp=8"}, .batch = 16384, .seq = 8192},
        {.spec = {"tp=16384,dp=1", "tp=1,cp=1,dp=16384"}, .batch = 16384, .seq = 8192},
        {.spec = {"tp=2,dp=8192", "tp=8192,cp=2,dp=1"}, .batch = 8192, .seq = 8192},
    };
    for (int i = 0; i < 4; i++) {
        bed b;
        cr_assert(make_bed(&b, &cases[i]));
        for (int64_t rank = 0; rank < 16384; rank += 5461)
            for (int way = 0; way < 2; way++)
                check_rank(&b, way, rank, cases[i].spec[1]);
        release(&b);
    }
}
