/* A schedule as events for chrome://tracing and Perfetto: a process a stage, its steps and its
 * bridge calls as two threads, and an arrow from each step to the one that takes what it made. */
#include "schedule/schedule_formats.h"

#include <inttypes.h>

#include "schedule/trace_events.h"

enum { COMPUTE_THREAD = 0, BRIDGE_THREAD = 1 };

typedef struct trace {
    mimo_trace_events events;
    const mimo_timeline *line;
} trace;

static void write_names(trace *own, int64_t stage)
{
    static const char *const threads[] = {[COMPUTE_THREAD] = "compute", [BRIDGE_THREAD] = "bridge"};
    mimo_trace_name_stage(&own->events, stage);
    for (int t = COMPUTE_THREAD; t <= BRIDGE_THREAD; t++)
        mimo_trace_name_thread(&own->events, stage, t, threads[t]);
}

static void write_step(trace *own, int64_t stage, int64_t i)
{
    const mimo_schedule *schedule = own->line->schedule;
    const mimo_schedule_step *step = &schedule->lists[stage].steps[i];
    int64_t begin = own->line->begin[stage][i];
    mimo_trace_next(&own->events);
    fprintf(own->events.stream,
            "{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%" PRId64 ",\"tid\":%d,\"ts\":%" PRId64
            ",\"dur\":%" PRId64 "}",
            mimo_step_name_of(schedule, step).text, stage,
            mimo_step_is_call(step->kind) ? BRIDGE_THREAD : COMPUTE_THREAD, begin,
            own->line->end[stage][i] - begin);
}

/* One end of an arrow: 's' where it leaves, 'f' where it arrives. */
static void write_arrow(trace *own, char phase, int64_t id, int64_t stage, int64_t time)
{
    mimo_trace_next(&own->events);
    fprintf(own->events.stream,
            "{\"ph\":\"%c\",\"name\":\"hop\",\"cat\":\"hop\",\"id\":%" PRId64 ",\"pid\":%" PRId64
            ",\"tid\":%d,\"ts\":%" PRId64 "%s}",
            phase, id, stage, COMPUTE_THREAD, time, phase == 'f' ? ",\"bp\":\"e\"" : "");
}

/* The arrows of a step. A hop has the id 2 * (chunk that sends * M + micro-batch), plus 1 where it
 * brings gradients. */
static void write_hops(trace *own, int64_t stage, int64_t i)
{
    const mimo_schedule *schedule = own->line->schedule;
    int64_t last = mimo_model_chunks(schedule) - 1, width = schedule->desc.micro_batches;
    mimo_schedule_step parts[2];
    int count = mimo_step_parts(parts, &schedule->lists[stage].steps[i]);
    for (int k = 0; k < count; k++) {
        if (!mimo_step_of_llm(parts[k].kind) || parts[k].kind == MIMO_STEP_W)
            continue;
        bool forward = parts[k].kind == MIMO_STEP_F;
        int64_t here = mimo_step_number(schedule, stage, parts[k].chunk), m = parts[k].index;
        int64_t from = forward ? here - 1 : here + 1, to = forward ? here + 1 : here - 1;
        if (from >= 0 && from <= last && schedule->stage_of[from] != stage)
            write_arrow(own, 'f', 2 * (from * width + m) + !forward, stage,
                        own->line->begin[stage][i]);
        if (to >= 0 && to <= last && schedule->stage_of[to] != stage)
            write_arrow(own, 's', 2 * (here * width + m) + !forward, stage,
                        own->line->end[stage][i]);
    }
}

void mimo_schedule_write_trace(FILE *stream, const mimo_timeline *timeline)
{
    const mimo_schedule *schedule = timeline->schedule;
    trace own = {.line = timeline};
    mimo_trace_begin(&own.events, stream);
    for (int64_t p = 0; p < schedule->desc.stages; p++) {
        write_names(&own, p);
        for (int64_t i = 0; i < schedule->lists[p].count; i++) {
            write_step(&own, p, i);
            write_hops(&own, p, i);
        }
    }
    mimo_trace_end(&own.events);
}
