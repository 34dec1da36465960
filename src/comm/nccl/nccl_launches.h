/* What kernels of this backend say in the ring of their family: which launch has begun, which has
 * ended (ring/ring_launches.h). The ring's page of launches is memory of the host that the device
 * writes; mimo-why and other ranks read it. */
#ifndef MIMO_COMM_NCCL_LAUNCHES_H
#define MIMO_COMM_NCCL_LAUNCHES_H

#include "comm/nccl/nccl_state.h"
#include "ring/ring_launches.h"

/* Give the device the page of the family's ring. Where it can't have it (the ring is off, or a
 * file; CUDA refuses), nothing is said of kernels. Local. */
void mimo_nccl_launches_begin(nccl_family *family);

/* Launches for a buffer's kernels, into buffer->launches. */
void mimo_nccl_launches_take(mimo_buffer *buffer);
void mimo_nccl_launches_give(mimo_buffer *buffer);

/* Where the device finds them; NULL: nowhere. */
mimo_ring_launches *mimo_nccl_launches_on_device(const mimo_buffer *buffer);

/* A launch of the buffer's kernels was enqueued. */
void mimo_nccl_launched(const mimo_buffer *buffer, cudaStream_t stream);

#endif
