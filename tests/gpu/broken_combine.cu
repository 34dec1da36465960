#include "tests/gpu/broken_moves.h"

namespace
{

__constant__ int bug_now;

}

#define MIMO_MOVES_BROKEN(bug) (bug_now == (bug))
#include "src/comm/nccl/nccl_combine_bulk.cuh"

cudaError_t mimo_combine_break(int bug)
{
    return cudaMemcpyToSymbol(bug_now, &bug, sizeof bug);
}

/* bf16, with parts in f32, and etp 1. */
cudaError_t mimo_combine_launch_broken(const mimo_moves_call *call, int blocks, cudaStream_t stream)
{
    return enqueue<__nv_bfloat16, float, MIMO_PROGRAM_BELOW>(*call, blocks, stream);
}

cudaError_t mimo_combine_load_broken(void)
{
    return allow_shared_memory<__nv_bfloat16, float, MIMO_PROGRAM_BELOW>();
}
