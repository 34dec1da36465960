/* Items on lanes: goldens, the bounds that the header promises, and bad input. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "balance_items.h"
#include "expect_failure.h"
#include "core/checked.h"

enum { MOST_LANES = 512, MOST_AT_HOME = 16 };

static balance_items items;
static int64_t lane[BALANCE_MOST_ITEMS];

static mimo_balance_report balanced(const mimo_balance_desc *desc)
{
    mimo_balance_report report = MIMO_BALANCE_REPORT_INIT;
    SUCCEEDS(mimo_balance(lane, desc));
    SUCCEEDS(mimo_balance_report_of(&report, desc, lane));
    return report;
}

/* A few items, written out. */
static mimo_balance_desc desc_of(int64_t lanes, const int64_t *cost, int64_t count)
{
    mimo_balance_desc desc = MIMO_BALANCE_DESC_INIT;
    desc.lanes = lanes;
    desc.cost = cost;
    desc.items = count;
    return desc;
}

#define ITEMS(...) \
    (const int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)

static void expect_lanes(const int64_t *expected, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        cr_expect_eq(lane[i], expected[i], "item %" PRId64 " is on lane %" PRId64 ", not %" PRId64,
                     i, lane[i], expected[i]);
}

/* ------------------------------------------ goldens ----------------------------------------- */

Test(balance, longest_first)
{
    mimo_balance_desc desc = desc_of(2, ITEMS(3, 8, 5, 5, 1));
    mimo_balance_report report = balanced(&desc);
    expect_lanes(ITEMS(0, 0, 1, 1, 1));
    cr_expect(report.cost == 22 && report.mean == 11 && report.bound == 11 && report.longest == 11,
              "longest %" PRId64, report.longest);
    cr_expect(report.longest_home == 0 && report.rows_moved == 0 && report.rows == 22);
}

Test(balance, ties_go_to_the_lower_item_and_lane)
{
    mimo_balance_desc desc = desc_of(3, ITEMS(4, 4, 4, 4, 4));
    balanced(&desc);
    expect_lanes(ITEMS(0, 1, 2, 0, 1));
}

Test(balance, what_is_balanced_stays_at_home)
{
    mimo_balance_desc desc = desc_of(2, ITEMS(4, 6, 6, 4));
    desc.home = (const int64_t[]){1, 1, 0, 0};
    mimo_balance_report report = balanced(&desc);
    expect_lanes(desc.home, 4);
    cr_expect(report.rows_moved == 0 && report.longest == 10);
}

Test(balance, only_what_is_too_much_leaves)
{
    mimo_balance_desc desc = desc_of(2, ITEMS(4, 3, 2, 1));
    desc.home = (const int64_t[]){0, 0, 0, 0};
    desc.rows = (const int64_t[]){40, 30, 20, 10};
    mimo_balance_report report = balanced(&desc);
    expect_lanes(ITEMS(0, 1, 1, 0));
    cr_expect(report.longest_home == 10 && report.longest == 5 && report.rows_moved == 50 &&
              report.rows == 100 && report.empty_lanes == 0);
}

/* Longest-first gives 3 + 2 + 2 and 3 + 2. */
Test(balance, a_swap_mends_longest_first)
{
    mimo_balance_desc desc = desc_of(2, ITEMS(3, 3, 2, 2, 2));
    mimo_balance_report report = balanced(&desc);
    cr_expect_eq(report.longest, 6, "longest lane %" PRId64, report.longest);
}

/* A swap would shorten the longest lane below the limit, which is longest-first's, and move more
 * rows than longest-first does: 174 against 125, and 72 against 8. */
