/* What the operations on CUDA devices share. The table of operations needs their files, and they
 * need this one. */
#include "device/cuda_calls.h"
#include "device/device.h"
#include "train/nn/cuda/nn_cuda.h"

mimo_status nn_cuda_launched(const char *what)
{
    return mimo_cuda_status(cudaGetLastError(), what);
}

mimo_status nn_cuda_grow(const nn_runtime *runtime, nn_cuda_room *room, int64_t bytes)
{
    if (bytes <= room->bytes)
        return MIMO_OK;
    void *grown;
    MIMO_TRY(runtime->device->reserve(&grown, bytes));
    runtime->device->release(room->data);
    room->data = grown;
    room->bytes = bytes;
    return MIMO_OK;
}
