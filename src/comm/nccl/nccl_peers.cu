// NCCL's device API, as far as it is used: where windows of peers lie.
#include "comm/nccl/nccl_peers.h"

#include <nccl_device.h>

namespace
{

__global__ void find(ncclWindow_t window, int count, void **at)
{
    for (int peer = threadIdx.x; peer < count; peer += blockDim.x)
        at[peer] = ncclGetLsaPointer(window, 0, peer);
}

// NCCL 2.29 refuses requirements that are only zeros.
ncclDevCommRequirements requirements()
{
#ifdef NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER
    return NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
#else
    return {};
#endif
}

} // namespace

ncclResult_t mimo_nccl_reach(ncclComm_t comm, mimo_nccl_wait *wait, int *first, int *count)
{
    struct request {
        ncclDevComm device;
        ncclDevCommRequirements wanted;
    };
    static_assert(sizeof(request) <= sizeof wait->room, "room for NCCL to work in");
    request *it = (request *)wait->room;
    int rank;
    ncclResult_t code = ncclCommUserRank(comm, &rank);
    if (code != ncclSuccess)
        return code;
    *first = rank;
    *count = 1;
    it->wanted = requirements();
    code = ncclDevCommCreate(comm, &it->wanted, &it->device);
    if (code == ncclSuccess || code == ncclInProgress)
        code = wait->until_done(wait->context);
    if (code != ncclSuccess)
        return ncclSuccess;
    *first = rank - it->device.lsaRank;
    *count = it->device.lsaSize;
    return ncclDevCommDestroy(comm, &it->device);
}

cudaError_t mimo_nccl_peer_pointers(void **at, void **room, ncclWindow_t window, int count)
{
    find<<<1, 128>>>(window, count, room);
    cudaError_t code = cudaGetLastError();
    if (code != cudaSuccess)
        return code;
    return cudaMemcpy(at, room, count * sizeof *at, cudaMemcpyDeviceToHost);
}
