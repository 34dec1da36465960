/* Rows of logits: one block for each row. */
#include "train/nn/cuda/nn_cuda_fixed.cuh"

mimo_status nn_cuda_token_maxima(const nn_runtime *runtime, const nn_token_rows *tokens)
{
    nn_token_rows t = *tokens;
    return nn_each_row(runtime, "token maxima", t.rows, t.width, [=] __device__(int64_t i) {
        if (t.labels[i] == NN_IGNORE) { /* the same for all threads of the block */
            if (threadIdx.x == 0)
                t.maxima[i] = 0;
            return;
        }
        nn_real most = nn_largest_of_row(t.logits + i * t.width, t.width, (nn_real)-1e30);
        if (threadIdx.x == 0)
            t.maxima[i] = (double)most;
    });
}

/* The sum of exp(row[j] - most), each fixed. All threads of the block get it. */
static __device__ int64_t fixed_exps(const nn_real *row, int64_t width, nn_real most)
{
    int64_t sum = 0;
    for (int64_t j = threadIdx.x; j < width; j += blockDim.x)
        sum = nn_fixed_sum(sum, (double)exp(row[j] - most));
    return nn_reduce_block(sum, nn_fixed_plus());
}

mimo_status nn_cuda_token_sums(const nn_runtime *runtime, const nn_token_rows *tokens)
{
    nn_token_rows t = *tokens;
    return nn_each_row(runtime, "token sums", t.rows, t.width, [=] __device__(int64_t i) {
        const nn_real *row = t.logits + i * t.width;
        int64_t label = t.labels[i], here = label - t.first;
        double sum = 0, target = 0;
        int64_t fixed = 0;
        if (label != NN_IGNORE) {
            nn_real most = (nn_real)t.maxima[i];
            if (t.exps)
                fixed = fixed_exps(row, t.width, most);
            else
                sum = nn_sum_row<double>(t.width,
                                         [=](int64_t j) { return (double)exp(row[j] - most); });
            if (here >= 0 && here < t.width)
                target = (double)row[here] - t.maxima[i];
            if (fixed == NN_FIXED_BROKEN)
                target = (double)NAN;
        }
        if (threadIdx.x == 0) {
            if (t.exps)
                t.exps[i] = fixed;
            else
                t.sums[i] = sum;
            t.sums[t.rows + i] = target;
        }
    });
}

/* One block sums the losses, as if they were one row. */
mimo_status nn_cuda_token_losses(const nn_runtime *runtime, double *losses, double *total,
                                 const nn_token_rows *tokens)
{
    nn_token_rows t = *tokens;
    if (t.rows == 0)
        return MIMO_OK;
    return nn_each_row(runtime, "token losses", 1, t.rows, [=] __device__(int64_t) {
        double sum = nn_sum_row<double>(t.rows, [=](int64_t i) {
            bool counts = t.labels[i] != NN_IGNORE;
            double target = t.sums[t.rows + i];
            if (t.exps) /* the broken sums of two ranks add up to 0 */
                t.sums[i] = isnan(target) ? target : (double)t.exps[i] * (1 / NN_FIXED_ONE);
            double loss = counts ? log(t.sums[i]) - target : 0.0;
            losses[i] = t.exps ? rint(loss * NN_LOSS_ONE) * (1 / NN_LOSS_ONE) : loss;
            return losses[i];
        });
        if (threadIdx.x == 0)
            *total += sum;
    });
}

mimo_status nn_cuda_token_gradients(const nn_runtime *runtime, nn_real *d,
                                    const nn_token_rows *tokens)
{
    nn_token_rows t = *tokens;
    return nn_each_row(runtime, "token gradients", t.rows, t.width, [=] __device__(int64_t i) {
        const nn_real *row = t.logits + i * t.width;
        int64_t label = t.labels[i], here = label - t.first;
        nn_real most = (nn_real)t.maxima[i], scale = (nn_real)(1.0 / t.sums[i]);
        for (int64_t j = threadIdx.x; j < t.width; j += blockDim.x) {
            nn_real gradient = exp(row[j] - most) * scale - (nn_real)(j == here);
            d[i * t.width + j] = label == NN_IGNORE ? (nn_real)0 : gradient;
        }
    });
}

mimo_status nn_cuda_row_largest(const nn_runtime *runtime, double *value,
                                const nn_token_rows *tokens)
{
    nn_token_rows t = *tokens;
    return nn_each_row(runtime, "row largest", t.rows, t.width, [=] __device__(int64_t i) {
        const nn_real *row = t.logits + i * t.width;
        nn_real most = nn_largest_of_row(row, t.width, row[0]);
        if (threadIdx.x == 0)
            value[i] = (double)most;
    });
}

mimo_status nn_cuda_row_argmax(const nn_runtime *runtime, double *negated, const double *value,
                               const nn_token_rows *tokens, int64_t absent)
{
    nn_token_rows t = *tokens;
    return nn_each_row(runtime, "row argmax", t.rows, t.width, [=] __device__(int64_t i) {
        const nn_real *row = t.logits + i * t.width;
        int64_t best = absent;
        for (int64_t j = threadIdx.x; j < t.width; j += blockDim.x)
            if ((double)row[j] >= value[i])
                best = nn_smaller()(best, t.first + j);
        best = nn_reduce_block(best, nn_smaller());
        if (threadIdx.x == 0)
            negated[i] = -(double)best;
    });
}
