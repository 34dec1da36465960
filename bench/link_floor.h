/* The floor of a transfer between GPUs: as many bytes written straight into as many peers by a
 * kernel that does nothing else, between two barriers of NCCL's own. */
#ifndef MIMO_BENCH_LINK_FLOOR_H
#define MIMO_BENCH_LINK_FLOOR_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stddef.h>

#include <mimo/export.h>

MIMO_BEGIN_DECLS

typedef struct link_floor link_floor;

/* Room for `bytes` bytes on every rank. Collective. NULL where peers can't be written. */
link_floor *link_floor_create(ncclComm_t comm, size_t bytes);
void link_floor_destroy(link_floor *floor);

/* Enqueue: every rank writes `bytes` bytes in all, an equal share to each of the `peers` next
 * ranks, with `ctas` thread blocks. */
cudaError_t link_floor_push(const link_floor *floor, size_t bytes, int peers, int ctas,
                            cudaStream_t stream);

MIMO_END_DECLS

#endif