Test(balance, no_more_rows_move_than_in_longest_first)
{
    mimo_balance_desc desc = desc_of(2, ITEMS(3, 2, 2, 2, 3));
    desc.rows = (const int64_t[]){62, 28, 6, 63, 84};
    desc.home = (const int64_t[]){1, 0, 1, 1, 1};
    mimo_balance_report report = balanced(&desc);
    cr_expect(report.longest <= 7 && report.rows_moved <= 125, "%" PRId64 " rows",
              report.rows_moved);
    desc = desc_of(2, ITEMS(2880730213994225, 2891547014377876, 1118406709480587, 2365797082369631,
                            2004512984356117, 1976620321760161));
    desc.rows = (const int64_t[]){64, 42, 24, 82, 8, 8};
    desc.home = (const int64_t[]){1, -1, 1, 1, 1, 0};
    report = balanced(&desc);
    cr_expect(report.rows_moved <= 8, "%" PRId64 " rows", report.rows_moved);
}

Test(balance, slack_keeps_rows_at_home)
{
    mimo_balance_desc desc = desc_of(2, ITEMS(105, 95));
    desc.home = (const int64_t[]){0, 0};
    cr_expect_eq(balanced(&desc).longest, 105);
    desc = desc_of(2, ITEMS(50, 50, 5, 45, 45, 5));
    desc.home = (const int64_t[]){0, 0, 0, 1, 1, 1};
    desc.slack_permille = 0;
    cr_expect_eq(balanced(&desc).rows_moved, 5);
    desc.slack_permille = 50;
    cr_expect_eq(balanced(&desc).rows_moved, 0);
}

Test(balance, in_order)
{
    mimo_balance_desc desc = desc_of(3, ITEMS(1, 2, 3, 4, 5, 6, 7, 8, 9));
    desc.in_order = true;
    cr_expect_eq(balanced(&desc).longest, 17);
    expect_lanes(ITEMS(0, 0, 0, 0, 0, 1, 1, 2, 2));
    desc = desc_of(4, ITEMS(2, 2, 2, 2, 2));
    desc.in_order = true;
    mimo_balance_report report = balanced(&desc);
    cr_expect(report.longest == 4 && report.empty_lanes == 0);
}

Test(balance, nothing_to_do)
{
    mimo_balance_desc desc = desc_of(3, NULL, 0);
    mimo_balance_report report = MIMO_BALANCE_REPORT_INIT;
    SUCCEEDS(mimo_balance(NULL, &desc));
    SUCCEEDS(mimo_balance_report_of(&report, &desc, NULL));
    cr_expect(report.empty_lanes == 3 && report.bound == 0);
    desc.in_order = true;
    SUCCEEDS(mimo_balance(NULL, &desc));
    desc = desc_of(2, ITEMS(0, 0, 0));
    cr_expect_eq(balanced(&desc).longest, 0);
}

/* ------------------------------------------- memory ----------------------------------------- */

Test(balance, memory_counts_before_time)
{
    mimo_balance_desc desc = desc_of(2, ITEMS(9, 1, 1, 1));
    desc.rows = (const int64_t[]){2, 2, 2, 2};
    desc.max_rows = 4;
    mimo_balance_report report = balanced(&desc);
    cr_expect(report.rows_over == 0 && report.longest == 10);
    desc.in_order = true;
    report = balanced(&desc);
    cr_expect(report.rows_over == 0 && report.longest == 10);
}

/* Dealt by cost, item 4 would find no lane with room for it. */
Test(balance, rows_are_packed_where_cost_does_not_fit)
{
    mimo_balance_desc desc = desc_of(2, ITEMS(9, 8, 7, 6, 1));
    desc.rows = (const int64_t[]){1, 2, 2, 1, 6};
    desc.max_rows = 6;
    cr_expect_eq(balanced(&desc).rows_over, 0);
    desc.rows = (const int64_t[]){4, 4, 4, 0, 0};
    cr_expect_eq(balanced(&desc).rows_over, 2); /* three items, and no lane has room for two */
    desc.in_order = true;
    cr_expect_eq(balanced(&desc).rows_over, 2);
}

/* ------------------------------------------- bounds ----------------------------------------- */

