/* The backend's function that splits a communicator. */
#ifndef MIMO_COMM_NCCL_SPLIT_H
#define MIMO_COMM_NCCL_SPLIT_H

#include "comm/nccl/nccl_state.h"

mimo_status mimo_nccl_split(mimo_comm **out, mimo_comm *base, int color, int key);

#endif
