/* Groups of rows: in the fixed order by kernels that find them on the device, in the fast one by
 * cuBLAS, group by group. */
#include "train/nn/cuda/nn_cuda.h"
#include "train/nn/ops/nn_groups.h"

mimo_status nn_cuda_multiply_groups(const nn_runtime *runtime, const nn_group_product *product)
{
    return runtime->order == NN_ORDER_FIXED ? nn_cuda_multiply_groups_ordered(runtime, product)
                                            : nn_loop_multiply(runtime, product);
}

mimo_status nn_cuda_sum_groups(const nn_runtime *runtime, const nn_group_sums *sums)
{
    return runtime->order == NN_ORDER_FIXED ? nn_cuda_sum_groups_ordered(runtime, sums)
                                            : nn_loop_sum(runtime, sums);
}

mimo_status nn_cuda_add_group_bias(const nn_runtime *runtime, nn_real *y, const nn_groups *groups,
                                   const nn_real *const *biases, int64_t width)
{
    return runtime->order == NN_ORDER_FIXED
               ? nn_cuda_add_group_bias_there(runtime, y, groups, biases, width)
               : nn_loop_add_bias(runtime, y, groups, biases, width);
}
