/* Buffers of the NCCL backend: windows of symmetric memory, and the order of calls into them. */
#ifndef MIMO_COMM_NCCL_BUFFER_H
#define MIMO_COMM_NCCL_BUFFER_H

#include "comm/nccl/nccl_push_kernel.h"
#include "comm/nccl/nccl_state.h"

/* The backend's slots. */
mimo_status mimo_nccl_buffer_open(mimo_buffer *buffer);
void mimo_nccl_buffer_close(mimo_buffer *buffer);

/* Before a launch that pushes into a buffer: it will follow the last one, on whatever stream that
 * was. Work that is being captured into a graph is ordered by the graph. */
mimo_status mimo_nccl_buffer_enter(mimo_buffer *buffer, cudaStream_t stream);

/* What its kernels and the host tell each other, as the device finds it. */
mimo_push_note *mimo_nccl_buffer_note(const mimo_buffer *buffer);
/* All work of a stream is done: no call need follow it any more. */
void mimo_nccl_buffer_stream_over(const mimo_buffer *buffer, cudaStream_t stream);
/* End the waits inside kernels: those that wait for peers end, with rows missing. The buffer is of
 * no use then. */
void mimo_nccl_buffer_abort(const mimo_buffer *buffer);

#endif