static int64_t longest_first_of(const mimo_balance_desc *desc)
{
    int64_t load[MOST_LANES] = {0}, longest = 0;
    bool *done = calloc((size_t)desc->items + 1, sizeof *done);
    for (int64_t n = 0; n < desc->items; n++) {
        int64_t item = -1, least = 0;
        for (int64_t i = 0; i < desc->items; i++)
            if (!done[i] && (item < 0 || desc->cost[i] > desc->cost[item]))
                item = i;
        for (int64_t l = 1; l < desc->lanes; l++)
            if (load[l] < load[least])
                least = l;
        load[least] += desc->cost[item];
        longest = mimo_larger(longest, load[least]);
        done[item] = true;
    }
    free(done);
    return longest;
}

static int64_t with_slack(const mimo_balance_desc *desc, int64_t bound)
{
    return bound + bound * desc->slack_permille / 1000;
}

/* Sizes between 0 and `most`, homes with a preference for low lanes. Returns the number of items
 * without: none where `seed` is even. */
static int64_t draw_items(int64_t seed, int64_t count, int64_t lanes, int64_t most)
{
    int64_t homeless = 0;
    items.count = count;
    items.lanes = lanes;
    for (int64_t i = 0; i < count; i++) {
        items.cost[i] = balance_draw((uint64_t)seed, 4 * i, most + 1);
        items.rows[i] = balance_draw((uint64_t)seed, 4 * i + 1, 50);
        items.home[i] = balance_draw((uint64_t)seed, 4 * i + 2,
                                     1 + balance_draw((uint64_t)seed, 4 * i + 3, lanes + 1)) -
                        1;
        if (seed % 2 == 0 && items.home[i] < 0)
            items.home[i] = 0;
        homeless += items.home[i] < 0;
    }
    return homeless;
}

Test(balance, random_items_keep_the_bounds)
{
    for (int64_t seed = 0; seed < 2000; seed++) {
        int64_t homeless = draw_items(seed, balance_draw(9, seed, 40),
                                      1 + balance_draw(10, seed, 9), seed % 3 == 0 ? 3 : 1000);
        mimo_balance_desc desc = desc_of_items(&items);
        desc.slack_permille = balance_draw(11, seed, 3) * 10;
        if (seed % 5 == 0)
            desc.home = NULL;
        mimo_balance_report report = balanced(&desc);
        int64_t first = longest_first_of(&desc);
        cr_assert(report.longest >= report.bound, "seed %" PRId64, seed);
        cr_assert(report.longest <= mimo_larger(first, with_slack(&desc, report.bound)),
                  "seed %" PRId64 ": longest lane %" PRId64 ", longest-first %" PRId64
                  ", bound %" PRId64,
                  seed, report.longest, first, report.bound);
        if (desc.home && homeless == 0 && report.longest_home <= with_slack(&desc, report.bound))
            cr_assert_eq(report.rows_moved, 0, "seed %" PRId64, seed); /* all may stay */
    }
}

/* The shortest longest lane of all 3^8 assignments. */
static int64_t best_of_all(const int64_t *cost)
{
    int64_t best = INT64_MAX;
    for (int code = 0; code < 6561; code++) {
        int64_t load[3] = {0};
        for (int i = 0, rest = code; i < 8; i++, rest /= 3)
            load[rest % 3] += cost[i];
        int64_t longest = mimo_larger(load[0], mimo_larger(load[1], load[2]));
        best = longest < best ? longest : best;
    }
    return best;
}

