/* Which ranks run on the same host: these load and store each other's memory. */
#ifndef MIMO_COMM_NCCL_SAME_HOST_H
#define MIMO_COMM_NCCL_SAME_HOST_H

#include "comm/nccl/nccl_state.h"

/* A hash that identifies this host, as NCCL identifies hosts: of NCCL_HOSTID where that is set,
 * otherwise of its name and its kernel's boot id. */
uint64_t mimo_nccl_host_hash(void);

/* Fill in comm->same_host and comm->windows. Collective over comm; the first call does it for all.
 *
 * Windows have a ncclComm_t of their own. NCCL (2.28, ncclRegisterP2pIpcBuffer) expects that memory
 * registered with an ncclComm_t is registered at both ends of a message. Where one end of a message
 * lies in a buffer and the other does not, it would wait for ever. */
mimo_status mimo_nccl_connect_same_host(nccl_comm *comm);

/* The rank in `comm` of rank `index` of comm->same_host. */
int mimo_nccl_same_host_rank(const nccl_comm *comm, int index);

#endif
