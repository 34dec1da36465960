/* Where NCCL has put the memory of the peers. Its device API is C++ for nvcc alone, so it is asked
 * behind these. */
#ifndef MIMO_COMM_NCCL_PEERS_H
#define MIMO_COMM_NCCL_PEERS_H

#include <stdint.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <mimo/export.h>

MIMO_BEGIN_DECLS

/* How to wait for what a nonblocking communicator does behind a call. Where that fails, the
 * communicator may be gone. */
typedef struct mimo_nccl_wait {
    ncclResult_t (*until_done)(void *context);
    void *context;
    /* What NCCL works in, and may go on to write long after it was given up. */
    uint64_t room[128];
} mimo_nccl_wait;

/* The ranks [first, first + count) of the communicator, this one among them, load and store each
 * other's windows. Collective. Registering a window can succeed where none do: then count is 1. */
ncclResult_t mimo_nccl_reach(ncclComm_t comm, mimo_nccl_wait *wait, int *first, int *count);

/* at[count]: the beginning of a window on each of these ranks, as this device finds it. `room` is
 * device memory of as many pointers. Blocks. */
cudaError_t mimo_nccl_peer_pointers(void **at, void **room, ncclWindow_t window, int count);

MIMO_END_DECLS

#endif
