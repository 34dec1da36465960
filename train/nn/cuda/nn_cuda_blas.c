#include "train/nn/cuda/nn_cuda_blas.h"

#include <dlfcn.h>
#include <string.h>

#include "core/check.h"
#include "core/memory.h"

#define TEXT_OF(tokens) #tokens
#define TEXT(macro) TEXT_OF(macro)

static const char library_name[] = "libcublas.so." TEXT(CUBLAS_VER_MAJOR);

/* dlsym returns an object pointer, which C does not convert to a function's. */
static mimo_status find(void *function, void *library, const char *name)
{
    void *found = dlsym(library, name);
    MIMO_CHECK(found, MIMO_ERR_DEVICE, "%s has no function %s", library_name, name);
    memcpy(function, &found, sizeof found);
    return MIMO_OK;
}

/* The library stays: CUDA keeps what it registered. */
static mimo_status load(nn_cuda_blas *blas)
{
    void *library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    MIMO_CHECK(library, MIMO_ERR_DEVICE, "cannot load %s: %s", library_name, dlerror());
#define FIND(name) MIMO_TRY(find(&blas->name, library, TEXT(name)));
    NN_CUDA_BLAS_FUNCTIONS(FIND)
#undef FIND
    return MIMO_OK;
}

mimo_status nn_cuda_blas_check(const nn_cuda_blas *blas, cublasStatus_t status, const char *what)
{
    MIMO_CHECK(status == CUBLAS_STATUS_SUCCESS, MIMO_ERR_DEVICE, "%s: %s", what,
               blas->cublasGetStatusString(status));
    return MIMO_OK;
}

mimo_status nn_cuda_blas_open(nn_cuda_blas **out, cudaStream_t stream, void *workspace,
                              size_t bytes)
{
    MIMO_TRY(mimo_reserve(out, 1, sizeof(nn_cuda_blas)));
    nn_cuda_blas *blas = *out;
    MIMO_TRY(load(blas));
    MIMO_TRY(nn_cuda_blas_check(blas, blas->cublasCreate(&blas->handle), "cublasCreate"));
    /* cublasSetStream resets the workspace, so it comes first. */
    MIMO_TRY(
        nn_cuda_blas_check(blas, blas->cublasSetStream(blas->handle, stream), "cublasSetStream"));
    /* cuBLAS may split a sum. The parts are then added in the output's type, never in bf16. */
    const cublasMath_t mode =
        (cublasMath_t)(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    MIMO_TRY(
        nn_cuda_blas_check(blas, blas->cublasSetMathMode(blas->handle, mode), "cublasSetMathMode"));
    return nn_cuda_blas_check(blas, blas->cublasSetWorkspace(blas->handle, workspace, bytes),
                              "cublasSetWorkspace");
}

mimo_status nn_cuda_blas_spare(nn_cuda_blas *blas, int spared)
{
    int device, all;
    cudaError_t code = cudaGetDevice(&device);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, device);
    MIMO_CHECK(code == cudaSuccess, MIMO_ERR_DEVICE, "multiprocessors of the device: %s",
               cudaGetErrorString(code));
    int target = all > spared ? all - spared : 1;
    return nn_cuda_blas_check(blas, blas->cublasSetSmCountTarget(blas->handle, target),
                              "cublasSetSmCountTarget");
}

void nn_cuda_blas_close(nn_cuda_blas *blas)
{
    if (!blas)
        return;
    if (blas->handle)
        blas->cublasDestroy(blas->handle);
    mimo_release(blas);
}
