/* Lookups in a table of entries, and their gradient: one block for each entry that is used. */
#include "train/nn/cuda/nn_cuda_columns.cuh"

mimo_status nn_cuda_lookup(const nn_runtime *runtime, nn_real *y, const nn_lookup *lookup)
{
    nn_lookup l = *lookup;
    return nn_each_row(runtime, "lookup", l.n * l.repeat, l.width, [=] __device__(int64_t i) {
        const nn_real *entry = l.table + l.ids[i / l.repeat] * l.width;
        for (int64_t j = threadIdx.x; j < l.width; j += blockDim.x)
            y[i * l.width + j] = entry[j];
    });
}

mimo_status nn_cuda_lookup_add(const nn_runtime *runtime, nn_real *y, const nn_lookup *lookup)
{
    nn_lookup l = *lookup;
    return nn_each_row(runtime, "lookup add", l.n * l.repeat, l.width, [=] __device__(int64_t i) {
        const nn_real *entry = l.table + l.ids[i / l.repeat] * l.width;
        for (int64_t j = threadIdx.x; j < l.width; j += blockDim.x)
            y[i * l.width + j] += entry[j];
    });
}

/* Block (x, y) serves entry x and the columns from y * NN_WARP on. Where there are more entries
 * than blocks, a block serves several. */
static __global__ void entry_gradients(nn_real *grad, const nn_real *dy, nn_lookup l, nn_uses uses)
{
    int64_t j = (int64_t)blockIdx.y * NN_WARP + threadIdx.x;
    for (int64_t k = blockIdx.x; k < uses.count; k += gridDim.x) {
        int64_t begin = uses.begin[k] * l.repeat, end = uses.begin[k + 1] * l.repeat;
        nn_real sum = nn_sum_slices(begin, end, [=](int64_t t) {
            int64_t row = uses.order[t / l.repeat] * l.repeat + t % l.repeat;
            return j < l.width ? dy[row * l.width + j] : 0;
        });
        if (threadIdx.y == 0 && j < l.width)
            grad[uses.entry[k] * l.width + j] += sum;
    }
}

mimo_status nn_cuda_lookup_backward(const nn_runtime *runtime, nn_real *grad, const nn_real *dy,
                                    const nn_lookup *lookup, const nn_uses *uses)
{
    if (uses->count == 0 || lookup->width == 0)
        return MIMO_OK;
    dim3 grid(nn_blocks(uses->count), (unsigned)((lookup->width + NN_WARP - 1) / NN_WARP));
    entry_gradients<<<grid, dim3(NN_WARP, NN_SLICES), 0, (cudaStream_t)runtime->stream>>>(
        grad, dy, *lookup, *uses);
    return nn_cuda_launched("lookup backward");
}
