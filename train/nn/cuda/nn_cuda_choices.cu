/* Routers: which experts rows choose, and the gradients of that. One thread for each row. */
#include "train/nn/cuda/nn_cuda_launch.cuh"

#define NN_ROW_EXP exp
#define NN_ROW_MUTATED(name) false
#include "train/nn/ops/nn_choice_rows.h"

mimo_status nn_cuda_choose(const nn_runtime *runtime, const nn_choices *choices)
{
    nn_choices c = *choices;
    return nn_each_element(runtime, "choose", c.rows, [=] __device__(int64_t i) {
        nn_row_choose(&c, i);
        nn_row_weigh(&c, i);
    });
}

mimo_status nn_cuda_choose_backward(const nn_runtime *runtime, nn_real *d_logits,
                                    const nn_real *d_weights, const nn_choices *choices)
{
    nn_choices c = *choices;
    return nn_each_element(runtime, "choose backward", c.rows, [=] __device__(int64_t i) {
        nn_row_choose_backward(&c, d_logits, d_weights, i);
    });
}

/* Integers add in any order. */
mimo_status nn_cuda_count_choices(const nn_runtime *runtime, int64_t *counts, const int32_t *ids,
                                  const nn_choice_shape *shape)
{
    nn_choice_shape s = *shape;
    return nn_each_element(runtime, "count choices", s.rows * s.top_k, [=] __device__(int64_t i) {
        int64_t sequence = (s.first + i / s.top_k) % s.batch;
        if (ids[i] >= 0)
            atomicAdd((unsigned long long *)counts + sequence * s.experts + ids[i], 1ull);
    });
}

mimo_status nn_cuda_balance(const nn_runtime *runtime, const nn_balance *balance)
{
    nn_balance b = *balance;
    return nn_each_element(runtime, "balance", b.shape.rows,
                           [=] __device__(int64_t i) { b.losses[i] = nn_row_balance(&b, i); });
}

mimo_status nn_cuda_balance_backward(const nn_runtime *runtime, nn_real *d_logits,
                                     const nn_balance *balance)
{
    nn_balance b = *balance;
    return nn_each_element(runtime, "balance backward", b.shape.rows,
                           [=] __device__(int64_t i) { nn_row_balance_backward(&b, d_logits, i); });
}
