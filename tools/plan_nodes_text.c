/* mimo-plan schedule --nodes as text: the lists, what each budget takes, and what shares the
 * multiprocessors. */
#include <inttypes.h>
#include <stdio.h>

#include "plan_nodes.h"
#include "schedule/node_types.h"

static void print_budgets(const plan_nodes *plan)
{
    printf("\n%16s %10s %10s %10s %9s %10s\n", "exchange blocks", "time", "serial", "local",
           "hidden %", "ceiling %");
    for (int64_t i = 0; i < plan->count; i++) {
        const mimo_nodes_report *report = &plan->reports[i];
        printf("%16" PRId64 " %10" PRId64 " %10" PRId64 " %10" PRId64 " %9.1f %10.1f%s\n",
               plan->budgets[i].blocks, report->time, report->serial, report->local,
               (double)report->hidden / 10, (double)report->ceiling / 10,
               plan->count > 1 && i == plan->best ? "  <- this list" : "");
    }
}

/* ------------------------------------ what shares a device ----------------------------------- */

/* The first step with a forward and a backward; without any, the first one. */
static int64_t step_to_show(const mimo_schedule *schedule)
{
    for (int64_t i = 0; i < schedule->lists[0].count; i++)
        if (schedule->lists[0].steps[i].kind == MIMO_STEP_FB)
            return i;
    return 0;
}

static bool run_together(const mimo_node_time *a, const mimo_node_time *b)
{
    return a->begin < b->end && b->begin < a->end && a->begin < a->end && b->begin < b->end;
}

/* A node of COMPUTE, and the nodes of other lanes that run beside it. */
static void print_node(const mimo_nodes *nodes, int64_t i)
{
    const mimo_stage_nodes *list = &nodes->stages[0];
    printf("%-18s %15" PRId64 " %8" PRId64 " %8" PRId64 " ",
           mimo_node_name_of(&list->nodes[i]).text, list->times[i].multiprocessors,
           list->times[i].begin, list->times[i].end);
    for (int64_t k = 0; k < list->count; k++)
        if (mimo_node_lane_of(list->nodes[k].part) != MIMO_NODE_LANE_COMPUTE &&
            run_together(&list->times[i], &list->times[k]))
            printf(" %s (%" PRId64 ")", mimo_node_name_of(&list->nodes[k]).text,
                   list->times[k].multiprocessors);
    putchar('\n');
}

static void print_shares(const mimo_nodes *nodes)
{
    const mimo_stage_nodes *list = &nodes->stages[0];
    int64_t step = step_to_show(nodes->schedule);
    printf("\n%-18s %15s %8s %8s  beside\n", "node", "multiprocessors", "begin", "end");
    for (int64_t i = 0; i < list->count; i++)
        if (list->nodes[i].step == step && list->times[i].begin < list->times[i].end &&
            mimo_node_lane_of(list->nodes[i].part) == MIMO_NODE_LANE_COMPUTE)
            print_node(nodes, i);
}

int plan_nodes_print_text(const plan_nodes *plan)
{
    const mimo_nodes *nodes = plan->nodes[plan->best];
    if (mimo_nodes_print(stdout, nodes, MIMO_SCHEDULE_TEXT) != MIMO_OK)
        return plan_fail_library();
    print_budgets(plan);
    if (plan->request->desc.multiprocessors > 0)
        print_shares(nodes);
    printf("\nlanes that wait: %" PRId64 " multiprocessors; hash %016" PRIx64 "\n",
           plan->reports[plan->best].lanes, mimo_nodes_hash(nodes));
    return 0;
}
