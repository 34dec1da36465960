/* Where NCCL 2.28 maps the memory of peers on this device. NCCL's device API is C++ for nvcc only;
 * these are C functions around it. They fail where the library was compiled against a later NCCL:
 * mimo_nccl_peer_way then never chooses them. */
#ifndef MIMO_COMM_NCCL_PEER_MEMORY_H
#define MIMO_COMM_NCCL_PEER_MEMORY_H

#include <stdint.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <mimo/export.h>

MIMO_BEGIN_DECLS

/* Memory that NCCL works in. It may still write there after the call was given up. */
typedef struct mimo_nccl_reach {
    uint64_t memory[128];
} mimo_nccl_reach;

/* Start to find the ranks of the communicator that load and store each other's windows (NCCL's LSA
 * team). Collective. The result is there once a nonblocking communicator has settled. After an
 * error no ranks do, even where windows could be registered. */
ncclResult_t mimo_nccl_reach_start(mimo_nccl_reach *reach, ncclComm_t comm);

/* Read the result, once: the ranks [first, first + count), this rank included. */
ncclResult_t mimo_nccl_reach_finish(mimo_nccl_reach *reach, ncclComm_t comm, int *first,
                                    int *count);

/* Write where a window begins on each of these ranks, as addresses of this device, into at[count].
 * scratch[count] is device memory. Blocks. */
cudaError_t mimo_nccl_peer_pointers(void **at, void **scratch, ncclWindow_t window, int count);

MIMO_END_DECLS

#endif
