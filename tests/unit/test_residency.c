/* Which kernels that wait for peers may be in flight together: the ledger, compared with all sets
 * of kernels that can be, and with devices that run what it has let in. */
#include <string.h>

#include <criterion/criterion.h>

#include "cases_ran.h"
#include "comm/residency.h"
#include "expect_failure.h"
#include "guarded.h"

enum { MOST_LANES = 10 };

static const mimo_residency empty = {NULL, 132};

/* -------------------------------------- sentences ------------------------------------------- */

Test(residency, refuses_with_numbers, .timeout = 60)
{
    mimo_residency ledger = empty;
    mimo_lane rows = {0}, bridge = {0}, more = {0}, rest = {0};
    SUCCEEDS(mimo_residency_reserve(&ledger, &rows, 64));
    SUCCEEDS(mimo_residency_reserve(&ledger, &bridge, 64));
    FAILS(mimo_residency_reserve(&ledger, &more, 16), MIMO_ERR_ARGUMENT,
          "16 thread blocks beside 128 of 2 others with a limit and 0 of calls without one",
          "on 128 of this device's 132 multiprocessors");
    FAILS(mimo_residency_rest(&ledger, &rest, 1), MIMO_ERR_ARGUMENT,
          "no thread block is left for calls without a limit: 2 others have reserved the 128",
          "132 multiprocessors");
    mimo_residency_leave(&ledger, &bridge);
    SUCCEEDS(mimo_residency_rest(&ledger, &rest, 1000));
    cr_assert_eq(rest.blocks, 64, "the rest is %ld", (long)rest.blocks);
    FAILS(mimo_residency_reserve(&ledger, &more, 1), MIMO_ERR_ARGUMENT,
          "1 thread blocks beside 64 of 1 others with a limit and 64 of calls without one");
    FAILS(mimo_residency_bound(&ledger, &bridge, 31), MIMO_ERR_ARGUMENT,
          "this one may have 31 thread blocks", "it has 128 already");
}

/* ------------------------------------ random ledgers ---------------------------------------- */

/* The most thread blocks of any set of lanes that may be in flight together: all sets are tried. */
static int64_t most_in_flight(const mimo_lane *lanes)
{
    int64_t most = 0;
    for (unsigned set = 0; set < 1U << MOST_LANES; set++) {
        int64_t blocks = 0, rest = 0;
        for (int i = 0; i < MOST_LANES; i++) {
            if (!(set & 1U << i) || lanes[i].kind == MIMO_LANE_OUT)
                continue;
            blocks += lanes[i].kind == MIMO_LANE_BOUND ? 0 : lanes[i].blocks;
            rest += lanes[i].kind == MIMO_LANE_REST;
        }
        if (rest <= 1 && blocks > most)
            most = blocks;
    }
    return most;
}

static int64_t least_bound(const mimo_lane *lanes, int64_t multiprocessors)
{
    int64_t least = mimo_residency_whole(multiprocessors);
    for (int i = 0; i < MOST_LANES; i++)
        if (lanes[i].kind == MIMO_LANE_BOUND && lanes[i].blocks < least)
            least = lanes[i].blocks;
    return least;
}

static mimo_status enter(mimo_residency *ledger, mimo_lane *lane, mimo_lane_kind kind,
                         int64_t blocks)
{
    if (kind == MIMO_LANE_BOUND)
        return mimo_residency_bound(ledger, lane, blocks);
    return kind == MIMO_LANE_REST ? mimo_residency_rest(ledger, lane, blocks)
                                  : mimo_residency_reserve(ledger, lane, blocks);
}

