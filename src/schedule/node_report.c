/* What nodes take, what exchanges cost of it, and what is hidden of them. */
#include "schedule/node_types.h"

#include "core/check.h"
#include "core/descriptor.h"

MIMO_DEFINE_INIT(mimo_nodes_report, MIMO_NODES_REPORT_INIT)

static mimo_status time_in_mode(int64_t *out, const mimo_nodes *nodes, mimo_node_mode mode)
{
    mimo_node_time **times;
    int64_t stuck, at;
    MIMO_TRY(mimo_node_times_open(&times, nodes));
    mimo_status status = mimo_nodes_walk(times, &stuck, &at, nodes, mode);
    if (status == MIMO_OK)
        *out = mimo_nodes_time_of(nodes, times);
    mimo_node_times_close(times, nodes);
    return status;
}

/* part / whole in thousandths, rounded down; 0 of nothing. */
static int64_t thousandths(int64_t part, int64_t whole)
{
    double share = whole > 0 ? (double)part / (double)whole * 1000 : 0;
    int64_t down = (int64_t)share;
    return (double)down > share ? down - 1 : down;
}

mimo_status mimo_nodes_report_of(mimo_nodes_report *out, const mimo_nodes *nodes)
{
    mimo_nodes_report own = MIMO_NODES_REPORT_INIT;
    MIMO_CHECK(out && nodes, MIMO_ERR_ARGUMENT, "mimo_nodes_report_of: %s is NULL",
               out ? "nodes" : "out");
    MIMO_TRY(time_in_mode(&own.time, nodes, MIMO_NODES_PLANNED));
    MIMO_TRY(time_in_mode(&own.local, nodes, MIMO_NODES_LOCAL));
    MIMO_TRY(time_in_mode(&own.serial, nodes, MIMO_NODES_SERIAL));
    int64_t moves = own.serial - own.local;
    own.hidden = thousandths(own.serial - own.time, moves);
    own.ceiling = thousandths(moves, own.serial);
    for (int64_t p = 0; p < nodes->schedule->desc.stages; p++) {
        int64_t need = mimo_node_lanes_need(nodes, p);
        own.lanes = need > own.lanes ? need : own.lanes;
    }
    return mimo_write_descriptor(out, &own, sizeof own, "mimo_nodes_report");
}
