/* Private: cuBLAS, loaded where the first runtime on a device opens. A program that links it would
 * load it in each process, which takes 0.1 s and 100 MB, also where layers compute on the host. */
#ifndef MIMO_NN_NN_CUDA_BLAS_H
#define MIMO_NN_NN_CUDA_BLAS_H

#include <cublas_v2.h>

#include "train/nn/ops/nn_ops.h"

/* The functions that are called: X(name). */
#define NN_CUDA_BLAS_FUNCTIONS(X) \
    X(cublasCreate)               \
    X(cublasDestroy)              \
    X(cublasGemmStridedBatchedEx) \
    X(cublasGetStatusString)      \
    X(cublasSetMathMode)          \
    X(cublasSetSmCountTarget)     \
    X(cublasSetStream)            \
    X(cublasSetWorkspace)

/* A handle, and cuBLAS's functions. Some names are macros for a later version of the function, and
 * stand for the same here. */
typedef struct nn_cuda_blas {
#define NN_CUDA_BLAS_MEMBER(name) __typeof__(name) *name;
    NN_CUDA_BLAS_FUNCTIONS(NN_CUDA_BLAS_MEMBER)
#undef NN_CUDA_BLAS_MEMBER
    cublasHandle_t handle;
} nn_cuda_blas;

/* Load cuBLAS and make a handle for a stream, with `bytes` of device memory to work in. The caller
 * closes it, also after a failure. MIMO_ERR_DEVICE where cuBLAS is missing or refuses. */
mimo_status nn_cuda_blas_open(nn_cuda_blas **out, cudaStream_t stream, void *workspace,
                              size_t bytes);
void nn_cuda_blas_close(nn_cuda_blas *blas);

/* From now on products are cut for all multiprocessors of the current device but `spared`, at least
 * for one. */
mimo_status nn_cuda_blas_spare(nn_cuda_blas *blas, int spared);

mimo_status nn_cuda_blas_check(const nn_cuda_blas *blas, cublasStatus_t status, const char *what);

#endif
