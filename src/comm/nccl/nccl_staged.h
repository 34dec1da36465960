/* What an exchange stages, as a launch of the kernel. */
#ifndef MIMO_COMM_NCCL_STAGED_H
#define MIMO_COMM_NCCL_STAGED_H

#include "comm/nccl/nccl_program_memory.h"
#include "comm/nccl/nccl_staged_kernel.h"
#include "comm/nccl/nccl_state.h"

typedef struct mimo_nccl_staged {
    bool runs;  /* false: nothing is staged */
    bool gated; /* a limited call leaves multiprocessors to others, also while it waits */
    int base_count;
    mimo_program_memory *lists; /* of a large program; NULL: it is small */
    union {
        mimo_staged_small small;
        mimo_staged_large large;
    } as;
} mimo_nccl_staged;

/* Make *out (all 0 before) of what is staged of `all`, and of the copies where `copies` is true and
 * anything is staged. Local. MIMO_ERR_MEMORY, MIMO_ERR_DEVICE, MIMO_ERR_OVERFLOW. */
mimo_status mimo_nccl_staged_make(mimo_nccl_staged *out, const mimo_comm *comm,
                                  const mimo_messages *all, bool copies);

/* Say where the bases lie in the launches that follow. Local; to be called before the first. */
void mimo_nccl_staged_bind(mimo_nccl_staged *staged, char *const *bases);

/* Enqueue. */
mimo_status mimo_nccl_staged_run(const mimo_nccl_staged *staged, mimo_stream stream);

/* The thread blocks of its kernel; 0: there is none. */
int64_t mimo_nccl_staged_blocks(const mimo_nccl_staged *staged);

void mimo_nccl_staged_release(mimo_nccl_staged *staged);

#endif
