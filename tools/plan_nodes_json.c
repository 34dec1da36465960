/* mimo-plan schedule --nodes --json. It prints piece by piece; no text here needs an escape. */
#include <inttypes.h>
#include <stdio.h>

#include "plan_nodes.h"
#include "schedule/node_types.h"

/* The places of the same stage's list that a node waits for in other lanes. */
static void print_waits(const mimo_stage_nodes *list, int64_t i)
{
    const char *before = "";
    printf(",\"waits\":[");
    for (int lane = 0; lane < MIMO_NODE_LANES; lane++) {
        int64_t input = list->waits[i * MIMO_NODE_LANES + lane];
        if (input >= 0)
            printf("%s%" PRId64, before, input);
        before = input >= 0 ? "," : before;
    }
    putchar(']');
}

static void print_node(const mimo_stage_nodes *list, int64_t i)
{
    const mimo_node *node = &list->nodes[i];
    const mimo_node_time *time = &list->times[i];
    printf("%s{\"name\":\"%s\",\"lane\":\"%s\",\"step\":%" PRId64 ",\"micro_batch\":%" PRId64
           ",\"chunk\":%" PRId64 ",\"layer\":%" PRId64 ",\"begin\":%" PRId64 ",\"end\":%" PRId64
           ",\"multiprocessors\":%" PRId64,
           i == 0 ? "" : ",", mimo_node_name_of(node).text,
           mimo_node_lane_name(mimo_node_lane_of(node->part)), node->step, node->micro_batch,
           node->chunk, node->layer, time->begin, time->end, time->multiprocessors);
    print_waits(list, i);
    putchar('}');
}

static void print_budget(const plan_nodes *plan, int64_t i)
{
    const mimo_nodes_report *report = &plan->reports[i];
    printf("%s{\"blocks\":%" PRId64 ",\"time\":%" PRId64 ",\"serial\":%" PRId64
           ",\"local\":%" PRId64 ",\"hidden\":%" PRId64 ",\"ceiling\":%" PRId64
           ",\"lanes\":%" PRId64 "}",
           i == 0 ? "" : ",", plan->budgets[i].blocks, report->time, report->serial, report->local,
           report->hidden, report->ceiling, report->lanes);
}

int plan_nodes_print_json(const plan_nodes *plan)
{
    const mimo_nodes *nodes = plan->nodes[plan->best];
    printf("{\"stages\":[");
    for (int64_t p = 0; p < nodes->schedule->desc.stages; p++) {
        const mimo_stage_nodes *list = &nodes->stages[p];
        printf("%s[", p == 0 ? "" : ",");
        for (int64_t i = 0; i < list->count; i++)
            print_node(list, i);
        putchar(']');
    }
    printf("],\"budgets\":[");
    for (int64_t i = 0; i < plan->count; i++)
        print_budget(plan, i);
    printf("],\"best\":%" PRId64 ",\"hash\":\"%016" PRIx64 "\"}\n", plan->best,
           mimo_nodes_hash(nodes));
    return 0;
}
