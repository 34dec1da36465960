#include "comm/residency.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/checked.h"

/* --------------------------------------- sums --------------------------------------- */

/* All lanes of the ledger at once. */
typedef struct sums {
    int64_t reserved, rest, budget;
    int64_t lanes; /* that are reserved */
} sums;

static sums add_up(const mimo_residency *ledger)
{
    sums all = {.budget = mimo_residency_whole(ledger->multiprocessors)};
    for (const mimo_lane *it = ledger->lanes; it; it = it->next) {
        all.lanes += it->kind == MIMO_LANE_RESERVED;
        if (it->kind == MIMO_LANE_RESERVED)
            all.reserved += it->blocks;
        else if (it->kind == MIMO_LANE_REST)
            all.rest = mimo_larger(all.rest, it->blocks);
        else
            all.budget = mimo_smaller(all.budget, it->blocks);
    }
    return all;
}

int64_t mimo_residency_whole(int64_t multiprocessors)
{
    return mimo_larger(multiprocessors - MIMO_RESIDENCY_SPARE, 1);
}

int64_t mimo_residency_budget(const mimo_residency *ledger)
{
    return add_up(ledger).budget;
}

int64_t mimo_residency_in_flight(const mimo_residency *ledger)
{
    const sums all = add_up(ledger);
    return all.reserved + all.rest;
}

/* ------------------------- ranks that share a device ------------------------- */

int64_t mimo_residency_share(bool mps, const char *percentage)
{
    const double percent = mps && percentage ? strtod(percentage, NULL) : 0;
    if (!(percent > 0 && percent < 100))
        return MIMO_SHARE_WHOLE;
    return (int64_t)ceil(percent * (MIMO_SHARE_WHOLE / 100));
}

int64_t mimo_residency_part(const mimo_residency_rank *ranks, int count, int self)
{
    int64_t shares = 0;
    for (int i = 0; i < count; i++)
        shares += ranks[i].device == ranks[self].device ? ranks[i].share : 0;
    int64_t budget = mimo_residency_whole(ranks[self].multiprocessors);
    return mimo_larger(budget * MIMO_SHARE_WHOLE / mimo_larger(shares, MIMO_SHARE_WHOLE), 1);
}

/* -------------------------------------- lanes --------------------------------------- */

static mimo_status enter(mimo_residency *ledger, mimo_lane *lane, mimo_lane_kind kind,
                         int64_t blocks)
{
    *lane = (mimo_lane){ledger->lanes, kind, blocks};
    ledger->lanes = lane;
    return MIMO_OK;
}

mimo_status mimo_residency_bound(mimo_residency *ledger, mimo_lane *lane, int64_t blocks)
{
    const sums all = add_up(ledger);
    MIMO_CHECK(all.reserved + all.rest <= blocks, MIMO_ERR_ARGUMENT,
               "ranks share a device, and this one may have %" PRId64
               " thread blocks of kernels that wait for other ranks in flight; it has %" PRId64
               " already",
               blocks, all.reserved + all.rest);
    return enter(ledger, lane, MIMO_LANE_BOUND, blocks);
}

/* A limit, and what is left of it. */
typedef struct limit_text {
    char text[64];
} limit_text;

static limit_text limit_of(int64_t wanted, int64_t blocks)
{
    limit_text out;
    int length = snprintf(out.text, sizeof out.text, "%" PRId64 " thread blocks", blocks);
    if (wanted > blocks)
        snprintf(out.text + length, sizeof out.text - (size_t)length, " (of %" PRId64 " wanted)",
                 wanted);
    return out;
}

mimo_status mimo_residency_reserve(mimo_residency *ledger, mimo_lane *lane, int64_t wanted)
{
    const sums all = add_up(ledger);
    const int64_t blocks = mimo_smaller(wanted, all.budget);
    MIMO_CHECK(blocks <= all.budget - all.reserved - all.rest, MIMO_ERR_ARGUMENT,
               "%s beside %" PRId64 " of %" PRId64 " others with a limit and %" PRId64
               " of calls without one: kernels that wait for other ranks may run at the same time "
               "on %" PRId64 " of this device's %" PRId64 " multiprocessors",
               limit_of(wanted, blocks).text, all.reserved, all.lanes, all.rest, all.budget,
               ledger->multiprocessors);
    return enter(ledger, lane, MIMO_LANE_RESERVED, blocks);
}

mimo_status mimo_residency_rest(mimo_residency *ledger, mimo_lane *lane, int64_t wanted)
{
    const sums all = add_up(ledger);
    MIMO_CHECK(all.reserved < all.budget, MIMO_ERR_ARGUMENT,
               "no thread block is left for calls without a limit: %" PRId64
               " others have reserved the %" PRId64
               " that may run at the same time on this device's %" PRId64 " multiprocessors",
               all.lanes, all.reserved, ledger->multiprocessors);
    return enter(ledger, lane, MIMO_LANE_REST, mimo_smaller(wanted, all.budget - all.reserved));
}

void mimo_residency_shrink(mimo_residency *ledger, mimo_lane *lane, int64_t blocks)
{
    lane->blocks = blocks;
    if (blocks == 0)
        mimo_residency_leave(ledger, lane);
}

void mimo_residency_leave(mimo_residency *ledger, mimo_lane *lane)
{
    mimo_lane **link = &ledger->lanes;
    if (lane->kind == MIMO_LANE_OUT)
        return;
    while (*link != lane)
        link = &(*link)->next;
    *link = lane->next;
    *lane = (mimo_lane){.kind = MIMO_LANE_OUT};
}
