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

mimo_status nn_cuda_open(nn_runtime *runtime);
void nn_cuda_close(nn_runtime *runtime);
mimo_status nn_cuda_matmul(const nn_runtime *runtime, const nn_product *product);
/* Round the matrices of a batch to bf16 and pack them one after the other, as they lie in memory:
 * `lines` of `line` elements each. */
mimo_status nn_cuda_pack_bf16(const nn_runtime *runtime, uint16_t *to, const nn_matrix *from,
                              int64_t count);

mimo_status nn_cuda_add(const nn_runtime *runtime, nn_real *to, const nn_real *from, int64_t n);
mimo_status nn_cuda_add_bias(const nn_runtime *runtime, nn_real *y, const nn_real *bias,
                             int64_t rows, int64_t width);
mimo_status nn_cuda_add_columns(const nn_runtime *runtime, nn_real *sums, const nn_real *x,
                                int64_t rows, int64_t width);
mimo_status nn_cuda_gelu(const nn_runtime *runtime, nn_real *y, nn_real *gate, const nn_real *u,
                         int64_t n);
mimo_status nn_cuda_gelu_backward(const nn_runtime *runtime, nn_real *d, const nn_real *u,
                                  const nn_real *gate, int64_t n);
mimo_status nn_cuda_adamw(const nn_runtime *runtime, const nn_moments *moments,
                          const nn_adamw_factors *factors);
mimo_status nn_cuda_to_bf16(const nn_runtime *runtime, uint16_t *to, const nn_real *from,
                            int64_t n);
mimo_status nn_cuda_from_bf16(const nn_runtime *runtime, nn_real *to, const uint16_t *from,
                              int64_t n);

mimo_status nn_cuda_norm(const nn_runtime *runtime, nn_real *y, const nn_norm_rows *rows);
mimo_status nn_cuda_norm_backward(const nn_runtime *runtime, const nn_norm_rows *rows,
                                  const nn_norm_gradients *gradients);

mimo_status nn_cuda_softmax(const nn_runtime *runtime, const nn_scores *scores);
mimo_status nn_cuda_softmax_backward(const nn_runtime *runtime, nn_real *d, const nn_real *w,
                                     int64_t rows, int64_t width);

mimo_status nn_cuda_lookup(const nn_runtime *runtime, nn_real *y, const nn_lookup *lookup);
mimo_status nn_cuda_lookup_add(const nn_runtime *runtime, nn_real *y, const nn_lookup *lookup);
mimo_status nn_cuda_lookup_backward(const nn_runtime *runtime, nn_real *grad, const nn_real *dy,
                                    const nn_lookup *lookup, const nn_uses *uses);

mimo_status nn_cuda_token_maxima(const nn_runtime *runtime, const nn_token_rows *tokens);
mimo_status nn_cuda_token_sums(const nn_runtime *runtime, const nn_token_rows *tokens);
mimo_status nn_cuda_token_losses(const nn_runtime *runtime, double *losses, double *total,
                                 const nn_token_rows *tokens);
mimo_status nn_cuda_token_gradients(const nn_runtime *runtime, nn_real *d,
                                    const nn_token_rows *tokens);
mimo_status nn_cuda_row_largest(const nn_runtime *runtime, double *value,
                                const nn_token_rows *tokens);
mimo_status nn_cuda_row_choice(const nn_runtime *runtime, double *negated, const double *value,
                               const nn_token_rows *tokens, int64_t absent);

MIMO_END_DECLS

#endif
