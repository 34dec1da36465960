/* Buffers of the NCCL backend: windows of symmetric memory, and the order of calls into them. */
#ifndef MIMO_COMM_NCCL_BUFFER_H
#define MIMO_COMM_NCCL_BUFFER_H

#include "comm/nccl/nccl_push_kernel.h"
#include "comm/nccl/nccl_state.h"

/* The backend's functions. */
mimo_status mimo_nccl_buffer_open(mimo_buffer *buffer);
void mimo_nccl_buffer_close(mimo_buffer *buffer);

/* To be called before a launch that pushes into a buffer: orders it after the last one, which may
 * be on another stream. A graph orders the work that is captured into it. */
mimo_status mimo_nccl_buffer_enter(mimo_buffer *buffer, cudaStream_t stream);

/* The note that the buffer's kernels and the host share, at its device address. */
mimo_push_note *mimo_nccl_buffer_note(const mimo_buffer *buffer);
/* Where data and pages of flags of each rank lie, as the device sees them: arrays [size] in its
 * memory. NULL: out of reach. They stay as long as the buffer. */
typedef struct mimo_nccl_addresses {
    char *const *data;
    mimo_flags *const *flags;
} mimo_nccl_addresses;
mimo_nccl_addresses mimo_nccl_buffer_addresses(const mimo_buffer *buffer);

/* Where kernels of the buffer say how far they are, for the device. `words` NULL: nowhere. */
mimo_push_progress mimo_nccl_buffer_progress(const mimo_buffer *buffer);

/* All work of a stream is done: no launch has to be ordered after it any more. */
void mimo_nccl_buffer_stream_finished(const mimo_buffer *buffer, cudaStream_t stream);
/* End the waits inside kernels. Their rows can be missing, and the buffer can't be used any
 * more. */
void mimo_nccl_buffer_abort(const mimo_buffer *buffer);

#endif
