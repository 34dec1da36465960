/* Where NCCL has put the memory of the peers. Its device API is C++ for nvcc alone, so it is asked
 * behind these. */
#ifndef MIMO_COMM_NCCL_PEERS_H
#define MIMO_COMM_NCCL_PEERS_H

#include <stdint.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <mimo/export.h>

MIMO_BEGIN_DECLS

/* What NCCL works in: it may go on to write there long after a question was given up. */
typedef struct mimo_nccl_reach {
    uint64_t room[128];
} mimo_nccl_reach;

/* Ask which ranks of the communicator load and store each other's windows. Collective. The answer
 * is there once a nonblocking communicator has settled; an error says that none do, though windows
 * could be registered. */
ncclResult_t mimo_nccl_reach_ask(mimo_nccl_reach *reach, ncclComm_t comm);

/* The answer: the ranks [first, first + count), this one among them. It can be read once. */
ncclResult_t mimo_nccl_reach_read(mimo_nccl_reach *reach, ncclComm_t comm, int *first, int *count);

/* at[count]: the beginning of a window on each of these ranks, as this device finds it. `room` is
 * device memory of as many pointers. Blocks. */
cudaError_t mimo_nccl_peer_pointers(void **at, void **room, ncclWindow_t window, int count);

MIMO_END_DECLS

#endif
