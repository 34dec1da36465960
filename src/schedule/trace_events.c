#include "schedule/trace_events.h"

#include <inttypes.h>

void mimo_trace_begin(mimo_trace_events *out, FILE *stream)
{
    *out = (mimo_trace_events){.stream = stream};
    fputs("{\"traceEvents\":[", stream);
}

void mimo_trace_end(const mimo_trace_events *events)
{
    fputs("\n]}\n", events->stream);
}

void mimo_trace_next(mimo_trace_events *events)
{
    fputs(events->more ? ",\n" : "\n", events->stream);
    events->more = true;
}

void mimo_trace_name_stage(mimo_trace_events *events, int64_t stage)
{
    mimo_trace_next(events);
    fprintf(events->stream,
            "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%" PRId64
            ",\"args\":{\"name\":\"stage %" PRId64 "\"}}",
            stage, stage);
}

void mimo_trace_name_thread(mimo_trace_events *events, int64_t stage, int thread, const char *name)
{
    mimo_trace_next(events);
    fprintf(events->stream,
            "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%" PRId64
            ",\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
            stage, thread, name);
}
