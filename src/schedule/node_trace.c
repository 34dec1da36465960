/* Nodes as events for chrome://tracing and Perfetto: a process a stage, a thread a lane. */
#include "schedule/node_types.h"

#include <inttypes.h>

#include "schedule/trace_events.h"

typedef struct trace {
    mimo_trace_events events;
    const mimo_node_timeline *line;
} trace;

static void write_names(trace *own, int64_t stage)
{
    mimo_trace_name_stage(&own->events, stage);
    for (int lane = 0; lane < MIMO_NODE_LANES; lane++)
        if (mimo_node_lane_used(own->line->nodes, stage, (mimo_node_lane)lane))
            mimo_trace_name_thread(&own->events, stage, lane,
                                   mimo_node_lane_name((mimo_node_lane)lane));
}

static void write_node(trace *own, int64_t stage, int64_t i)
{
    const mimo_node *node = &own->line->nodes->stages[stage].nodes[i];
    const mimo_node_time *time = &own->line->times[stage][i];
    mimo_trace_next(&own->events);
    fprintf(own->events.stream,
            "{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%" PRId64 ",\"tid\":%d,\"ts\":%" PRId64
            ",\"dur\":%" PRId64 ",\"args\":{\"micro_batch\":%" PRId64
            ",\"multiprocessors\":%" PRId64 "}}",
            mimo_node_name_of(node).text, stage, (int)mimo_node_lane_of(node->part), time->begin,
            time->end - time->begin, node->micro_batch, time->multiprocessors);
}

void mimo_nodes_write_trace(FILE *stream, const mimo_node_timeline *line)
{
    const mimo_nodes *nodes = line->nodes;
    trace own = {.line = line};
    mimo_trace_begin(&own.events, stream);
    for (int64_t p = 0; p < nodes->schedule->desc.stages; p++) {
        write_names(&own, p);
        for (int64_t i = 0; i < nodes->stages[p].count; i++)
            write_node(&own, p, i);
    }
    mimo_trace_end(&own.events);
}
