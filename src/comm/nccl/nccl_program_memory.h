/*
 * Device memory for the lists of programs that do not fit a launch's arguments. The host waits for
 * no work of the device: a stream of the pool's own copies the lists, launches wait for the copy on
 * their streams, and memory that was given back is used again when the launches that read it are
 * done. A pool allocates where it has no such memory, and frees when it ends.
 */
#ifndef MIMO_COMM_NCCL_PROGRAM_MEMORY_H
#define MIMO_COMM_NCCL_PROGRAM_MEMORY_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/check.h"
#include "core/free_list.h"

typedef struct mimo_program_pool {
    cudaStream_t stream;   /* that copies: no call's stream. Borrowed */
    mimo_free_item *spare; /* given back */
} mimo_program_pool;

typedef struct mimo_program_memory {
    mimo_free_item item; /* in the pool's list; holds the capacity */
    mimo_program_pool *pool;
    void *data;
    cudaEvent_t filled; /* behind the copy of the lists */
    cudaEvent_t used;   /* behind the last launch */
    bool arrived;       /* the copy is known to be done */
    bool ran;           /* `used` is recorded */
    bool recorded;      /* a graph reads it: nobody knows when the last replay is done */
} mimo_program_memory;

typedef struct mimo_list {
    const void *data;
    size_t bytes;
} mimo_list;

/* Memory with a copy of the lists, one behind the other. The lists may be reused on return. Streams
 * may be captured meanwhile. MIMO_ERR_MEMORY, MIMO_ERR_DEVICE. */
mimo_status mimo_program_memory_take(mimo_program_memory **out, mimo_program_pool *pool,
                                     const mimo_list *lists, int count);

/* Before and after a launch that reads it. Launches on different streams are ordered already, by
 * mimo_nccl_buffer_enter. Where the stream is captured, the host waits for the copy, a matter of
 * microseconds. */
mimo_status mimo_program_memory_enter(mimo_program_memory *it, cudaStream_t stream);
mimo_status mimo_program_memory_leave(mimo_program_memory *it, cudaStream_t stream);

/* Give it back; NULL is fine. Launches may still read it. Where a graph reads it, it is freed, and
 * the host waits for the device. */
void mimo_program_memory_give_back(mimo_program_memory *it);

/* Free what was given back. */
void mimo_program_pool_release(mimo_program_pool *pool);

#endif
