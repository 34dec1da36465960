/* Nodes as events for chrome://tracing and Perfetto: a process a stage, a thread a lane. */
#include "schedule/node_types.h"

#include <inttypes.h>

typedef struct trace {
    FILE *stream;
    const mimo_nodes *nodes;
    bool more; /* an event was written */
} trace;

static void begin_event(trace *own)
{
    fputs(own->more ? ",\n" : "\n", own->stream);
    own->more = true;
}

static void write_names(trace *own, int64_t stage)
{
    begin_event(own);
    fprintf(own->stream,
            "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%" PRId64
            ",\"args\":{\"name\":\"stage %" PRId64 "\"}}",
            stage, stage);
    for (int lane = 0; lane < MIMO_NODE_LANES; lane++) {
        if (!mimo_node_lane_used(own->nodes, stage, (mimo_node_lane)lane))
            continue;
        begin_event(own);
        fprintf(own->stream,
                "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%" PRId64
                ",\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
                stage, lane, mimo_node_lane_name((mimo_node_lane)lane));
    }
}

static void write_node(trace *own, int64_t stage, int64_t i)
{
    const mimo_node *node = &own->nodes->stages[stage].nodes[i];
    const mimo_node_time *time = &own->nodes->stages[stage].times[i];
    begin_event(own);
    fprintf(own->stream,
            "{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%" PRId64 ",\"tid\":%d,\"ts\":%" PRId64
            ",\"dur\":%" PRId64 ",\"args\":{\"micro_batch\":%" PRId64
            ",\"multiprocessors\":%" PRId64 "}}",
            mimo_node_name_of(node).text, stage, (int)mimo_node_lane_of(node->part), time->begin,
            time->end - time->begin, node->micro_batch, time->multiprocessors);
}

void mimo_nodes_write_trace(FILE *stream, const mimo_nodes *nodes)
{
    trace own = {stream, nodes, false};
    fputs("{\"traceEvents\":[", stream);
    for (int64_t p = 0; p < nodes->schedule->desc.stages; p++) {
        write_names(&own, p);
        for (int64_t i = 0; i < nodes->stages[p].count; i++)
            write_node(&own, p, i);
    }
    fputs("\n]}\n", stream);
}
