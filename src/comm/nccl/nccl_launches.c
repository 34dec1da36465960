#include "comm/nccl/nccl_launches.h"

#include "comm/buffer_state.h"
#include "comm/recorder.h"

static nccl_family *family_of(const mimo_buffer *buffer)
{
    return ((const nccl_comm *)buffer->comm)->family;
}

/* Kernels of buffers that could not be closed may write there for ever. */
static bool let_go(mimo_family *base, void *page)
{
    const nccl_family *family = (const nccl_family *)base;
    if (family->launches_stay)
        return false;
    (void)cudaHostUnregister(page);
    (void)cudaGetLastError(); /* at the end of a process CUDA may have ended before */
    return true;
}

void mimo_nccl_launches_begin(nccl_family *family)
{
    const size_t bytes = MIMO_RING_LAUNCHES * sizeof(mimo_ring_launches);
    void *page = mimo_recorder_launches(&family->base);
    if (!page)
        return;
    if (cudaHostRegister(page, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable) ==
            cudaSuccess &&
        cudaHostGetDevicePointer(&family->launches, page, 0) == cudaSuccess)
        family->base.recorder->let_go = let_go;
    else
        (void)cudaGetLastError(); /* it is no error of a call */
}

void mimo_nccl_launches_take(mimo_buffer *buffer)
{
    if (family_of(buffer)->launches)
        buffer->launches = mimo_recorder_take_launches(buffer->comm);
}

void mimo_nccl_launches_give(mimo_buffer *buffer)
{
    mimo_recorder_give_launches(buffer->comm, buffer->launches);
    buffer->launches = NULL;
}

mimo_ring_launches *mimo_nccl_launches_on_device(const mimo_buffer *buffer)
{
    const nccl_family *family = family_of(buffer);
    if (!buffer->launches)
        return NULL;
    const mimo_ring_launches *first = mimo_recorder_launches(&family->base);
    return (mimo_ring_launches *)family->launches + (buffer->launches - first);
}

void mimo_nccl_launched(const mimo_buffer *buffer, cudaStream_t stream)
{
    if (buffer->launches)
        mimo_recorder_count_launch(buffer->launches, buffer->comm->device->records(stream));
}
