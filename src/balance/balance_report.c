/* What an assignment gives. */
#include "balance/balance_types.h"

#include <string.h>

#include "core/checked.h"
#include "core/descriptor.h"
#include "core/memory.h"

MIMO_DEFINE_INIT(mimo_balance_report, MIMO_BALANCE_REPORT_INIT)

mimo_status mimo_assignment_open(mimo_assignment *out, const mimo_balance_input *input)
{
    mimo_assignment own = {NULL, NULL, NULL, 0, 0, 0};
    mimo_status status = MIMO_OK;
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&own.lane, input->desc.items, sizeof *own.lane));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&own.cost, input->desc.lanes, sizeof *own.cost));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&own.rows, input->desc.lanes, sizeof *own.rows));
    *out = own;
    return MIMO_OK;
fail:
    mimo_assignment_close(&own);
    return status;
}

void mimo_assignment_close(mimo_assignment *assignment)
{
    mimo_release(assignment->lane);
    mimo_release(assignment->cost);
    mimo_release(assignment->rows);
}

/* Items on lane -1 are on none. */
void mimo_assignment_measure(mimo_assignment *assignment, const mimo_balance_input *input)
{
    const mimo_balance_desc *desc = &input->desc;
    memset(assignment->cost, 0, (size_t)desc->lanes * sizeof *assignment->cost);
    memset(assignment->rows, 0, (size_t)desc->lanes * sizeof *assignment->rows);
    assignment->longest = assignment->rows_moved = assignment->rows_over = 0;
    for (int64_t i = 0; i < desc->items; i++) {
        int64_t lane = assignment->lane[i], home = desc->home ? desc->home[i] : -1;
        if (home >= 0 && home != lane)
            assignment->rows_moved += desc->rows[i];
        if (lane < 0)
            continue;
        assignment->cost[lane] += desc->cost[i];
        assignment->rows[lane] += desc->rows[i];
    }
    for (int64_t l = 0; l < desc->lanes; l++) {
        if (assignment->cost[l] > assignment->longest)
            assignment->longest = assignment->cost[l];
        assignment->rows_over += mimo_lane_rows_over(input, assignment->rows[l]);
    }
}

static void set_homes(mimo_assignment *assignment, const mimo_balance_desc *desc)
{
    for (int64_t i = 0; i < desc->items; i++)
        assignment->lane[i] = desc->home ? desc->home[i] : -1;
}

static int64_t empty_lanes(const mimo_balance_desc *desc, const int64_t *lane, int64_t *taken)
{
    int64_t empty = desc->lanes;
    memset(taken, 0, (size_t)desc->lanes * sizeof *taken);
    for (int64_t i = 0; i < desc->items; i++)
        empty -= taken[lane[i]]++ == 0;
    return empty;
}

mimo_status mimo_balance_report_of(mimo_balance_report *out, const mimo_balance_desc *desc,
                                   const int64_t *lane)
{
    mimo_balance_input input;
    mimo_assignment own;
    MIMO_CHECK(out, MIMO_ERR_ARGUMENT, "mimo_balance_report_of: out is NULL");
    MIMO_TRY(mimo_balance_read(&input, desc));
    MIMO_CHECK(lane || input.desc.items == 0, MIMO_ERR_ARGUMENT,
               "mimo_balance_report_of: lane is NULL");
    for (int64_t i = 0; i < input.desc.items; i++)
        MIMO_CHECK(lane[i] >= 0 && lane[i] < input.desc.lanes, MIMO_ERR_ARGUMENT,
                   "balance: item %" PRId64 " is on lane %" PRId64 " of %" PRId64, i, lane[i],
                   input.desc.lanes);
    MIMO_TRY(mimo_assignment_open(&own, &input));
    int64_t lanes = input.desc.lanes;
    mimo_balance_report report = {.size = sizeof report,
                                  .cost = input.cost,
                                  .mean = input.cost / lanes + (input.cost % lanes > 0),
                                  .bound = input.bound,
                                  .rows = input.rows};
    set_homes(&own, &input.desc);
    mimo_assignment_measure(&own, &input);
    report.longest_home = own.longest;
    for (int64_t i = 0; i < input.desc.items; i++)
        own.lane[i] = lane[i];
    mimo_assignment_measure(&own, &input);
    report.longest = own.longest;
    report.rows_moved = own.rows_moved;
    report.rows_over = own.rows_over;
    report.empty_lanes = empty_lanes(&input.desc, lane, own.cost);
    mimo_assignment_close(&own);
    return mimo_write_descriptor(out, &report, sizeof report, "balance report");
}
