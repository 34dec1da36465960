// The kernel that link_floor.h describes.
#include "link_floor.h"

#include <nccl_device.h>
#include <stdlib.h>

namespace
{

constexpr int kThreads = 512;
constexpr int kInFlight = 8;
constexpr int kMostCtas = 264;

__global__ void __launch_bounds__(kThreads)
    push(ncclDevComm comm, ncclWindow_t from, ncclWindow_t to, size_t words, int peers)
{
    ncclLsaBarrierSession<ncclCoopCta> barrier{ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x};
    barrier.sync(ncclCoopCta(), cuda::memory_order_relaxed);
    const uint4 *source = (const uint4 *)ncclGetLocalPointer(from, 0);
    const size_t share = words / peers, stride = (size_t)gridDim.x * kThreads;
    for (int p = 0; p < peers; p++) {
        uint4 *target = (uint4 *)ncclGetLsaPointer(to, 0, (comm.lsaRank + 1 + p) % comm.lsaSize);
        for (size_t i = (size_t)blockIdx.x * kThreads + threadIdx.x; i < share;
             i += kInFlight * stride) {
            uint4 held[kInFlight];
#pragma unroll
            for (int k = 0; k < kInFlight; k++)
                if (i + k * stride < share)
                    held[k] = __ldcs(source + p * share + i + k * stride);
#pragma unroll
            for (int k = 0; k < kInFlight; k++)
                if (i + k * stride < share)
                    __stcs(target + p * share + i + k * stride, held[k]);
        }
    }
    barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}

} // namespace

struct link_floor {
    ncclComm_t comm;
    void *from, *to;
    ncclWindow_t source, target;
    ncclDevComm device;
};

link_floor *link_floor_create(ncclComm_t comm, size_t bytes)
{
    link_floor *floor = (link_floor *)calloc(1, sizeof *floor);
#ifdef NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER
    ncclDevCommRequirements wanted = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
#else
    ncclDevCommRequirements wanted = {};
#endif
    wanted.lsaBarrierCount = kMostCtas;
    floor->comm = comm;
    if (ncclMemAlloc(&floor->from, bytes) != ncclSuccess ||
        ncclMemAlloc(&floor->to, bytes) != ncclSuccess ||
        ncclCommWindowRegister(comm, floor->from, bytes, &floor->source, NCCL_WIN_COLL_SYMMETRIC) !=
            ncclSuccess ||
        ncclCommWindowRegister(comm, floor->to, bytes, &floor->target, NCCL_WIN_COLL_SYMMETRIC) !=
            ncclSuccess ||
        !floor->source || !floor->target ||
        ncclDevCommCreate(comm, &wanted, &floor->device) != ncclSuccess)
        return NULL;
    cudaMemset(floor->from, 0x3c, bytes);
    return floor;
}

void link_floor_destroy(link_floor *floor)
{
    if (!floor)
        return;
    ncclDevCommDestroy(floor->comm, &floor->device);
    ncclCommWindowDeregister(floor->comm, floor->source);
    ncclCommWindowDeregister(floor->comm, floor->target);
    ncclMemFree(floor->from);
    ncclMemFree(floor->to);
    free(floor);
}

cudaError_t link_floor_push(const link_floor *floor, size_t bytes, int peers, int ctas,
                            cudaStream_t stream)
{
    push<<<ctas, kThreads, 0, stream>>>(floor->device, floor->source, floor->target, bytes / 16,
                                        peers);
    return cudaGetLastError();
}
