/* Private: the operations of nn_ops on a CUDA device, one function for each, and what they
 * share. nn_ops.h has the contracts. Nothing here waits for the device. */
#ifndef MIMO_NN_NN_CUDA_H
#define MIMO_NN_NN_CUDA_H

#include "train/nn/ops/nn_ops.h"

MIMO_BEGIN_DECLS

/* Device memory that is kept and grows. Each one has a single user, so the order of the stream
 * keeps its calls apart. Growing blocks, and happens only on the first call of a shape. */
typedef struct nn_cuda_room {
    void *data;
    int64_t bytes;
} nn_cuda_room;

/* What runtime->context points to. */
typedef struct nn_cuda {
    struct nn_cuda_blas *blas;
    void *workspace;                 /* for cuBLAS, so that it allocates none */
    nn_cuda_room factor_a, factor_b; /* factors of a product, rounded to bf16 */
    nn_cuda_room columns, arrived;   /* sums of chunks, and counts, of nn_sum_columns */
} nn_cuda;

static inline nn_cuda *nn_cuda_of(const nn_runtime *runtime)
{
    return (nn_cuda *)runtime->context;
}

mimo_status nn_cuda_grow(const nn_runtime *runtime, nn_cuda_room *room, int64_t bytes);
/* The status of the last launch. `what` names it in the sentence. */
mimo_status nn_cuda_launched(const char *what);

/* Round the matrices of a batch to bf16, and pack them one after the other. A matrix is `lines`
 * lines of `line` elements, in the order of its memory, transposed or not. */
mimo_status nn_cuda_pack_bf16(const nn_runtime *runtime, uint16_t *to, const nn_matrix *from,
                              int64_t count);

/* nn_ops.matmul of a runtime in the fixed order. In f64: MIMO_ERR_UNSUPPORTED. */
mimo_status nn_cuda_matmul_ordered(const nn_runtime *runtime, const nn_product *product);
/* So are these of multiply_groups and sum_groups. They take the ends of groups from the device. */
mimo_status nn_cuda_multiply_groups_ordered(const nn_runtime *runtime,
                                            const nn_group_product *product);
mimo_status nn_cuda_sum_groups_ordered(const nn_runtime *runtime, const nn_group_sums *sums);
/* So is this one of add_group_bias, in both precisions. */
mimo_status nn_cuda_add_group_bias_there(const nn_runtime *runtime, nn_real *y,
                                         const nn_groups *groups, const nn_real *const *biases,
                                         int64_t width);

NN_OPERATIONS(NN_DECLARE, nn_cuda)

MIMO_END_DECLS

#endif
