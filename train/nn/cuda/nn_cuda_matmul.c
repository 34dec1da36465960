/* Products of batches of matrices through cuBLAS. */
#include "core/check.h"
#include "train/nn/cuda/nn_cuda.h"
#include "train/nn/cuda/nn_cuda_blas.h"

/* PEDANTIC forbids TF32 and emulation, whatever the environment asks for. */
#ifdef NN_REAL_F64
static const cudaDataType_t full_type = CUDA_R_64F;
static const cublasComputeType_t full_compute = CUBLAS_COMPUTE_64F_PEDANTIC;
#else
static const cudaDataType_t full_type = CUDA_R_32F;
static const cublasComputeType_t full_compute = CUBLAS_COMPUTE_32F_PEDANTIC;
#endif

/* A factor in the terms of cuBLAS. */
typedef struct factor {
    const void *data;
    cudaDataType_t type;
    cublasOperation_t operation;
    int64_t stride, step;
} factor;

static factor factor_of(const nn_matrix *a)
{
    return (factor){a->data, full_type, a->transposed ? CUBLAS_OP_T : CUBLAS_OP_N, a->stride,
                    a->step};
}

/* The factor, rounded to bf16 and packed. A matrix that the whole batch shares is rounded once. */
static mimo_status round_factor(factor *out, const nn_runtime *runtime, nn_cuda_room *room,
                                const nn_matrix *a, int64_t count)
{
    int64_t line = a->transposed ? a->rows : a->columns, cells = a->rows * a->columns;
    int64_t copies = a->step == 0 ? 1 : count;
    MIMO_TRY(nn_cuda_grow(runtime, room, copies * cells * (int64_t)sizeof(uint16_t)));
    MIMO_TRY(nn_cuda_pack_bf16(runtime, (uint16_t *)room->data, a, copies));
    *out = (factor){room->data, CUDA_R_16BF, a->transposed ? CUBLAS_OP_T : CUBLAS_OP_N, line,
                    a->step == 0 ? 0 : cells};
    return MIMO_OK;
}

/* cuBLAS is column-major: it reads the memory of a row-major matrix as the transpose. So it
 * computes
 *
 *   c^T = b^T a^T
 *
 * from the same memory with the factors swapped. Nothing is transposed. */
static mimo_status multiply(const nn_runtime *runtime, const nn_product *p, const factor *a,
                            const factor *b)
{
    cublasComputeType_t compute = a->type == CUDA_R_16BF ? CUBLAS_COMPUTE_32F : full_compute;
    const nn_cuda_blas *blas = nn_cuda_of(runtime)->blas;
    return nn_cuda_blas_check(blas,
                              blas->cublasGemmStridedBatchedEx(
                                  blas->handle, b->operation, a->operation, (int)p->b.columns,
                                  (int)p->a.rows, (int)p->a.columns, &p->alpha, b->data, b->type,
                                  (int)b->stride, b->step, a->data, a->type, (int)a->stride,
                                  a->step, &p->beta, p->c, full_type, (int)p->stride, p->step,
                                  (int)p->count, compute, CUBLAS_GEMM_DEFAULT),
                              "cublasGemmStridedBatchedEx");
}

mimo_status nn_cuda_matmul(const nn_runtime *runtime, const nn_product *product)
{
    const nn_matrix *a = &product->a, *b = &product->b;
    if (runtime->order == NN_ORDER_FIXED)
        return nn_cuda_matmul_ordered(runtime, product);
    if (product->count == 0 || a->rows == 0 || b->columns == 0)
        return MIMO_OK;
    if (a->columns == 0 && product->beta == 1)
        return MIMO_OK;
    nn_cuda *context = nn_cuda_of(runtime);
    factor left = factor_of(a), right = factor_of(b);
    if (runtime->precision == NN_PRECISION_BF16) {
        MIMO_TRY(round_factor(&left, runtime, &context->factor_a, a, product->count));
        MIMO_TRY(round_factor(&right, runtime, &context->factor_b, b, product->count));
    }
    return multiply(runtime, product, &left, &right);
}
