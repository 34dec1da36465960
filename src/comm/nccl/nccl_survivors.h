/* What mimo_comm_survivors on NCCL does before a communicator is created: see nccl_survivors.c. */
#ifndef MIMO_COMM_NCCL_SURVIVORS_H
#define MIMO_COMM_NCCL_SURVIVORS_H

#include "comm/nccl/nccl_state.h"
#include "comm/survivors_agree.h"

/* Read the caller's bootstrap to *bootstrap, and fill the decision. Collective over its ranks; it
 * waits as long as their allgather does. */
mimo_status mimo_nccl_survivors_meet(mimo_survivors_terms *terms, nccl_comm *comm,
                                     mimo_bootstrap *bootstrap);

/* The descriptor of a family that ended, for the next one. */
mimo_nccl_desc mimo_nccl_survivors_desc(const nccl_family *family, const mimo_comm_desc *common);

#endif
