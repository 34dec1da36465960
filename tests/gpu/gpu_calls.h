/* For the tests on GPUs: calls of CUDA and NCCL that have to succeed, and communicators with
 * descriptors of the test's own. */
#ifndef MIMO_TESTS_GPU_CALLS_H
#define MIMO_TESTS_GPU_CALLS_H

#include <cuda_runtime_api.h>
#include <mimo/nccl.h>

#include "mpi_test.h"

#define EXPECT_CUDA(call)                                                                       \
    do {                                                                                        \
        cudaError_t cuda_got = (call);                                                          \
        MPI_EXPECT(cuda_got == cudaSuccess, "%s gave %s", #call, cudaGetErrorString(cuda_got)); \
    } while (0)
#define EXPECT_NCCL(call)                                                                       \
    do {                                                                                        \
        ncclResult_t nccl_got = (call);                                                         \
        MPI_EXPECT(nccl_got == ncclSuccess, "%s gave %s", #call, ncclGetErrorString(nccl_got)); \
    } while (0)

/* Create a communicator with this rank's descriptor. */
static inline mimo_status gpu_comm_create(mimo_comm **out, const mimo_nccl_desc *desc)
{
    MPI_Comm world = MPI_COMM_WORLD;
    mimo_bootstrap bootstrap = MIMO_BOOTSTRAP_INIT;
    MPI_EXPECT_OK(mimo_bootstrap_from_mpi(&bootstrap, &world));
    return mimo_comm_create_nccl(out, &bootstrap, desc);
}

#endif
