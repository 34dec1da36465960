/* Pairs of grids: goldens, every pair of small grids against a slow reference, every error. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include <mimo/pairing.h>

#include "expect_failure.h"
#include "same_bits.h"
#include "slow_grid.h"

typedef struct pair {
    mimo_grid *src, *dst;
} pair;

static pair pair_of(const char *src, const char *dst, int64_t offset)
{
    pair p = {NULL, NULL};
    SUCCEEDS(mimo_grid_create_text(&p.src, src, offset));
    SUCCEEDS(mimo_grid_create_text(&p.dst, dst, offset));
    return p;
}

static void release(pair p)
{
    mimo_grid_destroy(p.src);
    mimo_grid_destroy(p.dst);
}

/* ----------------------------------------- goldens ------------------------------------------ */

static void expect_pairing(const char *src, const char *dst, int64_t offset, mimo_pairing expected,
                           const int64_t *groups)
{
    pair p = pair_of(src, dst, offset);
    mimo_pairing got = MIMO_PAIRING_INIT;
    int64_t ranks[16];
    SUCCEEDS(mimo_pairing_of(&got, p.src, p.dst));
    cr_assert_eq(got.fan, expected.fan, "%s -> %s", src, dst);
    cr_assert_eq(got.scale, expected.scale);
    cr_assert_eq(got.groups, expected.groups);
    cr_assert_eq(got.group_size, expected.group_size);
    for (int64_t g = 0; g < got.groups; g++) {
        SUCCEEDS(mimo_pairing_group(ranks, p.src, p.dst, g));
        for (int64_t j = 0; j < got.group_size; j++) {
            int64_t wanted = offset + groups[g * got.group_size + j], index, slot;
            cr_assert_eq(ranks[j], wanted, "%s -> %s group %" PRId64 " slot %" PRId64 ": %" PRId64,
                         src, dst, g, j, ranks[j]);
            SUCCEEDS(mimo_pairing_slot(&index, &slot, p.src, p.dst, wanted));
            cr_assert(index == g && slot == j);
        }
    }
    release(p);
}

Test(pairing, goldens)
{
    const int64_t apart[] = {0, 2, 1, 3, 4, 6, 5, 7}, adjacent[] = {0, 1, 2, 3};
    mimo_pairing fan_in = {sizeof(mimo_pairing), MIMO_FAN_IN, 2, 4, 2},
                 fan_out = {sizeof(mimo_pairing), MIMO_FAN_OUT, 2, 4, 2};
    mimo_pairing equal = {sizeof(mimo_pairing), MIMO_FAN_EQUAL, 1, 0, 0},
                 half = {sizeof(mimo_pairing), MIMO_FAN_IN, 2, 2, 2};
    expect_pairing("tp=2,dp=4", "tp=2,cp=2,dp=2", 0, fan_in, apart);
    expect_pairing("tp=2,dp=4", "tp=2,cp=2,pp=1,dp=2", 16, fan_in, apart);
    expect_pairing("tp=4,dp=2", "tp=1,cp=2,dp=4", 0, fan_out, apart);
    expect_pairing("tp=1,dp=4", "tp=1,cp=2,dp=2", 0, half, adjacent);
    expect_pairing("tp=2,dp=4", "cp=2,tp=1,dp=4", 0, equal, NULL);
    expect_pairing("dp=1,tp=1", "tp=1,dp=1", 0, equal, NULL);
    /* Dimensions of size 1 may stand anywhere, and have any name. */
    expect_pairing("gtp_remat=1,tp=2,cp=1,dp=4,pp=1", "tp=2,x=1,cp=2,dp=2", 0, fan_in, apart);
}