/* Let a lane in or out, and judge what the ledger made of it. Returns whether it was refused. */
static bool step(mimo_residency *ledger, mimo_lane lanes[MOST_LANES], uint64_t *random)
{
    mimo_lane *lane = &lanes[random_below(random, MOST_LANES)], before[MOST_LANES];
    mimo_lane_kind kind = MIMO_LANE_RESERVED + (mimo_lane_kind)random_below(random, 3);
    int64_t blocks = 1 + random_below(random, ledger->multiprocessors);
    bool leaves = lane->kind != MIMO_LANE_OUT;
    memcpy(before, lanes, sizeof before);
    int64_t budget = least_bound(lanes, ledger->multiprocessors);
    mimo_status status = MIMO_OK;
    if (leaves && lane->kind == MIMO_LANE_REST && random_below(random, 2) > 0)
        mimo_residency_shrink(ledger, lane, random_below(random, lane->blocks + 1));
    else if (leaves)
        mimo_residency_leave(ledger, lane);
    else
        status = enter(ledger, lane, kind, blocks);
    if (status != MIMO_OK) {
        cr_assert_eq(memcmp(before, lanes, sizeof before), 0, "a refused lane has left traces");
        if (kind == MIMO_LANE_RESERVED && blocks > budget)
            blocks = budget;
        *lane = (mimo_lane){.kind = kind, .blocks = kind == MIMO_LANE_REST ? 1 : blocks};
        budget = kind == MIMO_LANE_BOUND && blocks < budget ? blocks : budget;
        cr_assert_gt(most_in_flight(lanes), budget, "a lane that fits was refused");
        *lane = (mimo_lane){.kind = MIMO_LANE_OUT};
    }
    return status != MIMO_OK;
}

Test(residency, all_sets_of_lanes_fit, .timeout = 60)
{
    enum { LEDGERS = 60, STEPS = 60 };
    uint64_t random = 1;
    int64_t refused = 0;
    for (int l = 0; l < LEDGERS; l++) {
        mimo_lane lanes[MOST_LANES] = {{0}};
        mimo_residency ledger = {NULL, 1 + random_below(&random, 200)};
        for (int s = 0; s < STEPS; s++) {
            refused += step(&ledger, lanes, &random);
            int64_t most = most_in_flight(lanes);
            cr_assert_eq(mimo_residency_in_flight(&ledger), most);
            cr_assert_eq(mimo_residency_budget(&ledger),
                         least_bound(lanes, ledger.multiprocessors));
            cr_assert_leq(most, mimo_residency_budget(&ledger));
        }
        for (int i = 0; i < MOST_LANES; i++)
            mimo_residency_leave(&ledger, &lanes[i]);
        cr_assert_null(ledger.lanes);
    }
    CASES_RAN(refused, LEDGERS * STEPS, 400, "refused lanes");
}

/* What is left is given: the rest takes no less than it could. */
Test(residency, rest_is_what_reservations_leave, .timeout = 60)
{
    uint64_t random = 2;
    for (int i = 0; i < 1000; i++) {
        mimo_residency ledger = {NULL, 6 + random_below(&random, 200)};
        mimo_lane lanes[4] = {{0}};
        int64_t most = mimo_residency_whole(ledger.multiprocessors);
        int64_t taken = 1 + random_below(&random, most - 1),
                wanted = 1 + random_below(&random, 300);
        SUCCEEDS(mimo_residency_reserve(&ledger, &lanes[0], taken));
        for (int r = 1; r <= 2; r++) {
            SUCCEEDS(mimo_residency_rest(&ledger, &lanes[r], wanted));
            cr_assert_eq(lanes[r].blocks, wanted < most - taken ? wanted : most - taken);
        }
        int64_t left = most - taken - lanes[1].blocks;
        cr_assert_eq(mimo_residency_reserve(&ledger, &lanes[3], left + 1), MIMO_ERR_ARGUMENT);
        if (left > 0)
            SUCCEEDS(mimo_residency_reserve(&ledger, &lanes[3], left));
    }
}

/* --------------------------------- ranks that share a device -------------------------------- */

/* Multiprocessors that a process may see of `whole`, at the most: as if MPS rounded a share up to
 * an even number. */
static int64_t seen_of(int64_t whole, int64_t share)
{
    int64_t seen = (whole * share + 2 * MIMO_SHARE_WHOLE - 1) / (2 * MIMO_SHARE_WHOLE) * 2;
    return seen < whole ? seen : whole;
}

/* Whatever shares ranks have, of all or of 1 to 50 percent, their parts fit their device. Equal
 * ranks have equal parts, and shares that fit lose nothing. */
