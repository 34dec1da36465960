/* Routers: which experts rows choose, and the gradients of that. */
#include "core/mutation.h"
#include "train/nn/host/nn_host.h"
#include "train/nn/host/nn_math.h"

#define NN_ROW_EXP nn_exp
#define NN_ROW_MUTATED(name) MIMO_MUTATED(name)
#include "train/nn/ops/nn_choice_rows.h"

mimo_status nn_host_choose(const nn_runtime *runtime, const nn_choices *choices)
{
    (void)runtime;
    for (int64_t i = 0; i < choices->rows; i++) {
        nn_row_choose(choices, i);
        nn_row_weigh(choices, i);
    }
    return MIMO_OK;
}

mimo_status nn_host_choose_backward(const nn_runtime *runtime, nn_real *d_logits,
                                    const nn_real *d_weights, const nn_choices *choices)
{
    (void)runtime;
    for (int64_t i = 0; i < choices->rows; i++)
        nn_row_choose_backward(choices, d_logits, d_weights, i);
    return MIMO_OK;
}

mimo_status nn_host_count_choices(const nn_runtime *runtime, int64_t *counts, const int32_t *ids,
                                  const nn_choice_shape *shape)
{
    (void)runtime;
    for (int64_t i = 0; i < shape->rows * shape->top_k; i++) {
        int64_t sequence = (shape->first + i / shape->top_k) % shape->batch;
        if (ids[i] >= 0)
            counts[sequence * shape->experts + ids[i]]++;
    }
    return MIMO_OK;
}

mimo_status nn_host_balance(const nn_runtime *runtime, const nn_balance *balance)
{
    (void)runtime;
    for (int64_t i = 0; i < balance->shape.rows; i++)
        balance->losses[i] = nn_row_balance(balance, i);
    return MIMO_OK;
}

mimo_status nn_host_balance_backward(const nn_runtime *runtime, nn_real *d_logits,
                                     const nn_balance *balance)
{
    (void)runtime;
    for (int64_t i = 0; i < balance->shape.rows; i++)
        nn_row_balance_backward(balance, d_logits, i);
    return MIMO_OK;
}