Test(pairing, fan_out_groups_are_split_per_cp)
{
    /* tp4 dp2 -> tp1 cp2 dp4 on 8 ranks. Pooled over cp there would be 2 groups of 4. */
    pair p = pair_of("tp=8,dp=1", "tp=1,cp=2,dp=4", 0);
    int64_t ranks[4];
    mimo_pairing got = MIMO_PAIRING_INIT;
    SUCCEEDS(mimo_pairing_of(&got, p.src, p.dst));
    cr_assert(got.groups == 2 && got.group_size == 4);
    SUCCEEDS(mimo_pairing_group(ranks, p.src, p.dst, 1));
    EXPECT_BITS(bits_of(ranks, ((int64_t[]){1, 3, 5, 7}), sizeof ranks, sizeof *ranks, 0), "group");
    release(p);
}

Test(pairing, names_of_directions)
{
    cr_assert_str_eq(mimo_fan_name(MIMO_FAN_EQUAL), "equal");
    cr_assert_str_eq(mimo_fan_name(MIMO_FAN_IN), "fan_in");
    cr_assert_str_eq(mimo_fan_name(MIMO_FAN_OUT), "fan_out");
}

Test(pairing, samples_follow_the_dp_coordinate)
{
    pair p = pair_of("tp=2,dp=4", "tp=2,cp=2,dp=2", 10);
    for (int64_t r = 0; r < 8; r++) {
        int64_t first, count;
        SUCCEEDS(mimo_pairing_samples(&first, &count, p.src, 10 + r, 12));
        cr_assert(first == r / 2 * 3 && count == 3);
        SUCCEEDS(mimo_pairing_samples(&first, &count, p.dst, 10 + r, 12));
        cr_assert(first == r / 4 * 6 && count == 6);
    }
    int64_t first = -1, count = -1;
    SUCCEEDS(mimo_pairing_samples(&first, &count, p.src, 10, 0));
    cr_assert(first == 0 && count == 0, "an empty batch is a batch");
    release(p);
}

/* ------------------------------- every pair of small grids ---------------------------------- */

/* The first rank whose dp coordinates do not belong together, found rank by rank as the table of
 * docs/concepts.md says. */
static int64_t first_misplaced(const slow_grid *src, const slow_grid *dst)
{
    int64_t src_dp = slow_size(src, "dp"), dst_dp = slow_size(dst, "dp");
    for (int64_t r = 0; r < src->size; r++) {
        int64_t s = slow_coord(src, r, "dp"), d = slow_coord(dst, r, "dp");
        int64_t left = src_dp > dst_dp ? s / (src_dp / dst_dp) : s;
        int64_t right = dst_dp > src_dp ? d / (dst_dp / src_dp) : d;
        if (left != right)
            return r;
    }
    return -1;
}

/* The loops of the table, which search all ranks for each member. */
static void check_gather_groups(const pair *p, const slow_grid *src, const slow_grid *dst)
{
    int64_t src_dp = slow_size(src, "dp"), dst_dp = slow_size(dst, "dp");
    const slow_grid *wide = src_dp > dst_dp ? src : dst;
    int64_t few = src_dp > dst_dp ? dst_dp : src_dp, k = slow_size(wide, "dp") / few;
    int64_t cp = src_dp > dst_dp ? 1 : slow_size(dst, "cp"), index = 0, ranks[32];
    for (int64_t d = 0; d < few; d++)
        for (int64_t t = 0; t < slow_size(wide, "tp"); t++)
            for (int64_t c = 0; c < cp; c++, index++) {
                SUCCEEDS(mimo_pairing_group(ranks, p->src, p->dst, index));
                for (int64_t r = 0; r < wide->size; r++) {
                    int64_t j = slow_coord(wide, r, "dp") - d * k, got_index, got_slot;
                    if (j < 0 || j >= k || slow_coord(wide, r, "tp") != t ||
                        slow_coord(wide, r, "cp") != c)
                        continue;
                    int64_t rank = wide->offset + r;
                    cr_assert_eq(ranks[j], rank, "group %" PRId64 " slot %" PRId64, index, j);
                    SUCCEEDS(mimo_pairing_slot(&got_index, &got_slot, p->src, p->dst, rank));
                    cr_assert(got_index == index && got_slot == j);
                }
            }
    mimo_pairing got = MIMO_PAIRING_INIT;
    SUCCEEDS(mimo_pairing_of(&got, p->src, p->dst));
    cr_assert(got.groups == index && got.group_size == k && got.scale == k);
    cr_assert_eq(got.fan, src_dp > dst_dp ? MIMO_FAN_IN : MIMO_FAN_OUT);
}