Test(residency, parts_of_a_shared_device, .timeout = 60)
{
    enum { RANKS = 8, DEVICES = 3, WHOLE = 132 };
    uint64_t random = 3;
    int64_t fitting = 0;
    for (int i = 0; i < 2000; i++) {
        mimo_residency_rank ranks[RANKS];
        int64_t parts[DEVICES] = {0}, shares[DEVICES] = {0};
        int count = 1 + (int)random_below(&random, RANKS);
        for (int r = 0; r < count; r++) {
            int64_t share = random_below(&random, 4) == 0 ? MIMO_SHARE_WHOLE
                                                          : 100 * (1 + random_below(&random, 50));
            ranks[r] = (mimo_residency_rank){(uint64_t)random_below(&random, DEVICES),
                                             seen_of(WHOLE, share), share};
            shares[ranks[r].device] += share;
        }
        for (int r = 0; r < count; r++) {
            const mimo_residency_rank *it = &ranks[r];
            int64_t part = mimo_residency_part(ranks, count, r);
            cr_assert_geq(part, 1);
            parts[it->device] += part;
            for (int o = 0; o < r; o++)
                if (ranks[o].device == it->device && ranks[o].share == it->share)
                    cr_assert_eq(part, mimo_residency_part(ranks, count, o));
            if (shares[it->device] <= MIMO_SHARE_WHOLE && ++fitting)
                cr_assert_eq(part, mimo_residency_whole(it->multiprocessors));
        }
        for (int d = 0; d < DEVICES; d++)
            cr_assert_leq(parts[d], WHOLE - MIMO_RESIDENCY_SPARE, "%ld of %ld hundredths",
                          (long)parts[d], (long)shares[d]);
    }
    CASES_RAN(fitting, 2000 * RANKS, 1000, "ranks whose shares fit");
}

/* Two processes of which each sees all of the device, whatever their variable says. */
static int64_t part_of_two(bool mps, const char *percentage, int64_t seen)
{
    const int64_t share = mimo_residency_share(mps, percentage);
    const mimo_residency_rank ranks[2] = {{7, seen, share}, {7, seen, share}};
    return mimo_residency_part(ranks, 2, 1);
}

/* The variable counts only where MPS reads it. Otherwise both would take the whole device, and
 * wait for each other. */
Test(residency, a_share_needs_mps, .timeout = 60)
{
    static const char *const whole[] = {NULL, "", "0", "100", "-5", "250", "nan", "half"};
    cr_assert_eq(part_of_two(false, NULL, 132), 64);
    cr_assert_eq(part_of_two(false, "50", 132), 64, "without MPS both would have 128");
    cr_assert_eq(part_of_two(true, "50", 66), 62);
    cr_assert_eq(part_of_two(true, "75", 100), 64, "75 + 75 percent");
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        cr_assert_eq(mimo_residency_share(true, whole[i]), MIMO_SHARE_WHOLE, "\"%s\"", whole[i]);
    cr_assert_eq(mimo_residency_share(true, "24"), 2400);
    cr_assert_eq(mimo_residency_share(true, "12.5"), 1250);
    cr_assert_eq(mimo_residency_share(true, "0.001"), 1);
}

/* Ranks that share a device may ask for more than their parts: a limit is the most, so each gets
 * its part, and all of them fit. A second lane of a rank finds nothing left. */
Test(residency, limits_above_a_part, .timeout = 60)
{
    enum { RANKS = 8, WHOLE = 132, LIMIT = 32 };
    mimo_residency_rank ranks[RANKS];
    int64_t sum = 0;
    for (int r = 0; r < RANKS; r++)
        ranks[r] = (mimo_residency_rank){7, WHOLE, MIMO_SHARE_WHOLE};
    for (int r = 0; r < RANKS; r++) {
        mimo_residency ledger = empty;
        mimo_lane bound = {0}, rows = {0}, more = {0};
        int64_t part = mimo_residency_part(ranks, RANKS, r);
        SUCCEEDS(mimo_residency_bound(&ledger, &bound, part));
        SUCCEEDS(mimo_residency_reserve(&ledger, &rows, LIMIT));
        cr_assert_eq(rows.blocks, 16, "%ld thread blocks", (long)rows.blocks);
        FAILS(mimo_residency_reserve(&ledger, &more, LIMIT), MIMO_ERR_ARGUMENT,
              "16 thread blocks (of 32 wanted) beside 16 of 1 others",
              "on 16 of this device's 132");
        sum += rows.blocks;
    }
    cr_assert_leq(sum, WHOLE - MIMO_RESIDENCY_SPARE);
}

