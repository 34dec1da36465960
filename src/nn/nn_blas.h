/* All matrix work of the layers: C = beta C + alpha A B, through OpenBLAS. */
#ifndef MIMO_NN_NN_BLAS_H
#define MIMO_NN_NN_BLAS_H

#include <cblas.h>
#include <stdbool.h>
#include <stdint.h>

#include "nn/nn_real.h"

/* A matrix [rows, columns], row-major with `stride` elements from row to row; `transposed` where it
 * lies in memory as [columns, rows]. */
typedef struct nn_matrix {
    const nn_real *data;
    int64_t rows, columns, stride;
    bool transposed;
} nn_matrix;

static inline nn_matrix nn_matrix_of(const nn_real *data, int64_t rows, int64_t columns,
                                     int64_t stride)
{
    return (nn_matrix){data, rows, columns, stride, false};
}

static inline nn_matrix nn_transpose(nn_matrix a)
{
    return (nn_matrix){a.data, a.columns, a.rows, a.stride, !a.transposed};
}

/* c [a.rows, b.columns]; the layers' inits and forwards keep every size within int. */
static inline void nn_gemm(nn_real *c, int64_t stride, nn_real beta, nn_real alpha, nn_matrix a,
                           nn_matrix b)
{
    CBLAS_TRANSPOSE ta = a.transposed ? CblasTrans : CblasNoTrans;
    CBLAS_TRANSPOSE tb = b.transposed ? CblasTrans : CblasNoTrans;
#ifdef NN_REAL_F64
    cblas_dgemm(CblasRowMajor, ta, tb, (int)a.rows, (int)b.columns, (int)a.columns, alpha, a.data,
                (int)a.stride, b.data, (int)b.stride, beta, c, (int)stride);
#else
    cblas_sgemm(CblasRowMajor, ta, tb, (int)a.rows, (int)b.columns, (int)a.columns, alpha, a.data,
                (int)a.stride, b.data, (int)b.stride, beta, c, (int)stride);
#endif
}

#endif