static void check_equal(const pair *p, const slow_grid *src)
{
    mimo_pairing got = MIMO_PAIRING_INIT;
    SUCCEEDS(mimo_pairing_of(&got, p->src, p->dst));
    cr_assert(got.fan == MIMO_FAN_EQUAL && got.scale == 1 && got.groups == 0);
    for (int64_t r = 0; r < src->size; r++) {
        int64_t index = 7, slot = 7;
        SUCCEEDS(mimo_pairing_slot(&index, &slot, p->src, p->dst, src->offset + r));
        cr_assert(index == -1 && slot == 0);
    }
}

typedef enum outcome { GOOD, INDIVISIBLE, MISPLACED, OUTCOMES } outcome;

static outcome check_pair(const char *src_spec, const char *dst_spec)
{
    pair p = pair_of(src_spec, dst_spec, 3);
    slow_grid src = slow_grid_of(p.src), dst = slow_grid_of(p.dst);
    int64_t src_dp = slow_size(&src, "dp"), dst_dp = slow_size(&dst, "dp");
    mimo_pairing got = MIMO_PAIRING_INIT;
    mimo_status status = mimo_pairing_of(&got, p.src, p.dst);
    outcome result = GOOD;
    if (src_dp % dst_dp != 0 && dst_dp % src_dp != 0) {
        result = INDIVISIBLE;
        cr_assert_eq(status, MIMO_ERR_GRID, "%s -> %s", src_spec, dst_spec);
        cr_assert(strstr(mimo_last_error(), "divides"), "%s", mimo_last_error());
    } else if (first_misplaced(&src, &dst) >= 0) {
        char words[64];
        result = MISPLACED;
        cr_assert_eq(status, MIMO_ERR_GRID, "%s -> %s", src_spec, dst_spec);
        snprintf(words, sizeof words, "placement: rank %" PRId64 " ",
                 3 + first_misplaced(&src, &dst));
        cr_assert(strstr(mimo_last_error(), words), "%s -> %s: no '%s' in '%s'", src_spec, dst_spec,
                  words, mimo_last_error());
    } else {
        cr_assert_eq(status, MIMO_OK, "%s -> %s: %s", src_spec, dst_spec, mimo_last_error());
        if (src_dp == dst_dp)
            check_equal(&p, &src);
        else
            check_gather_groups(&p, &src, &dst);
    }
    slow_grid_free(&src);
    slow_grid_free(&dst);
    release(p);
    return result;
}

/* All factorisations of n over all orders of (tp, cp, dp), or of (tp, dp) where cp is 1. */
static int all_specs(char (*specs)[48], int64_t n, bool with_cp)
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const char *const names[] = {"tp", "cp", "dp"};
    int count = 0;
    for (int64_t tp = 1; tp <= n; tp++)
        for (int64_t cp = 1; cp <= (with_cp ? n / tp : 1); cp++) {
            if (n % (tp * cp) != 0)
                continue;
            int64_t sizes[] = {tp, cp, n / tp / cp};
            for (int o = 0; o < 6; o++)
                snprintf(specs[count++], sizeof *specs, "%s=%d,%s=%d,%s=%d", names[orders[o][0]],
                         (int)sizes[orders[o][0]], names[orders[o][1]], (int)sizes[orders[o][1]],
                         names[orders[o][2]], (int)sizes[orders[o][2]]);
        }
    return count;
}

