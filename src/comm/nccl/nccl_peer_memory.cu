// The part of NCCL's device API that is used: where windows of peers lie. It is that of 2.28. Later
// versions have a function for it (nccl_runtime.h), so their device API is not compiled in.
#include "comm/nccl/nccl_peer_memory.h"

#include "comm/nccl/nccl_runtime.h"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 0)

#include <nccl_device.h>

namespace
{

__global__ void find(ncclWindow_t window, int count, void **at)
{
    for (int peer = threadIdx.x; peer < count; peer += blockDim.x)
        at[peer] = ncclGetLsaPointer(window, 0, peer);
}

struct Query {
    ncclDevComm device;
    ncclDevCommRequirements wanted;
};
static_assert(sizeof(Query) <= sizeof(mimo_nccl_reach), "memory for NCCL to work in");

} // namespace

ncclResult_t mimo_nccl_reach_start(mimo_nccl_reach *reach, ncclComm_t comm)
{
    decltype(&ncclDevCommCreate) create; // an older NCCL has none
    Query *it = (Query *)reach->memory;
    mimo_nccl_find_function(&create, "ncclDevCommCreate");
    it->wanted = {};
    return create ? create(comm, &it->wanted, &it->device) : ncclInvalidUsage;
}

ncclResult_t mimo_nccl_reach_finish(mimo_nccl_reach *reach, ncclComm_t comm, int *first, int *count)
{
    decltype(&ncclDevCommDestroy) destroy;
    Query *it = (Query *)reach->memory;
    int rank;
    ncclResult_t code = ncclCommUserRank(comm, &rank);
    mimo_nccl_find_function(&destroy, "ncclDevCommDestroy");
    if (code != ncclSuccess || !destroy)
        return code != ncclSuccess ? code : ncclInvalidUsage;
    *first = rank - it->device.lsaRank;
    *count = it->device.lsaSize;
    return destroy(comm, &it->device);
}

cudaError_t mimo_nccl_peer_pointers(void **at, void **scratch, ncclWindow_t window, int count)
{
    find<<<1, 128>>>(window, count, scratch);
    cudaError_t code = cudaGetLastError();
    if (code != cudaSuccess)
        return code;
    return cudaMemcpy(at, scratch, count * sizeof *at, cudaMemcpyDeviceToHost);
}

#else

ncclResult_t mimo_nccl_reach_start(mimo_nccl_reach *, ncclComm_t)
{
    return ncclInvalidUsage;
}

ncclResult_t mimo_nccl_reach_finish(mimo_nccl_reach *, ncclComm_t, int *, int *)
{
    return ncclInvalidUsage;
}

cudaError_t mimo_nccl_peer_pointers(void **, void **, ncclWindow_t, int)
{
    return cudaErrorNotSupported;
}

#endif
