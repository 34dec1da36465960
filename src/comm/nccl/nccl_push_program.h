/* What an exchange pushes and copies, as a program of the push kernel. */
#ifndef MIMO_COMM_NCCL_PUSH_PROGRAM_H
#define MIMO_COMM_NCCL_PUSH_PROGRAM_H

#include "comm/nccl/nccl_push_kernel.h"

/* Where a program runs. */
typedef struct mimo_push_place {
    const mimo_device *device;
    int rank;
    mimo_push_note *note; /* as the device finds it */
} mimo_push_place;

/* Make *out (all 0 before) of what the messages push and copy; pushes.buffer is there, for its
 * flags. Local; a program that does not fit a launch takes device memory. MIMO_ERR_MEMORY,
 * MIMO_ERR_DEVICE. */
mimo_status mimo_push_program_make(mimo_push_program *out, const mimo_push_place *place,
                                   const mimo_messages *messages);

void mimo_push_program_release(mimo_push_program *program, const mimo_device *device);

/* Enqueue; a program without rows and peers is nothing. */
mimo_status mimo_push_program_run(const mimo_push_program *program, mimo_stream stream);

#endif
