/* mimo-plan balance as text: a table, and a bar for each lane. */
#include <inttypes.h>
#include <stdio.h>

#include "plan_balance.h"

enum { BAR = 28 };

static double over(int64_t part, int64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0;
}

static void print_table(const plan_balance *plan)
{
    const mimo_balance_report *report = &plan->report;
    const char *form = "%-18s %16" PRId64 " %16" PRId64 "\n";
    printf("%" PRId64 " items of %" PRId64 " rows on %" PRId64 " lanes\n\n%-18s %16s %16s\n",
           plan->desc.items, report->rows, plan->desc.lanes, "", "at home", "balanced");
    printf(form, "longest lane", report->longest_home, report->longest);
    printf(form, "mean of a lane", report->mean, report->mean);
    printf("%-18s %16.3f %16.3f\n", "longest / bound", over(report->longest_home, report->bound),
           over(report->longest, report->bound));
    printf("%-18s %16d %16" PRId64 "  %.1f %%\n", "rows that move", 0, report->rows_moved,
           100 * over(report->rows_moved, report->rows));
    printf("%-18s %16s %16" PRId64 "\n", "lanes without", "", report->empty_lanes);
    if (plan->desc.max_rows > 0)
        printf("%-18s %16s %16" PRId64 "\n", "rows too many", "", report->rows_over);
}

static void print_bar(int64_t cost, int64_t longest)
{
    int length = (int)(over(cost, longest) * BAR + 0.5);
    printf("  %-*.*s", BAR, length, "############################");
}

static void print_lane(const plan_balance *plan, int64_t lane, int64_t longest)
{
    printf("%5" PRId64, lane);
    if (plan->homes) {
        printf(" %16" PRId64, plan->before[lane]);
        print_bar(plan->before[lane], longest);
    }
    int length = (int)(over(plan->after[lane], longest) * BAR + 0.5);
    printf(" %16" PRId64 "  %.*s\n", plan->after[lane], length, "############################");
}

int plan_balance_print_text(const plan_balance *plan)
{
    const mimo_balance_report *report = &plan->report;
    int64_t longest =
        report->longest > report->longest_home ? report->longest : report->longest_home;
    print_table(plan);
    printf("\n%5s", "lane");
    if (plan->homes)
        printf(" %16s  %-*s", "at home", BAR, "");
    printf(" %16s\n", "balanced");
    for (int64_t l = 0; l < plan->desc.lanes; l++)
        print_lane(plan, l, longest);
    return 0;
}