Test(balance, four_thirds_of_the_best)
{
    for (int64_t seed = 0; seed < 200; seed++) {
        draw_items(seed, 8, 3, seed % 2 == 0 ? 6 : 1000);
        mimo_balance_desc desc = desc_of_items(&items);
        desc.slack_permille = 0;
        int64_t best = best_of_all(desc.cost);
        mimo_balance_report report = balanced(&desc);
        cr_assert(3 * report.longest <= 4 * best, "seed %" PRId64 ": %" PRId64 " of %" PRId64, seed,
                  report.longest, best);
        int64_t largest = 0;
        for (int i = 0; i < 8; i++)
            largest = mimo_larger(largest, desc.cost[i]);
        cr_assert(3 * report.longest <= report.cost + 2 * largest, "seed %" PRId64, seed);
    }
}

/* The fewest rows that move in any of the 3^8 assignments whose longest lane is no longer. */
static int64_t fewest_moved(const mimo_balance_desc *desc, int64_t longest)
{
    int64_t best = INT64_MAX;
    for (int code = 0; code < 6561; code++) {
        int64_t load[3] = {0}, moved = 0;
        for (int i = 0, rest = code; i < 8; i++, rest /= 3) {
            load[rest % 3] += desc->cost[i];
            moved += rest % 3 == desc->home[i] ? 0 : desc->rows[i];
        }
        bool fits = mimo_larger(load[0], mimo_larger(load[1], load[2])) <= longest;
        best = fits && moved < best ? moved : best;
    }
    return best;
}

/* Images of native sizes: rows that move, of many batches, beside the best that can be. */
Test(balance, few_more_rows_move_than_in_the_best)
{
    int64_t moved = 0, best = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        items.count = 8;
        items.lanes = 3;
        for (int64_t i = 0; i < items.count; i++) {
            items.rows[i] = native_rows(seed, i);
            items.cost[i] = image_cost(items.rows[i]);
            items.home[i] = balance_draw(seed + 1000, i, 3);
        }
        mimo_balance_desc desc = desc_of_items(&items);
        mimo_balance_report report = balanced(&desc);
        moved += report.rows_moved;
        best += fewest_moved(&desc, report.longest);
    }
    cr_expect(100 * moved <= 103 * best, "%" PRId64 " rows move, and %" PRId64 " would do", moved,
              best);
}

/* The shortest longest lane of items in their order, by dynamic programming. */
static int64_t best_cut(const mimo_balance_desc *desc)
{
    int64_t best[64];
    for (int64_t end = 0; end <= desc->items; end++)
        best[end] = end == 0 ? 0 : INT64_MAX;
    for (int64_t l = 0; l < desc->lanes; l++)
        for (int64_t end = desc->items; end > 0; end--) {
            int64_t load = 0;
            for (int64_t begin = end; begin-- > 0;) {
                load += desc->cost[begin];
                int64_t longest = mimo_larger(load, best[begin]);
                best[end] = longest < best[end] ? longest : best[end];
            }
        }
    return best[desc->items];
}

Test(balance, in_order_is_the_best_cut)
{
    for (int64_t seed = 0; seed < 1000; seed++) {
        draw_items(seed, 1 + balance_draw(9, seed, 40), 1 + balance_draw(10, seed, 9), 100);
        mimo_balance_desc desc = desc_of_items(&items);
        desc.in_order = true;
        mimo_balance_report report = balanced(&desc);
        int64_t best = best_cut(&desc);
        cr_assert_eq(report.longest, best, "seed %" PRId64 ": %" PRId64 ", best %" PRId64, seed,
                     report.longest, best);
        for (int64_t i = 1; i < desc.items; i++)
            cr_assert(lane[i] >= lane[i - 1]);
    }
}

/* The images whose home is lane l, one after the other. Returns their number. */
static int images_at(int64_t l, int64_t *rows, int64_t *cost)
{
    int n = 0;
    for (int64_t i = 0; i < items.count; i++)
        if (items.home[i] == l) {
            rows[n] = items.rows[i];
            cost[n++] = items.cost[i];
        }
    return n;
}

/* The fewest rows of n images that cost at least `above` together: of equal ones as many as it
 * takes, of a few others the best of all sets. */
