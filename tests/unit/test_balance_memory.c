/* Every allocation of the planner fails in turn: the call says so, and leaves its outputs alone. */
#include <criterion/criterion.h>

#include <mimo/balance.h>

#include "core/memory.h"
#include "expect_failure.h"

/* Swaps, packing by rows, cuts: each has memory of its own. */
static mimo_balance_desc desc_of(bool in_order)
{
    static const int64_t cost[] = {3, 3, 2, 2, 2}, rows[] = {4, 4, 4, 0, 0}, home[5];
    mimo_balance_desc desc = MIMO_BALANCE_DESC_INIT;
    desc.items = 5;
    desc.lanes = 2;
    desc.cost = cost;
    desc.rows = rows;
    desc.home = home;
    desc.max_rows = 6;
    desc.in_order = in_order;
    return desc;
}

static int64_t failures_of(bool in_order)
{
    mimo_balance_desc desc = desc_of(in_order);
    for (int64_t n = 1;; n++) {
        int64_t lane[5] = {-7, -7, -7, -7, -7};
        mimo_fail_allocation(n);
        mimo_status status = mimo_balance(lane, &desc);
        if (mimo_fail_allocation(0) > 0) {
            SUCCEEDS(status);
            return n - 1;
        }
        cr_assert_eq(status, MIMO_ERR_MEMORY, "allocation %d gave %s", (int)n,
                     mimo_status_name(status));
        for (int i = 0; i < 5; i++)
            cr_assert_eq(lane[i], -7);
    }
}

Test(balance_memory, an_assignment)
{
    cr_expect(failures_of(false) >= 15);
    cr_expect(failures_of(true) >= 7);
}

Test(balance_memory, a_report)
{
    mimo_balance_desc desc = desc_of(false);
    static const int64_t lane[5];
    for (int64_t n = 1; n <= 3; n++) {
        mimo_balance_report report = MIMO_BALANCE_REPORT_INIT;
        mimo_fail_allocation(n);
        cr_assert_eq(mimo_balance_report_of(&report, &desc, lane), MIMO_ERR_MEMORY);
        cr_assert(mimo_fail_allocation(0) == 0 && report.cost == 0);
    }
}
