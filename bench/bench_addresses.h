/* What it costs the host that tensors lie elsewhere at each call. */
#ifndef MIMO_BENCH_BENCH_ADDRESSES_H
#define MIMO_BENCH_BENCH_ADDRESSES_H

#include <mimo/mimo.h>

/* Where tensors lie and calls run. */
typedef struct bench_memory {
    mimo_comm *comm;
    mimo_stream stream;
    void *(*reserve)(int64_t bytes); /* ends the launch where there is none */
    void (*release)(void *room);
} bench_memory;

/* Time small calls of p2p and zero-copy whose tensors stay, and the same calls whose tensors lie at
 * other addresses each time: the host's time from the begin of a call to its return, in
 * microseconds, and the ratio, fresh over fixed. It is the median of interleaved repeats of one
 * run. Rank 0 prints one line for each executor and number of tensors, an object of JSON where
 * `json`. Collective. */
void bench_fresh_addresses(const bench_memory *memory, bool json);

#endif