static int64_t fewest_rows(const int64_t *rows, const int64_t *cost, int n, int64_t above)
{
    static int64_t set_rows[1 << MOST_AT_HOME], set_cost[1 << MOST_AT_HOME];
    int64_t best = INT64_MAX;
    if (rows[0] == rows[n - 1])
        return (above + cost[0] - 1) / cost[0] * rows[0];
    cr_assert(n <= MOST_AT_HOME, "%d images", n);
    for (int set = 1; set < 1 << n; set++) {
        int first = 0;
        while (!(set >> first & 1))
            first++;
        set_rows[set] = set_rows[set & (set - 1)] + rows[first];
        set_cost[set] = set_cost[set & (set - 1)] + cost[first];
        if (set_cost[set] >= above && set_rows[set] < best)
            best = set_rows[set];
    }
    return best;
}

/* Rows that must leave where no lane is above `level`, wherever they find room. */
static int64_t rows_that_must_leave(int64_t level)
{
    static int64_t rows[BALANCE_MOST_ITEMS], cost[BALANCE_MOST_ITEMS];
    int64_t leave = 0;
    for (int64_t l = 0; l < items.lanes; l++) {
        int n = images_at(l, rows, cost);
        int64_t above = -level;
        for (int i = 0; i < n; i++)
            above += cost[i];
        if (above > 0)
            leave += fewest_rows(rows, cost, n, above);
    }
    return leave;
}

static const char *const image_kinds[IMAGE_KINDS] = {"native sizes", "frames", "of 576 rows"};

/* What the longest lane may be: 1.01 of the bound, or, where all images are equal, what a lane has
 * of them. */
static double longest_allowed(image_kind kind, const mimo_balance_report *report)
{
    int64_t a_lane = (items.count + items.lanes - 1) / items.lanes;
    double equal = (double)(a_lane * items.cost[0]), bound = 1.01 * (double)report->bound;
    return kind != IMAGES_NATIVE && equal > bound ? equal : bound;
}

/* And the rows that move, as a multiple of those that must. These leave, and need not fit anywhere:
 * so of few large images on few lanes they are too few. */
static double rows_allowed(image_kind kind, int64_t lanes)
{
    if (kind != IMAGES_NATIVE)
        return 1.01;
    return lanes < 64 ? 1.35 : 1.16;
}

static void check_images(image_kind kind, int64_t lanes, uint64_t seed)
{
    draw_images(&items, kind, lanes, 4, seed);
    mimo_balance_desc desc = desc_of_items(&items);
    mimo_balance_report report = balanced(&desc);
    double bound = (double)report.bound, rows = (double)report.rows;
    double must_leave = (double)rows_that_must_leave(report.longest);
    fprintf(stderr,
            "%-12s %3d lanes, %5d images: longest lane %.2f of the bound, then %.4f; rows that "
            "move %.3f, at least %.3f\n",
            image_kinds[kind], (int)lanes, (int)items.count, (double)report.longest_home / bound,
            (double)report.longest / bound, (double)report.rows_moved / rows, must_leave / rows);
    cr_expect((double)report.longest <= longest_allowed(kind, &report));
    cr_expect((double)report.rows_moved <= rows_allowed(kind, lanes) * must_leave);
}

Test(balance, images_of_real_batches)
{
    static const int64_t lanes[] = {8, 64, 512};
    for (int kind = 0; kind < IMAGE_KINDS; kind++)
        for (int n = 0; n < 3; n++)
            for (uint64_t seed = 1; seed <= 3; seed++)
                check_images((image_kind)kind, lanes[n], seed);
}

/* -------------------------------------------- errors ---------------------------------------- */

