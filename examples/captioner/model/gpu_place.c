#include "captioner/model/gpu_place.h"

#include <cuda_runtime_api.h>

#include <mimo/mpi.h>
#include <mimo/nccl.h>

#include "captioner/support/captioner_support.h"

mimo_status gpu_world_create(mimo_comm **out)
{
    MPI_Comm world = MPI_COMM_WORLD;
    mimo_bootstrap bootstrap = MIMO_BOOTSTRAP_INIT;
    const mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    int device;
    TRY(mimo_bootstrap_from_mpi(&bootstrap, &world));
    TRY(mimo_comm_create_nccl(out, &bootstrap, &desc));
    TRY(mimo_nccl_device(&device, *out));
    cudaError_t code = cudaSetDevice(device); /* that the layers work on */
    CHECK(code == cudaSuccess, MIMO_ERR_DEVICE, "cudaSetDevice(%d): %s", device,
          cudaGetErrorString(code));
    return MIMO_OK;
}

mimo_status gpu_stream_create(mimo_stream *out)
{
    cudaStream_t stream;
    cudaError_t code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    CHECK(code == cudaSuccess, MIMO_ERR_DEVICE, "cudaStreamCreateWithFlags: %s",
          cudaGetErrorString(code));
    *out = stream;
    return MIMO_OK;
}

void gpu_stream_destroy(mimo_stream stream)
{
    if (stream)
        (void)cudaStreamDestroy(stream);
}
