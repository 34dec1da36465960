/* Chunks of a call: the samples, or the items, of one side's tiles in equal parts, and the blocks
 * of a plan that move one part. Pure. */
#ifndef MIMO_PLAN_PLAN_CHUNK_H
#define MIMO_PLAN_PLAN_CHUNK_H

#include "layout/layout_types.h"

/* A chunk of the b samples of each dp coordinate: samples [begin(index), begin(index + 1)), where
 *
 *     begin(i) = i * b / count, rounded down
 *
 * In a layout of items these are the b items of each dp coordinate.
 */
typedef struct mimo_chunk {
    const mimo_layout *tiles; /* whose samples or items are divided */
    int64_t index, count;     /* 0 <= index < count < 2^31 */
} mimo_chunk;

/* The samples of a dp coordinate that a chunk has, where the tiles have samples. */
mimo_range mimo_chunk_samples(const mimo_chunk *chunk, int64_t dp);

/* Whether a chunk has a row of the tiles. */
bool mimo_chunk_has(const mimo_chunk *chunk, int64_t sample, int64_t position);

/* The blocks of a rank's plan that move the samples of a chunk. The tiles have the plan's batch;
 * the plan need not read or write these tiles, unless they have items. Together the chunks of one
 * count move each row of the plan once. The caller owns *out. MIMO_ERR_MEMORY. */
mimo_status mimo_plan_chunk(mimo_plan **out, const mimo_plan *plan, const mimo_chunk *chunk);

#endif
