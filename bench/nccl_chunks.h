/* A call in chunks: when the first of them is here, and when all are. */
#ifndef MIMO_BENCH_NCCL_CHUNKS_H
#define MIMO_BENCH_NCCL_CHUNKS_H

#include "nccl_bed.h"

enum { NCCL_CHUNKS = 4 };

/* Microseconds on the slowest rank, the median of some calls. */
typedef struct nccl_chunk_times {
    double first, all, whole; /* a call in chunks up to its first and its last one; a whole call */
} nccl_chunk_times;

/* Zero-copy with 32 thread blocks, which leave room to compute, of as many bytes as the case has,
 * in NCCL_CHUNKS times as many samples of a NCCL_CHUNKS-th of the tokens: so every tile has some
 * for each chunk. Single calls, all enqueued before the first of their work may begin, so that
 * the host's launches don't show. Collective. */
void nccl_chunks_time(nccl_chunk_times *out, const nccl_bed *bed, bool backward);

#endif
