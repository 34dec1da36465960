/* Softmax of attention scores: one block for each row. */
#include "nn/cuda/nn_cuda_reduce.cuh"

mimo_status nn_cuda_softmax(const nn_runtime *runtime, const nn_scores *scores)
{
    nn_scores s = *scores;
    int64_t width = s.width;
    return nn_each_row(runtime, "softmax", s.panels * s.rows, width, [=] __device__(int64_t i) {
        nn_real *row = s.data + i * width, most = (nn_real)-1e30;
        const nn_real *mask = s.mask ? s.mask + i % s.rows * width : nullptr;
        for (int64_t j = threadIdx.x; j < width; j += blockDim.x)
            if (!mask || mask[j] > 0)
                most = nn_larger()(most, row[j]);
        most = nn_reduce_block(most, nn_larger());
        nn_real sum = 0;
        for (int64_t j = threadIdx.x; j < width; j += blockDim.x) {
            row[j] = !mask || mask[j] > 0 ? exp(row[j] - most) : (nn_real)0;
            sum += row[j];
        }
        nn_real scale = 1 / nn_reduce_block(sum, nn_plus());
        for (int64_t j = threadIdx.x; j < width; j += blockDim.x)
            row[j] *= scale;
    });
}

mimo_status nn_cuda_softmax_backward(const nn_runtime *runtime, nn_real *d, const nn_real *w,
                                     int64_t rows, int64_t width)
{
    return nn_each_row(runtime, "softmax backward", rows, width, [=] __device__(int64_t i) {
        nn_real *d_row = d + i * width;
        const nn_real *w_row = w + i * width;
        nn_real mean = nn_sum_row<nn_real>(width, [=](int64_t j) { return d_row[j] * w_row[j]; });
        for (int64_t j = threadIdx.x; j < width; j += blockDim.x)
            d_row[j] = w_row[j] * (d_row[j] - mean);
    });
}
