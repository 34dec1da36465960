/*
 * The kernels of staged messages: one launch sends, receives, and copies rows that stay. The
 * workers of comm/staged are thread blocks in one kernel, and warps in the other. A gate may stand
 * before either, which waits until there is something to do (nccl_staged_gate.cu).
 *
 * A small program is the kernel's argument, so a CUDA graph that captured the launch owns it. The
 * lists of a large one lie in device memory. Where rows lie is an argument of every launch.
 */
#ifndef MIMO_COMM_NCCL_STAGED_KERNEL_H
#define MIMO_COMM_NCCL_STAGED_KERNEL_H

#include "comm/nccl/nccl_push_kernel.h"
#include "comm/staged/staged_types.h"

MIMO_BEGIN_DECLS

enum {
    MIMO_STAGED_SMALL_MESSAGES = 16,
    MIMO_STAGED_SMALL_BLOCKS = 24,
    MIMO_STAGED_SMALL_BASES = 33, /* 16 tensors */
};

/* What thread blocks share: this rank's entry about itself in the page of the FIFOs' buffer. The
 * fields count thread blocks that are done (ready), and pieces that were taken: to send (done), to
 * receive (receives), and of rows that stay (sends). Every launch leaves them at 0. */
typedef struct mimo_staged_shared {
    mimo_flags *own;
    mimo_push_note *note; /* at its device address */
    mimo_push_progress progress;
} mimo_staged_shared;

typedef struct mimo_staged_small {
    mimo_staged_head head;
    mimo_staged_shared shared;
    mimo_staged_message messages[MIMO_STAGED_SMALL_MESSAGES];
    mimo_staged_block blocks[MIMO_STAGED_SMALL_BLOCKS];
    char *bases[MIMO_STAGED_SMALL_BASES];
} mimo_staged_small;

typedef struct mimo_staged_large {
    mimo_staged_head head;
    mimo_staged_shared shared;
    const mimo_staged_message *messages;
    const mimo_staged_block *blocks;
    char *bases[MIMO_PUSH_MOST_BASES];
} mimo_staged_large;

/* Enqueue a program, by the load/store kernel or by the bulk kernel (head.warps > 0). */
cudaError_t mimo_staged_load_store_small(const mimo_staged_small *program, cudaStream_t stream);
cudaError_t mimo_staged_load_store_large(const mimo_staged_large *program, cudaStream_t stream);
cudaError_t mimo_staged_bulk_small(const mimo_staged_small *program, cudaStream_t stream);
cudaError_t mimo_staged_bulk_large(const mimo_staged_large *program, cudaStream_t stream);

/* Enqueue the gate of a program, ahead of it. */
cudaError_t mimo_staged_gate_small(const mimo_staged_small *program, cudaStream_t stream);
cudaError_t mimo_staged_gate_large(const mimo_staged_large *program, cudaStream_t stream);
/* Load it onto the current device. */
cudaError_t mimo_staged_gate_load(void);

/* Load the load/store kernel onto the current device. */
cudaError_t mimo_staged_load_store_load(void);

/* Whether the current device can run the bulk kernel. To be called once before it is launched. */
cudaError_t mimo_staged_bulk_runs(bool *out);

MIMO_END_DECLS

#endif
