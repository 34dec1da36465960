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

mimo_status mimo_nccl_upload(void **out, const mimo_device *device, const mimo_list *lists,
                             int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += lists[i].bytes;
    MIMO_TRY(device->reserve(out, (int64_t)bytes));
    char *at = *out;
    for (int i = 0; i < count; at += lists[i].bytes, i++)
        if (lists[i].bytes > 0)
            MIMO_TRY_CUDA(cudaMemcpy(at, lists[i].data, lists[i].bytes, cudaMemcpyHostToDevice));
    /* From pageable memory these copies may still be in flight on the legacy stream, which the
     * program's stream does not have to wait for. */
    MIMO_TRY_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
    return MIMO_OK;
}
