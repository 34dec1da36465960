#include "comm/nccl/nccl_programs.h"

#include "device/cuda_calls.h"

enum { SPARE = 4 }; /* multiprocessors left to NCCL's kernels: other ranks may wait for these */

mimo_status mimo_nccl_most_ctas(int64_t *most, int64_t *multiprocessors, int ctas)
{
    int device, count;
    MIMO_TRY_CUDA(cudaGetDevice(&device));
    MIMO_TRY_CUDA(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    *multiprocessors = count;
    *most = count > SPARE ? count - SPARE : 1;
    if (ctas > 0 && ctas < *most)
        *most = ctas;
    return MIMO_OK;
}
