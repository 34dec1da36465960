/* The slots of a dispatch: the kernels of nccl_experts.h under the order of buffers. */
#ifndef MIMO_COMM_NCCL_EXPERT_CALLS_H
#define MIMO_COMM_NCCL_EXPERT_CALLS_H

#include "comm/expert_calls.h"
#include "comm/nccl/nccl_state.h"

/* The backend's functions. */
mimo_status mimo_nccl_experts_prepare(mimo_comm *comm, const mimo_expert_shape *shape,
                                      const mimo_expert_limit *limit, mimo_lane *lane);
mimo_status mimo_nccl_route_start(mimo_comm *comm, const mimo_route_call *call, mimo_stream stream);
mimo_status mimo_nccl_rows_start(mimo_comm *comm, const mimo_expert_move *move, mimo_stream stream);
mimo_status mimo_nccl_combine_start(mimo_comm *comm, const mimo_expert_move *move,
                                    mimo_stream stream);

#endif
