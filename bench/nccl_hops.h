/* Times a hop between two stages of a pipeline: a whole tile from rank 0 to rank 1. */
#ifndef MIMO_BENCH_NCCL_HOPS_H
#define MIMO_BENCH_NCCL_HOPS_H

#include "nccl_bed.h"

/* By a bridge, as the captioner's stages send, and by bare ncclSend and ncclRecv of the same bytes.
 * Both have communicators of their own with as many thread blocks as the captioner's. Prints a line
 * for each size. Returns whether both ways brought the tile. Collective over two ranks. */
bool nccl_hops_time(const nccl_world *world, bool json);

#endif
