/* The floor of a transfer between GPUs: a kernel writes the same number of bytes straight into the
 * same number of peers, and does nothing else. It runs between two barriers of NCCL. */
#ifndef MIMO_BENCH_LINK_FLOOR_H
#define MIMO_BENCH_LINK_FLOOR_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stddef.h>

#include <mimo/export.h>

MIMO_BEGIN_DECLS

typedef struct link_floor link_floor;

/* Reserve `bytes` bytes on every rank. Collective. NULL where a rank cannot write its peers'
 * memory. */
link_floor *link_floor_create(ncclComm_t comm, size_t bytes);
void link_floor_destroy(link_floor *floor);

/* Enqueue the kernel with `ctas` thread blocks. Every rank writes `bytes` bytes in all, an equal
 * share to each of the next `peers` ranks. */
cudaError_t link_floor_push(const link_floor *floor, size_t bytes, int peers, int ctas,
                            cudaStream_t stream);

MIMO_END_DECLS

#endif
