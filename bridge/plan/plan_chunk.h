/* Chunks of a call: the samples of one side's tiles in equal parts, and what of a plan moves one of
 * them. Pure. */
#ifndef MIMO_BRIDGE_PLAN_CHUNK_H
#define MIMO_BRIDGE_PLAN_CHUNK_H

#include "bridge/layout/layout_types.h"

/* Of the b samples of each dp coordinate those from index * b / count on, and up to where the next
 * chunk's begin (rounded down). */
typedef struct mimo_chunk {
    const mimo_layout *tiles; /* that are cut */
    int64_t index, count;     /* 0 <= index < count < 2^31 */
} mimo_chunk;

/* The samples of a dp coordinate that a chunk has. */
mimo_range mimo_chunk_samples(const mimo_chunk *chunk, int64_t dp);

/* What of a rank's plan moves the samples of a chunk. The tiles have the plan's batch; they need
 * not be those that it reads or writes. The chunks of a count have each row of the plan once. The
 * caller owns *out. MIMO_ERR_MEMORY. */
mimo_status mimo_plan_chunk(mimo_plan **out, const mimo_plan *plan, const mimo_chunk *chunk);

#endif
