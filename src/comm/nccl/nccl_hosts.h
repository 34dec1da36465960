/* Which ranks share a host: those load and store each other's memory. */
#ifndef MIMO_COMM_NCCL_HOSTS_H
#define MIMO_COMM_NCCL_HOSTS_H

#include "comm/nccl/nccl_state.h"

/* A hash of this host's name, as NCCL tells hosts apart: NCCL_HOSTID where that is set. */
uint64_t mimo_nccl_host(void);

/* Fill in comm->on_host. Collective over comm, and done once. */
mimo_status mimo_nccl_meet_neighbours(nccl_comm *comm);

/* The rank in `comm` of rank `index` of comm->on_host. */
int mimo_nccl_rank_of(const nccl_comm *neighbours, int index, const nccl_comm *comm);

#endif
