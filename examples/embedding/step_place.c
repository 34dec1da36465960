#include "step_place.h"

#include <stdlib.h>
#include <string.h>

#include <mimo/mpi.h>
#ifdef MIMO_WITH_CUDA
#include <cuda_runtime_api.h>
#include <mimo/nccl.h>
#endif

#ifdef MIMO_WITH_CUDA
static mimo_status open_gpu(step_place *out, const mimo_comm_desc *common)
{
    MPI_Comm world = MPI_COMM_WORLD;
    mimo_bootstrap bootstrap = MIMO_BOOTSTRAP_INIT;
    mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    int device = -1; /* the library chooses it: one for each rank of a host */
    cudaStream_t streams[2] = {NULL, NULL};
    desc.common = common;
    desc.blocking = 0; /* so that the deadline ends NCCL's own waits as well */
    mimo_status status = mimo_bootstrap_from_mpi(&bootstrap, &world);
    if (status == MIMO_OK)
        status = mimo_comm_create_nccl(&out->comm, &bootstrap, &desc);
    if (status == MIMO_OK)
        status = mimo_nccl_device(&device, out->comm);
    if (status != MIMO_OK)
        return status;
    bool made = cudaSetDevice(device) == cudaSuccess;
    for (int i = 0; i < 2; i++)
        made = made && cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking) == cudaSuccess;
    out->moving = streams[0];
    out->computing = streams[1];
    if (!made)
        status = mimo_fail(MIMO_ERR_DEVICE, "device %d gives no streams", device);
    return mimo_comm_agree(out->comm, status);
}
#endif

mimo_status place_open(step_place *out, bool cuda)
{
    /* Where a rank dies, or fails alone, the others end with an error in place of waiting. */
    mimo_comm_desc common = MIMO_COMM_DESC_INIT;
    common.deadline = 60000;
    out->cuda = cuda;
    if (!cuda)
        return mimo_comm_create_mpi(&out->comm, MPI_COMM_WORLD, &common);
#ifdef MIMO_WITH_CUDA
    return open_gpu(out, &common);
#else
    return mimo_fail(MIMO_ERR_UNSUPPORTED, "--device cuda: this build has no CUDA part");
#endif
}

void place_close(step_place *place)
{
    mimo_comm_destroy(place->comm);
#ifdef MIMO_WITH_CUDA
    if (place->moving)
        cudaStreamDestroy(place->moving);
    if (place->computing)
        cudaStreamDestroy(place->computing);
#endif
}

mimo_status place_reserve(const step_place *place, float **out, int64_t count)
{
    size_t bytes = (size_t)count * sizeof **out;
#ifdef MIMO_WITH_CUDA
    if (place->cuda && cudaMalloc((void **)out, bytes) == cudaSuccess)
        return MIMO_OK;
#endif
    if (!place->cuda && (*out = malloc(bytes)))
        return MIMO_OK;
    return mimo_fail(MIMO_ERR_MEMORY, "no memory for %zu bytes", bytes);
}

void place_release(const step_place *place, float *data)
{
#ifdef MIMO_WITH_CUDA
    if (place->cuda)
        cudaFree(data);
#endif
    if (!place->cuda)
        free(data);
}

mimo_status place_copy(const step_place *place, float *to, const float *from, int64_t count,
                       mimo_stream stream)
{
    size_t bytes = (size_t)count * sizeof *to;
#ifdef MIMO_WITH_CUDA
    if (place->cuda && cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream) != cudaSuccess)
        return mimo_fail(MIMO_ERR_DEVICE, "no copy of %zu bytes", bytes);
#endif
    if (!place->cuda)
        memcpy(to, from, bytes);
    return mimo_comm_synchronize(place->comm, stream);
}
