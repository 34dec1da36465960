/* Words of verdicts and tables. */
#ifndef MIMO_RING_RING_WORDS_H
#define MIMO_RING_RING_WORDS_H

#include "ring/ring_sample.h"

/* Text that is appended to, as far as there is space; it ends with a whole letter. */
typedef struct mimo_ring_text {
    char *text;
    size_t capacity, used;
} mimo_ring_text;

MIMO_PRINTF(2, 3) void mimo_ring_append(mimo_ring_text *to, const char *format, ...);

/* "rank 5" or "ranks 0-4, 6, 7", ascending. */
void mimo_ring_append_ranks(mimo_ring_text *to, const int *ranks, int count);

/* "41 s", "0.25 s", "3 min". */
void mimo_ring_append_time(mimo_ring_text *to, int64_t nanoseconds);

/* "call 40, bridge 'image' forward in micro-batch 2": a call that the sample has. */
void mimo_ring_append_call(mimo_ring_text *to, const mimo_ring_sample *sample,
                           const mimo_ring_call *call);

#endif
