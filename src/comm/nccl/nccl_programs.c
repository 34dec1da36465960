#include "comm/nccl/nccl_programs.h"

#include "comm/nccl/nccl_residency.h"
#include "device/cuda_calls.h"

mimo_status mimo_nccl_most_ctas(int64_t *most, int64_t *multiprocessors, const mimo_pushes *pushes)
{
    int device;
    MIMO_TRY_CUDA(cudaGetDevice(&device));
    MIMO_TRY(mimo_nccl_block_budget(most, multiprocessors, device));
    if (pushes->most > 0 && pushes->most < *most)
        *most = pushes->most;
    if (pushes->ctas > 0 && pushes->ctas < *most)
        *most = pushes->ctas;
    return MIMO_OK;
}
