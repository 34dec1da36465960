/* The frame of events for chrome://tracing and Perfetto: a process a stage, with named threads. */
#ifndef MIMO_SCHEDULE_TRACE_EVENTS_H
#define MIMO_SCHEDULE_TRACE_EVENTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct mimo_trace_events {
    FILE *stream;
    bool more; /* an event was written */
} mimo_trace_events;

/* The begin and the end of the whole; the events lie between. */
void mimo_trace_begin(mimo_trace_events *out, FILE *stream);
void mimo_trace_end(const mimo_trace_events *events);

/* What comes before each event, which the caller writes to the stream. */
void mimo_trace_next(mimo_trace_events *events);

/* The events that name a stage, and a thread of it. */
void mimo_trace_name_stage(mimo_trace_events *events, int64_t stage);
void mimo_trace_name_thread(mimo_trace_events *events, int64_t stage, int thread, const char *name);

#endif
