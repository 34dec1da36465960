/* Which ranks share a host: those load and store each other's memory. */
#ifndef MIMO_COMM_NCCL_HOSTS_H
#define MIMO_COMM_NCCL_HOSTS_H

#include "comm/nccl/nccl_state.h"

/* A hash of this host, as NCCL tells hosts apart: of NCCL_HOSTID where that is set, else of its
 * name and of what its kernel drew at boot. */
uint64_t mimo_nccl_host(void);

/* Fill in comm->on_host and comm->windows. Collective over comm, and done once.
 *
 * Windows have a team of their own because messages of a communicator go astray in memory that is
 * registered with it: NCCL (2.28, ncclRegisterP2pIpcBuffer) wants them registered at both ends, and
 * waits for ever where a tile in a buffer is sent and the other end is in none. */
mimo_status mimo_nccl_meet_neighbours(nccl_comm *comm);

/* The rank in `comm` of rank `index` of comm->on_host. */
int mimo_nccl_rank_of(const nccl_comm *neighbours, int index, const nccl_comm *comm);

#endif