Test(balance, numbers_out_of_range)
{
    mimo_balance_desc desc = desc_of(8, ITEMS(1, 2, 3, -1));
    FAILS(mimo_balance(lane, &desc), MIMO_ERR_ARGUMENT, "balance: item 3 costs -1");
    desc.cost = (const int64_t[]){1, 2, 3, 4};
    desc.home = (const int64_t[]){0, 8, 0, 0};
    FAILS(mimo_balance(lane, &desc), MIMO_ERR_ARGUMENT, "balance: home 8 of item 1 on 8 lanes");
    desc.home = (const int64_t[]){0, 0, -2, 0};
    FAILS(mimo_balance(lane, &desc), MIMO_ERR_ARGUMENT, "balance: home -2 of item 2 on 8 lanes");
    desc.home = NULL;
    desc.rows = (const int64_t[]){1, 1, -5, 1};
    FAILS(mimo_balance(lane, &desc), MIMO_ERR_ARGUMENT, "balance: item 2 has -5 rows");
    desc.rows = NULL;
    desc.slack_permille = 1001;
    FAILS(mimo_balance(lane, &desc), MIMO_ERR_ARGUMENT, "slack_permille is 1001");
    desc.slack_permille = 10;
    desc.max_rows = -1;
    FAILS(mimo_balance(lane, &desc), MIMO_ERR_ARGUMENT, "balance: max_rows is -1");
    desc.max_rows = 0;
    desc.lanes = 0;
    FAILS(mimo_balance(lane, &desc), MIMO_ERR_ARGUMENT, "balance: 4 items on 0 lanes");
    desc.lanes = 2;
    desc.items = -1;
    FAILS(mimo_balance(lane, &desc), MIMO_ERR_ARGUMENT, "balance: -1 items on 2 lanes");
}

Test(balance, nothing_is_null)
{
    mimo_balance_report report = MIMO_BALANCE_REPORT_INIT;
    mimo_balance_desc desc = desc_of(2, NULL, 1);
    FAILS(mimo_balance(lane, &desc), MIMO_ERR_ARGUMENT, "balance: cost is NULL");
    FAILS(mimo_balance(lane, NULL), MIMO_ERR_ARGUMENT, "balance: desc is NULL");
    desc.cost = (const int64_t[]){1};
    FAILS(mimo_balance(NULL, &desc), MIMO_ERR_ARGUMENT, "mimo_balance: lane is NULL");
    FAILS(mimo_balance_report_of(&report, &desc, NULL), MIMO_ERR_ARGUMENT, "lane is NULL");
    FAILS(mimo_balance_report_of(NULL, &desc, lane), MIMO_ERR_ARGUMENT, "out is NULL");
    lane[0] = 2;
    FAILS(mimo_balance_report_of(&report, &desc, lane), MIMO_ERR_ARGUMENT,
          "balance: item 0 is on lane 2 of 2");
}

Test(balance, no_room)
{
    mimo_balance_desc desc = desc_of(2, ITEMS(100, 412, 100));
    desc.max_rows = 256;
    FAILS(mimo_balance(lane, &desc), MIMO_ERR_SHAPE,
          "balance: item 1 of 412 rows fits no lane of at most 256");
    desc.max_rows = 412;
    SUCCEEDS(mimo_balance(lane, &desc));
    desc = desc_of(2, ITEMS(3, 3, 3));
    desc.max_rows = 4;
    FAILS(mimo_balance(lane, &desc), MIMO_ERR_SHAPE,
          "balance: items of 9 rows fit no 2 lanes of at most 4");
}

Test(balance, sums_that_do_not_fit)
{
    mimo_balance_desc desc = desc_of(2, ITEMS(INT64_MAX, 1));
    FAILS(mimo_balance(lane, &desc), MIMO_ERR_OVERFLOW,
          "balance: items 0 to 1: ", "does not fit 64 bits");
    desc = desc_of(2, ITEMS(INT64_MAX - 1, 1));
    desc.slack_permille = 1000;
    cr_expect_eq(balanced(&desc).longest, INT64_MAX - 1);
    desc.in_order = true;
    cr_expect_eq(balanced(&desc).longest, INT64_MAX - 1);
}
