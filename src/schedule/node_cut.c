/* From the steps of a schedule to lists of nodes and their times, as often as lists are tried. */
#include "schedule/node_types.h"

#include "core/checked.h"
#include "core/memory.h"

/* ------------------------------------------- lists ------------------------------------------- */

static int64_t largest_of(const mimo_node_costs *costs)
{
    int64_t largest = 0;
    for (int part = 0; part < MIMO_NODE_PARTS; part++)
        for (int pass = 0; pass < MIMO_NODE_PASSES; pass++)
            largest = costs->of[part][pass] > largest ? costs->of[part][pass] : largest;
    return largest;
}

/* No time leaves 64 bits: all nodes, each with the largest cost of a whole group, and as slow as a
 * product with one multiprocessor. */
static mimo_status check_sum(const mimo_nodes *nodes)
{
    const mimo_schedule *schedule = nodes->schedule;
    int64_t sum = largest_of(&nodes->costs), count = 0, group = schedule->desc.encoder_group;
    for (int64_t n = 0; n < mimo_model_chunks(schedule); n++)
        for (int64_t i = 0; i < nodes->chunks[n].count; i++) {
            int64_t own = largest_of(&nodes->chunks[n].layers[i].costs);
            sum = own > sum ? own : sum;
        }
    for (int64_t p = 0; p < schedule->desc.stages; p++)
        count += nodes->stages[p].count;
    MIMO_TRY(mimo_mul(&sum, sum, group > 0 ? group : 1));
    MIMO_TRY(mimo_mul(&sum, sum, nodes->desc.multiprocessors + 1));
    return mimo_mul(&sum, sum, count);
}

mimo_status mimo_nodes_cut(mimo_nodes *nodes)
{
    for (int64_t p = 0; p < nodes->schedule->desc.stages; p++) {
        nodes->stages[p].count = 0;
        for (int64_t i = 0; i < nodes->schedule->lists[p].count; i++)
            MIMO_TRY(mimo_node_order(nodes, p, i));
    }
    MIMO_TRY(check_sum(nodes));
    return mimo_nodes_find_waits(nodes);
}

/* ------------------------------------------- times ------------------------------------------- */

mimo_status mimo_nodes_find_times(mimo_nodes *nodes)
{
    int64_t pp = nodes->schedule->desc.stages, stuck, at;
    mimo_node_time **times;
    MIMO_TRY(mimo_reserve(&times, pp, sizeof *times));
    mimo_status status = MIMO_OK;
    for (int64_t p = 0; status == MIMO_OK && p < pp; p++) {
        mimo_stage_nodes *list = &nodes->stages[p];
        mimo_release(list->times);
        list->times = NULL;
        status = mimo_reserve(&list->times, list->count, sizeof *list->times);
        times[p] = list->times;
    }
    if (status == MIMO_OK)
        status = mimo_nodes_walk(times, &stuck, &at, nodes, MIMO_NODES_PLANNED);
    mimo_release(times);
    return status;
}

int64_t mimo_nodes_planned_time(const mimo_nodes *nodes)
{
    int64_t time = 0;
    for (int64_t p = 0; p < nodes->schedule->desc.stages; p++)
        for (int64_t i = 0; i < nodes->stages[p].count; i++) {
            int64_t end = nodes->stages[p].times[i].end;
            time = end > time ? end : time;
        }
    return time;
}
