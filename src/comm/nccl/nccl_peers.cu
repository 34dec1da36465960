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

struct Question {
    ncclDevComm device;
    ncclDevCommRequirements wanted;
};
static_assert(sizeof(Question) <= sizeof(mimo_nccl_reach), "room for NCCL to work in");

} // namespace

ncclResult_t mimo_nccl_reach_ask(mimo_nccl_reach *reach, ncclComm_t comm)
{
    Question *it = (Question *)reach->room;
    it->wanted = requirements();
    return ncclDevCommCreate(comm, &it->wanted, &it->device);
}

ncclResult_t mimo_nccl_reach_read(mimo_nccl_reach *reach, ncclComm_t comm, int *first, int *count)
{
    Question *it = (Question *)reach->room;
    int rank;
    ncclResult_t code = ncclCommUserRank(comm, &rank);
    if (code != ncclSuccess)
        return code;
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
