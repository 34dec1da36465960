/* A call in chunks: when the first of them is here, and when all are. */
#ifndef MIMO_BENCH_NCCL_CHUNKS_H
#define MIMO_BENCH_NCCL_CHUNKS_H

#include "nccl_bed.h"

enum { NCCL_CHUNKS = 4 };

/* Microseconds on the slowest rank, the median of some calls. */
typedef struct nccl_chunk_times {
    double first, all, whole; /* until the first and the last chunk; a call that has no chunks */
} nccl_chunk_times;

/* Zero-copy with 32 thread blocks, which leaves multiprocessors to compute. It moves as many bytes
 * as the case, in NCCL_CHUNKS times as many samples with 1 / NCCL_CHUNKS of the tokens each. So
 * every tile has samples for each chunk. Each call is enqueued as a whole before its work may
 * begin, so that the host's launches don't show. Collective. */
void nccl_chunks_time(nccl_chunk_times *out, const nccl_bed *bed, bool backward);

#endif
