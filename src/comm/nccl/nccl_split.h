/* Making communicators of the NCCL backend: shared by nccl_split.c and nccl_comm.c. */
#ifndef MIMO_COMM_NCCL_SPLIT_H
#define MIMO_COMM_NCCL_SPLIT_H

#include "comm/nccl/nccl_state.h"

/* A communicator of up to `size` ranks of a root, with everything but its team: rank 0, no ranks
 * filled in. Released with mimo_comm_destroy. */
mimo_status mimo_nccl_comm_make(nccl_comm **out, nccl_root *root, int size);

/* Another team of a communicator's ranks, which is shared with nobody: room for it, which a rank
 * takes alone, and its NCCL communicator, which is collective. mimo_nccl_team_drop gives it up. */
mimo_status mimo_nccl_team_reserve(nccl_team **out, nccl_comm *comm);
mimo_status mimo_nccl_team_open(nccl_team *team, nccl_comm *comm);

/* The backend's slot. */
mimo_status mimo_nccl_split(mimo_comm **out, mimo_comm *base, int color, int key);

#endif
