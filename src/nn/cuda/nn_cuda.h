/* Private: the operations of nn_ops on a CUDA device, one function per slot (contracts are there),
 * and what they share. Nothing here waits for the device. */
#ifndef MIMO_NN_NN_CUDA_H
#define MIMO_NN_NN_CUDA_H

#include <cublas_v2.h>

#include "nn/nn_ops.h"

MIMO_BEGIN_DECLS

/* Device memory that is kept and grows; one user each, so that the stream's order keeps calls
 * apart. Growing blocks, so it happens once per shape. */
typedef struct nn_cuda_room {
    void *data;
    int64_t bytes;
} nn_cuda_room;

/* The context of a runtime. */
typedef struct nn_cuda {
    cublasHandle_t blas;
    void *workspace;                 /* of cuBLAS, so that it allocates none */
    nn_cuda_room factor_a, factor_b; /* rounded to bf16 */
    nn_cuda_room columns;            /* partial sums of columns */
} nn_cuda;

static inline nn_cuda *nn_cuda_of(const nn_runtime *runtime)
{
    return (nn_cuda *)runtime->context;
}

mimo_status nn_cuda_grow(const nn_runtime *runtime, nn_cuda_room *room, int64_t bytes);
/* The status of the launch just made; `what` names it. */
mimo_status nn_cuda_launched(const char *what);
mimo_status nn_cuda_blas_check(cublasStatus_t status, const char *what);

/* Round the matrices of a batch to bf16 and pack them one after the other, as they lie in memory:
 * `lines` of `line` elements each. */
mimo_status nn_cuda_pack_bf16(const nn_runtime *runtime, uint16_t *to, const nn_matrix *from,
                              int64_t count);

NN_SLOTS(NN_DECLARE, nn_cuda)

MIMO_END_DECLS

#endif