Test(pairing, every_pair_of_small_grids_equals_the_reference)
{
    static const int64_t worlds[] = {1, 2, 3, 4, 6, 8, 12, 16};
    static char src[128][48], dst[128][48];
    int outcomes[OUTCOMES] = {0};
    for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++) {
        int src_count = all_specs(src, worlds[w], false);
        int dst_count = all_specs(dst, worlds[w], true);
        for (int i = 0; i < src_count; i++)
            for (int j = 0; j < dst_count; j++)
                outcomes[check_pair(src[i], dst[j])]++;
    }
    cr_assert(outcomes[GOOD] > 500 && outcomes[INDIVISIBLE] > 100 && outcomes[MISPLACED] > 500,
              "%d good, %d indivisible, %d misplaced", outcomes[GOOD], outcomes[INDIVISIBLE],
              outcomes[MISPLACED]);
}

Test(pairing, gather_groups_partition_16384_ranks)
{
    pair p = pair_of("tp=8,dp=2048", "tp=8,cp=16,dp=128", 100);
    mimo_pairing got = MIMO_PAIRING_INIT;
    int64_t ranks[16];
    char *seen = calloc(16384, 1);
    SUCCEEDS(mimo_pairing_of(&got, p.src, p.dst));
    cr_assert(got.fan == MIMO_FAN_IN && got.groups == 1024 && got.group_size == 16);
    for (int64_t g = 0; g < got.groups; g++) {
        SUCCEEDS(mimo_pairing_group(ranks, p.src, p.dst, g));
        for (int64_t j = 0; j < 16; j++) {
            int64_t index, slot;
            cr_assert_eq(seen[ranks[j] - 100]++, 0, "rank %" PRId64 " is in two groups", ranks[j]);
            SUCCEEDS(mimo_pairing_slot(&index, &slot, p.src, p.dst, ranks[j]));
            cr_assert(index == g && slot == j);
        }
    }
    free(seen);
    release(p);
}

/* ------------------------------------------ errors ------------------------------------------ */

#define REFUSED(src_spec, dst_spec, ...)                                        \
    do {                                                                        \
        pair p = pair_of(src_spec, dst_spec, 0);                                \
        mimo_pairing out = {sizeof(mimo_pairing), MIMO_FAN_OUT, -7, -7, -7};    \
        FAILS(mimo_pairing_of(&out, p.src, p.dst), MIMO_ERR_GRID, __VA_ARGS__); \
        cr_assert(out.scale == -7, "a failed call leaves its output");          \
        release(p);                                                             \
    } while (0)

Test(pairing, every_rule_has_its_sentence)
{
    REFUSED("dp=4", "tp=2,dp=2", "src grid dp=4", "no dimension 'tp'");
    REFUSED("tp=4", "tp=2,dp=2", "src grid tp=4", "no dimension 'dp'");
    REFUSED("tp=2,dp=2", "dp=4", "dst grid dp=4", "no dimension 'tp'");
    REFUSED("tp=2,dp=2", "tp=4", "dst grid tp=4", "no dimension 'dp'");
    REFUSED("tp=2,dp=2", "tp=2,dp=4", "src grid tp=2,dp=2 has 4", "dst grid tp=2,dp=4 has 8");
    REFUSED("tp=1,cp=2,dp=2", "tp=2,dp=2", "src grid tp=1,cp=2,dp=2", "cp = 2");
    REFUSED("tp=1,pp=2,dp=2", "tp=2,dp=2", "src grid tp=1,pp=2,dp=2", "pp = 2");
    REFUSED("tp=2,dp=2", "tp=1,pp=2,dp=2", "dst grid tp=1,pp=2,dp=2", "pp = 2");
    REFUSED("tp=1,gtp_remat=2,dp=2", "tp=2,dp=2", "src grid", "gtp_remat = 2");
    REFUSED("tp=2,dp=2", "tp=1,ep=2,dp=2", "dst grid", "ep = 2");
    REFUSED("tp=2,dp=2", "tp=1,x=2:copies,dp=2", "dst grid", "x = 2", "other than tp, cp and dp");
    REFUSED("tp=3,dp=2", "tp=2,dp=3", "dp = 2", "dp = 3", "divides");
    /* The same samples in another order. Megatron-LM accepts both and swaps the samples. */
    REFUSED("tp=2,dp=2", "dp=2,tp=2", "rank 1", "coordinate 0 of 2 in src grid tp=2,dp=2",
            "1 of 2 in dst grid dp=2,tp=2");
    REFUSED("tp=2,dp=4", "dp=2,tp=2,cp=2", "rank 1", "coordinate 0 of 4", "1 of 2");
    REFUSED("tp=2,dp=4", "tp=2,dp=2,cp=2", "rank 2", "coordinate 1 of 4", "1 of 2");
}

