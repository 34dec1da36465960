#include "tests/gpu/broken_moves.h"

namespace
{

__constant__ int bug_now;

}

#define MIMO_MOVES_BROKEN(bug) (bug_now == (bug))
#define mimo_rows_launch mimo_rows_launch_broken
#define mimo_rows_load mimo_rows_load_broken
#include "src/comm/nccl/nccl_rows.cu"

cudaError_t mimo_rows_break(int bug)
{
    return cudaMemcpyToSymbol(bug_now, &bug, sizeof bug);
}