/* ------------------------------------ devices that run -------------------------------------- */

enum { DEVICES = 2 };

/* A kernel of each lane on each of two devices, which wait for each other: a kernel ends when all
 * thread blocks of both run. Blocks get multiprocessors in the order in which their kernels were
 * started, and keep them until their kernel ends. */
typedef struct machine {
    int64_t multiprocessors;
    int64_t blocks[MOST_LANES]; /* of a kernel, on each of the devices */
    int lanes;
    int order[DEVICES][MOST_LANES]; /* in which a device starts kernels */
    bool ended[MOST_LANES];
} machine;

/* How many thread blocks of each kernel run on a device. */
static void place(int64_t runs[MOST_LANES], const machine *it, int device)
{
    int64_t free = it->multiprocessors;
    for (int i = 0; i < it->lanes; i++) {
        int lane = it->order[device][i];
        int64_t here = it->ended[lane] ? 0 : it->blocks[lane];
        runs[lane] = here < free ? here : free;
        free -= runs[lane];
    }
}

/* Run until nothing ends any more. Returns how many kernels are left. */
static int run(machine *it)
{
    int left = it->lanes;
    for (bool moved = true; moved;) {
        int64_t runs[DEVICES][MOST_LANES];
        moved = false;
        for (int d = 0; d < DEVICES; d++)
            place(runs[d], it, d);
        for (int i = 0; i < it->lanes; i++)
            if (!it->ended[i] && runs[0][i] == it->blocks[i] && runs[1][i] == it->blocks[i]) {
                it->ended[i] = moved = true;
                left--;
            }
    }
    return left;
}

static void shuffle(int *order, int count, uint64_t *random)
{
    for (int i = 0; i < count; i++) {
        int at = (int)random_below(random, i + 1);
        order[i] = order[at];
        order[at] = i;
    }
}

/* Whatever order the two ranks start their lanes in, what the ledger lets in comes to its end. */
Test(residency, what_is_let_in_ends, .timeout = 60)
{
    enum { MACHINES = 2000 };
    uint64_t random = 4;
    int64_t several = 0;
    for (int i = 0; i < MACHINES; i++) {
        mimo_residency ledger = {NULL, 8 + random_below(&random, 140)};
        mimo_lane lanes[MOST_LANES] = {{0}};
        machine it = {.multiprocessors = ledger.multiprocessors};
        for (int l = 0; l < MOST_LANES; l++) {
            int64_t blocks = 1 + random_below(&random, ledger.multiprocessors);
            if (mimo_residency_reserve(&ledger, &lanes[l], blocks) == MIMO_OK)
                it.blocks[it.lanes++] = lanes[l].blocks;
        }
        for (int d = 0; d < DEVICES; d++)
            shuffle(it.order[d], it.lanes, &random);
        several += it.lanes > 1;
        cr_assert_eq(run(&it), 0, "two ranks wait for each other");
    }
    CASES_RAN(several, MACHINES, 1000, "machines of several lanes");
}

/* The same two kernels above the budget, each started first by one of the ranks: neither ends. So
 * the refusal is not in vain. */
Test(residency, more_would_hang, .timeout = 60)
{
    machine it = {
        .multiprocessors = 132, .blocks = {70, 70}, .lanes = 2, .order = {{0, 1}, {1, 0}}};
    cr_assert_eq(run(&it), 2);
    mimo_residency ledger = empty;
    mimo_lane lanes[2] = {{0}};
    SUCCEEDS(mimo_residency_reserve(&ledger, &lanes[0], 70));
    cr_assert_eq(mimo_residency_reserve(&ledger, &lanes[1], 70), MIMO_ERR_ARGUMENT);
}
