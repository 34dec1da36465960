/* Groups of rows in host memory: one after the other, in either order of additions. */
#include "train/nn/host/nn_host.h"
#include "train/nn/ops/nn_groups.h"

mimo_status nn_host_multiply_groups(const nn_runtime *runtime, const nn_group_product *product)
{
    return nn_loop_multiply(runtime, product);
}

mimo_status nn_host_sum_groups(const nn_runtime *runtime, const nn_group_sums *sums)
{
    return nn_loop_sum(runtime, sums);
}

mimo_status nn_host_add_group_bias(const nn_runtime *runtime, nn_real *y, const nn_groups *groups,
                                   const nn_real *const *biases, int64_t width)
{
    return nn_loop_add_bias(runtime, y, groups, biases, width);
}
