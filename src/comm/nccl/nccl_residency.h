/* The ledgers of this process: which kernels that wait for peers may be in flight together on each
 * of its devices (comm/residency.h). Communicators that were made apart share a device, so a ledger
 * belongs to no family. By any thread. */
#ifndef MIMO_COMM_NCCL_RESIDENCY_H
#define MIMO_COMM_NCCL_RESIDENCY_H

#include "comm/comm_backend.h"

/* The backend's slots. NCCL's messages of a call follow its kernel on the stream, so a lane has the
 * larger number of thread blocks where the communicator's descriptor limits NCCL's (max_ctas). */
mimo_status mimo_nccl_reserve_blocks(mimo_comm *comm, mimo_lane *lane, int blocks);
void mimo_nccl_release_blocks(mimo_comm *comm, mimo_lane *lane);

/* A lane of calls without a limit of their own: as many thread blocks as there are, and at most
 * `most`, where that is not 0. MIMO_ERR_ARGUMENT: there is none, MIMO_ERR_MEMORY, MIMO_ERR_DEVICE.
 * */
mimo_status mimo_nccl_share_blocks(int device, mimo_lane *lane, int64_t most);

/* Such a lane needs `blocks` alone: others may have the rest. 0: it ends. */
void mimo_nccl_shrink_lane(int device, mimo_lane *lane, int64_t blocks);

/* From now on this process may have this many in flight on a device, because other ranks share it.
 * */
mimo_status mimo_nccl_bound_blocks(int device, mimo_lane *lane, int64_t blocks);

/* End a lane of a device. One that is out is fine. */
void mimo_nccl_leave_lane(int device, mimo_lane *lane);

/* How many thread blocks may be in flight on a device, and its multiprocessors. */
mimo_status mimo_nccl_block_budget(int64_t *budget, int64_t *multiprocessors, int device);

#endif
