// The part of NCCL's device API that is used: where windows of peers lie.
#include "comm/nccl/nccl_peer_memory.h"

#include <nccl_device.h>

namespace
{

__global__ void find(ncclWindow_t window, int count, void **at)
{
    for (int peer = threadIdx.x; peer < count; peer += blockDim.x)
        at[peer] = ncclGetLsaPointer(window, 0, peer);
}

// NCCL 2.29 rejects requirements that are all zeros.
ncclDevCommRequirements requirements()
{
#ifdef NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER
    return NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
#else
    return {};
#endif
}

struct Query {
    ncclDevComm device;
    ncclDevCommRequirements wanted;
};
static_assert(sizeof(Query) <= sizeof(mimo_nccl_reach), "memory for NCCL to work in");

} // namespace

ncclResult_t mimo_nccl_reach_start(mimo_nccl_reach *reach, ncclComm_t comm)
{
    Query *it = (Query *)reach->memory;
    it->wanted = requirements();
    return ncclDevCommCreate(comm, &it->wanted, &it->device);
}

ncclResult_t mimo_nccl_reach_finish(mimo_nccl_reach *reach, ncclComm_t comm, int *first, int *count)
{
    Query *it = (Query *)reach->memory;
    int rank;
    ncclResult_t code = ncclCommUserRank(comm, &rank);
    if (code != ncclSuccess)
        return code;
    *first = rank - it->device.lsaRank;
    *count = it->device.lsaSize;
    return ncclDevCommDestroy(comm, &it->device);
}

cudaError_t mimo_nccl_peer_pointers(void **at, void **scratch, ncclWindow_t window, int count)
{
    find<<<1, 128>>>(window, count, scratch);
    cudaError_t code = cudaGetLastError();
    if (code != cudaSuccess)
        return code;
    return cudaMemcpy(at, scratch, count * sizeof *at, cudaMemcpyDeviceToHost);
}
