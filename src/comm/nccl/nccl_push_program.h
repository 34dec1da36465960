/* What an exchange pushes and copies, as a program of the push kernel. */
#ifndef MIMO_COMM_NCCL_PUSH_PROGRAM_H
#define MIMO_COMM_NCCL_PUSH_PROGRAM_H

#include "comm/nccl/nccl_program_memory.h"
#include "comm/nccl/nccl_push_kernel.h"

/* The rank that a program runs on, and where a large one finds memory. */
typedef struct mimo_push_context {
    mimo_program_pool *pool;
    int rank;
    mimo_push_note *note; /* at its device address */
    mimo_push_progress progress;
} mimo_push_context;

/* Make *out (all 0 before) of what the messages push and copy, behind up to MIMO_PUSH_MOST_BASES
 * bases. pushes.buffer is not NULL: its flags are used. Local. A large program takes device memory.
 * MIMO_ERR_MEMORY, MIMO_ERR_DEVICE. */
mimo_status mimo_push_program_make(mimo_push_program *out, const mimo_push_context *context,
                                   const mimo_messages *messages);

void mimo_push_program_release(mimo_push_program *program);

/* Say where the bases lie in the launches that follow, at multiples of the alignments that the
 * program was made for, and the signature of these launches. Local; to be called before the first
 * launch. */
void mimo_push_program_bind(mimo_push_program *program, char *const *bases, uint64_t signature);

/* Enqueue. A program without rows and peers enqueues nothing. */
mimo_status mimo_push_program_run(const mimo_push_program *program, mimo_stream stream);

#endif
