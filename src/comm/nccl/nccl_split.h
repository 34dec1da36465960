/* Making communicators of the NCCL backend: shared by nccl_split.c and nccl_comm.c. */
#ifndef MIMO_COMM_NCCL_SPLIT_H
#define MIMO_COMM_NCCL_SPLIT_H

#include "comm/nccl/nccl_state.h"

/* A communicator of up to `size` ranks of a root, with everything but its team: rank 0, no ranks
 * filled in. Released with mimo_comm_destroy. */
mimo_status mimo_nccl_comm_make(nccl_comm **out, nccl_root *root, int size);

/* The backend's slot. */
mimo_status mimo_nccl_split(mimo_comm **out, mimo_comm *base, int color, int key);

#endif
