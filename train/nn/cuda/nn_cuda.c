/* The table of operations for CUDA memory, and the context behind it. */
#include "train/nn/cuda/nn_cuda.h"

#include "core/memory.h"
#include "device/device.h"
#include "train/nn/cuda/nn_cuda_blas.h"

/* NVIDIA recommends 32 MiB for Hopper. Older GPUs need less. */
static const int64_t workspace_bytes = 32 << 20;

mimo_status nn_cuda_open(nn_runtime *runtime)
{
    MIMO_TRY(mimo_reserve(&runtime->context, 1, sizeof(nn_cuda)));
    nn_cuda *context = nn_cuda_of(runtime);
    MIMO_TRY(runtime->device->reserve(&context->workspace, workspace_bytes));
    MIMO_TRY(nn_cuda_blas_open(&context->blas, (cudaStream_t)runtime->stream, context->workspace,
                               (size_t)workspace_bytes));
    return runtime->spared > 0 ? nn_cuda_blas_spare(context->blas, runtime->spared) : MIMO_OK;
}

void nn_cuda_close(nn_runtime *runtime)
{
    nn_cuda *context = nn_cuda_of(runtime);
    if (!context)
        return;
    nn_cuda_blas_close(context->blas);
    runtime->device->release(context->workspace);
    runtime->device->release(context->factor_a.data);
    runtime->device->release(context->factor_b.data);
    runtime->device->release(context->columns.data);
    runtime->device->release(context->arrived.data);
    mimo_release(context);
    runtime->context = NULL;
}

const nn_ops nn_ops_cuda = {NN_OPERATIONS(NN_ENTRY, nn_cuda)};