Test(pairing, offsets_must_agree)
{
    mimo_grid *src, *dst;
    mimo_pairing out = MIMO_PAIRING_INIT;
    SUCCEEDS(mimo_grid_create_text(&src, "tp=2,dp=2", 0));
    SUCCEEDS(mimo_grid_create_text(&dst, "tp=2,dp=2", 4));
    FAILS(mimo_pairing_of(&out, src, dst), MIMO_ERR_GRID, "offset 0", "offset 4");
    release((pair){src, dst});
}

Test(pairing, arguments)
{
    pair good = pair_of("tp=2,dp=4", "tp=2,cp=2,dp=2", 0), bad = pair_of("tp=2,dp=2", "dp=4", 0);
    int64_t a = -7, b = -7, ranks[2] = {-7, -7};
    mimo_pairing out = MIMO_PAIRING_INIT;
    FAILS(mimo_pairing_of(NULL, good.src, good.dst), MIMO_ERR_ARGUMENT, "out is NULL");
    FAILS(mimo_pairing_of(&out, NULL, good.dst), MIMO_ERR_ARGUMENT, "src is NULL");
    FAILS(mimo_pairing_of(&out, good.src, NULL), MIMO_ERR_ARGUMENT, "dst is NULL");
    FAILS(mimo_pairing_group(ranks, good.src, good.dst, 4), MIMO_ERR_ARGUMENT, "group 4",
          "4 groups");
    FAILS(mimo_pairing_group(ranks, good.src, good.dst, -1), MIMO_ERR_ARGUMENT, "group -1");
    FAILS(mimo_pairing_group(NULL, good.src, good.dst, 0), MIMO_ERR_ARGUMENT, "ranks is NULL");
    FAILS(mimo_pairing_group(ranks, good.src, good.src, 0), MIMO_ERR_ARGUMENT, "0 groups");
    FAILS(mimo_pairing_group(ranks, bad.src, bad.dst, 0), MIMO_ERR_GRID, "'tp'");
    FAILS(mimo_pairing_slot(&a, &b, good.src, good.dst, 8), MIMO_ERR_GRID, "rank 8", "0 to 7");
    FAILS(mimo_pairing_slot(&a, &b, bad.src, bad.dst, 0), MIMO_ERR_GRID, "'tp'");
    FAILS(mimo_pairing_samples(&a, &b, good.src, 8, 8), MIMO_ERR_GRID, "rank 8");
    FAILS(mimo_pairing_samples(&a, &b, good.src, 0, 6), MIMO_ERR_SHAPE, "batch of 6", "dp = 4",
          "tp=2,dp=4");
    FAILS(mimo_pairing_samples(&a, &b, good.src, 0, -4), MIMO_ERR_SHAPE, "batch of -4");
    FAILS(mimo_pairing_samples(&a, &b, NULL, 0, 4), MIMO_ERR_ARGUMENT,
          "mimo_pairing_samples: grid is NULL");
    FAILS(mimo_pairing_samples(NULL, &b, good.src, 0, 4), MIMO_ERR_ARGUMENT, "first is NULL");
    FAILS(mimo_pairing_samples(&a, NULL, good.src, 0, 4), MIMO_ERR_ARGUMENT, "count is NULL");
    cr_assert(a == -7 && b == -7 && ranks[0] == -7, "outputs stay untouched");
    release(good);
    release(bad);
}
