/* Chunks of a call: the samples of one side's tiles in equal parts, and the blocks of a plan that
 * move one part. Pure. */
#ifndef MIMO_PLAN_PLAN_CHUNK_H
#define MIMO_PLAN_PLAN_CHUNK_H

#include "layout/layout_types.h"

/* A chunk of the b samples of each dp coordinate: samples [begin(index), begin(index + 1)), where
 *
 *     begin(i) = i * b / count, rounded down
 */
typedef struct mimo_chunk {
    const mimo_layout *tiles; /* whose samples are divided */
    int64_t index, count;     /* 0 <= index < count < 2^31 */
} mimo_chunk;

/* The samples of a dp coordinate that a chunk has. */
mimo_range mimo_chunk_samples(const mimo_chunk *chunk, int64_t dp);

/* The blocks of a rank's plan that move the samples of a chunk. The tiles have the plan's batch;
 * the plan need not read or write these tiles. Together the chunks of one count move each row of
 * the plan once. The caller owns *out. MIMO_ERR_MEMORY. */
mimo_status mimo_plan_chunk(mimo_plan **out, const mimo_plan *plan, const mimo_chunk *chunk);

#endif
