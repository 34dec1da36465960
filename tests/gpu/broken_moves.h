/* The kernels of moves with bugs on purpose (comm/nccl/nccl_moves_bugs.h). */
#ifndef MIMO_TESTS_BROKEN_MOVES_H
#define MIMO_TESTS_BROKEN_MOVES_H

#include "comm/nccl/nccl_moves_kernel.h"

MIMO_BEGIN_DECLS

cudaError_t mimo_rows_load_broken(void);
cudaError_t mimo_combine_load_broken(void);

/* Choose the bug of the launches that follow. */
cudaError_t mimo_rows_break(int bug);
cudaError_t mimo_combine_break(int bug);

/* As their namesakes. Combine: of bf16, with parts in f32, and etp 1. */
cudaError_t mimo_rows_launch_broken(const mimo_moves_call *call, int blocks, cudaStream_t stream);
cudaError_t mimo_combine_launch_broken(const mimo_moves_call *call, int blocks,
                                       cudaStream_t stream);

MIMO_END_DECLS

#endif
