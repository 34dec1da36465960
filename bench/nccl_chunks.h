/* Times a call in chunks: until the first chunk is here, and until all are. */
#ifndef MIMO_BENCH_NCCL_CHUNKS_H
#define MIMO_BENCH_NCCL_CHUNKS_H

#include "nccl_bed.h"

enum { NCCL_CHUNKS = 4 };

/* Microseconds on the slowest rank, medians over calls. */
typedef struct nccl_chunk_times {
    double first, all, whole; /* until the first chunk; until the last; a call without chunks */
} nccl_chunk_times;

/* Zero-copy with 32 thread blocks, which leaves multiprocessors free to compute. The call moves the
 * same bytes as the case. It has NCCL_CHUNKS times the samples, each with 1 / NCCL_CHUNKS of the
 * tokens, so every tile has samples for each chunk. The host enqueues the whole call before its
 * work may begin, so launches do not count. Collective. */
void nccl_chunks_time(nccl_chunk_times *out, const nccl_bed *bed, bool backward);

#endif
