/*
 * Kernels of a dispatch. A set of a route is the route kernel and the place kernel, a move is one
 * kernel. comm/expert_memory.h has the memory that they share with peers, and the tables.
 *
 * Each kernel is a call of the dispatch, except that both kernels of a set are one. A call
 *
 *   1. reads its number: counters->call + 1. Then the host does nothing for it, and a CUDA graph
 *      that holds it can run any number of times
 *   2. sets READY on all peers: by its first thread block, first of all, relaxed
 *   3. waits for READY of a peer before it first writes into that peer's memory, and compares the
 *      signature: where it differs, both ends refuse
 *   4. sets its flags behind what it wrote, and waits for those of its peers
 *   5. counts itself: the last thread block that ends increments counters->call
 *
 * nccl_expert_call.cuh has these steps.
 */
#ifndef MIMO_COMM_NCCL_EXPERTS_H
#define MIMO_COMM_NCCL_EXPERTS_H

#include <cuda_runtime_api.h>

#include "comm/expert_memory.h"
#include "comm/nccl/nccl_push_kernel.h"

MIMO_BEGIN_DECLS

/* What all kernels of a dispatch take: the same in each of its calls on a rank, except the
 * signature. Arrays are in device memory. */
typedef struct mimo_expert_group {
    mimo_expert_shape shape;
    mimo_expert_layout at;
    int32_t rank;
    char *const *memory; /* [P]: the symmetric memory of each rank, as this rank sees it */
    mimo_flags *const
        *flags; /* [P]: the page of flags of each rank, [P]: entry r is about rank r */
    mimo_expert_counters *counters;
    mimo_push_note *note;             /* of the buffer, at its device address */
    struct mimo_ring_launches *words; /* where calls say that they have begun and ended, at their
                                         device address; NULL: nobody is told */
    uint64_t signature; /* of READY: a hash of what must be alike on all ranks of the call */
} mimo_expert_group;

/* A set of a route. */
typedef struct mimo_route_launch {
    mimo_expert_group group;
    mimo_route_tables tables;
    const void *ids; /* [tokens, k], i32 or i64, in device memory. -1: none; other numbers that are
                        no expert count as -1, and counters->strays counts them */
    int32_t wide;    /* 1: i64 */
    int32_t tokens, capacity;
    int32_t
        blocks; /* of the route kernel: MIMO_ROUTE_BLOCKS, 1 where the device has no clusters; 0:
                       by the device */
} mimo_route_launch;

/* Load the kernels onto the current device, and allow them the shared memory of this shape:
 * cudaErrorInvalidValue where a thread block has less. *blocks: those of the route kernel. To be
 * called before the first launch. */
cudaError_t mimo_route_kernels_load(int *blocks, const mimo_expert_shape *shape);

/* Enqueue both kernels of a set. */
cudaError_t mimo_route_kernels(const mimo_route_launch *launch, cudaStream_t stream);

MIMO_END_DECLS

#endif
