/* The calls of a ring, for other programs' viewers. */
#ifndef MIMO_TOOLS_WHY_WHY_CALLS_H
#define MIMO_TOOLS_WHY_WHY_CALLS_H

#include <stdio.h>

#include "tools/why/why_rings.h"

/* The calls that ring i keeps, oldest first, and behind them those that are open. */
typedef struct why_calls {
    const mimo_ring_sample *ring;
    mimo_ring_call *calls; /* calls[count] */
    int count;
    int64_t to_real; /* what makes a time of theirs one of the real clock, nanoseconds */
} why_calls;

/* MIMO_ERR_MEMORY. Release in any case. */
mimo_status why_calls_read(why_calls *out, const why_rings *rings, int i);
void why_calls_release(why_calls *calls);

/* "bridge 'image' forward" */
void why_call_name(char *name, size_t capacity, const mimo_ring_sample *ring,
                   const mimo_ring_call *call);

/* A text as JSON has it, with its quotes. */
void why_print_string(FILE *out, const char *text);

/* Print all calls as events for chrome://tracing and Perfetto: a process a rank, a thread a
 * communicator. MIMO_ERR_MEMORY. */
mimo_status why_print_trace(FILE *out, const why_rings *rings);

/* Write the calls of one family, that of which most rings and calls are there, as files of torch's
 * flight recorder: FOLDER/mimo_rank_R. MIMO_ERR_IO, MIMO_ERR_MEMORY. */
mimo_status why_write_flight(const char *folder, const why_rings *rings);

#endif
