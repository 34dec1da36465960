/* The bias of each group of rows, whose ends lie on the device. */
#include "train/nn/cuda/nn_cuda_launch.cuh"

/* The group of a row that one has: the first that ends behind it. */
static __device__ int64_t group_of(const nn_groups &groups, int64_t row)
{
    int64_t low = 0, high = groups.count - 1;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (nn_group_end(&groups, middle) > row)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

mimo_status nn_cuda_add_group_bias_there(const nn_runtime *runtime, nn_real *y,
                                         const nn_groups *groups, const nn_real *const *biases,
                                         int64_t width)
{
    const nn_groups g = *groups;
    return nn_each_filled_row(runtime, "bias of groups", nn_group_rows(&g), width,
                              [=] __device__(int64_t i) {
                                  const nn_real *bias = biases[group_of(g, i)];
                                  for (int64_t j = threadIdx.x; bias && j < width; j += blockDim.x)
                                      y[i * width + j] += bias[j];
                              });
}
