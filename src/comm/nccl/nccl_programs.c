#include "comm/nccl/nccl_programs.h"

#include "comm/nccl/nccl_residency.h"
#include "device/cuda_calls.h"

mimo_status mimo_nccl_most_ctas(int64_t *most, int64_t *multiprocessors, const mimo_pushes *pushes)
{
    int device;
    MIMO_TRY_CUDA(cudaGetDevice(&device));
    MIMO_TRY(mimo_nccl_block_budget(most, multiprocessors, device));
    if (pushes->reserved > 0 && pushes->reserved < *most)
        *most = pushes->reserved;
    if (pushes->ctas > 0 && pushes->ctas < *most)
        *most = pushes->ctas;
    return MIMO_OK;
}
