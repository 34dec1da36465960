/* Buffers of the NCCL backend: windows of symmetric memory, and the order of calls into them. */
#ifndef MIMO_COMM_NCCL_BUFFER_H
#define MIMO_COMM_NCCL_BUFFER_H

#include "comm/buffer_state.h"
#include "comm/nccl/nccl_state.h"

/* The backend's slots. */
mimo_status mimo_nccl_buffer_open(mimo_buffer *buffer);
void mimo_nccl_buffer_close(mimo_buffer *buffer);

/* Before a launch that pushes into a buffer: it will follow the last one, on whatever stream that
 * was. Work that is being captured into a graph is ordered by the graph. */
mimo_status mimo_nccl_buffer_enter(mimo_buffer *buffer, cudaStream_t stream);

/* The word that ends the waits inside kernels, as the device finds it. */
const uint32_t *mimo_nccl_buffer_abort_word(const mimo_buffer *buffer);
/* Set it: kernels that wait for peers end, with rows missing. The buffer is of no use then. */
void mimo_nccl_buffer_abort(const mimo_buffer *buffer);

#endif
