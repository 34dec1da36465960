#include "oracle_adapter.h"

#include <string.h>

#include "core/check.h"
#include "core/memory.h"

mimo_status oracle_adapter_init(oracle_adapter *out, nn_params *params, mimo_comm *tp,
                                const oracle_adapter_desc *desc)
{
    nn_param_desc a = {.name = "llm.adapter.a.weight",
                       .ndim = 2,
                       .shape = {desc->rank, desc->hidden},
                       .rule = NN_PARTIAL,
                       .decay = true,
                       .init = NN_INIT_NORMAL,
                       .std = desc->std_a};
    nn_param_desc b = {.name = "llm.adapter.b.weight",
                       .ndim = 2,
                       .shape = {desc->vocabulary, desc->rank},
                       .rule = NN_SHARDED,
                       .decay = true,
                       .init = NN_INIT_NORMAL,
                       .std = desc->std_b};
    out->params = params;
    out->tp = tp;
    out->hidden = desc->hidden;
    out->rank = desc->rank;
    out->local = desc->vocabulary / (tp ? mimo_comm_size(tp) : 1);
    MIMO_TRY(nn_params_add(params, &a, &out->a));
    MIMO_TRY(nn_params_add(params, &b, &out->b));
    MIMO_TRY(mimo_reserve(&out->middle, desc->max_rows * desc->rank, sizeof *out->middle));
    MIMO_TRY(mimo_reserve(&out->d_middle, desc->max_rows * desc->rank, sizeof *out->d_middle));
    return mimo_reserve(&out->dx, desc->max_rows * desc->hidden, sizeof *out->dx);
}

void oracle_adapter_release(oracle_adapter *adapter)
{
    mimo_release(adapter->middle);
    mimo_release(adapter->d_middle);
    mimo_release(adapter->dx);
    memset(adapter, 0, sizeof *adapter);
}

void oracle_adapter_forward(oracle_adapter *adapter, nn_real *logits, const nn_real *x,
                            int64_t rows)
{
    const nn_real *a = nn_params_at(adapter->params, adapter->a)->value;
    const nn_real *b = nn_params_at(adapter->params, adapter->b)->value;
    int64_t rank = adapter->rank, hidden = adapter->hidden, local = adapter->local;
    for (int64_t i = 0; i < rows; i++) {
        nn_real *middle = adapter->middle + i * rank;
        for (int64_t k = 0; k < rank; k++) {
            middle[k] = 0;
            for (int64_t e = 0; e < hidden; e++)
                middle[k] += x[i * hidden + e] * a[k * hidden + e];
        }
        for (int64_t v = 0; v < local; v++)
            for (int64_t k = 0; k < rank; k++)
                logits[i * local + v] += middle[k] * b[v * rank + k];
    }
}

mimo_status oracle_adapter_backward(oracle_adapter *adapter, nn_real *dx, const nn_real *d_logits,
                                    const nn_real *x, int64_t rows)
{
    const nn_param *a = nn_params_at(adapter->params, adapter->a);
    const nn_param *b = nn_params_at(adapter->params, adapter->b);
    int64_t rank = adapter->rank, hidden = adapter->hidden, local = adapter->local;
    memset(adapter->d_middle, 0, (size_t)(rows * rank) * sizeof *adapter->d_middle);
    memset(adapter->dx, 0, (size_t)(rows * hidden) * sizeof *adapter->dx);
    for (int64_t i = 0; i < rows; i++) {
        nn_real *d_middle = adapter->d_middle + i * rank;
        for (int64_t v = 0; v < local; v++)
            for (int64_t k = 0; k < rank; k++) {
                d_middle[k] += d_logits[i * local + v] * b->value[v * rank + k];
                b->grad[v * rank + k] += d_logits[i * local + v] * adapter->middle[i * rank + k];
            }
        for (int64_t k = 0; k < rank; k++)
            for (int64_t e = 0; e < hidden; e++) {
                a->grad[k * hidden + e] += d_middle[k] * x[i * hidden + e];
                adapter->dx[i * hidden + e] += d_middle[k] * a->value[k * hidden + e];
            }
    }
    if (adapter->tp)
        MIMO_TRY(
            mimo_comm_allreduce(adapter->tp, adapter->dx, rows * hidden, NN_DTYPE, MIMO_SUM, NULL));
    for (int64_t i = 0; i < rows * hidden; i++)
        dx[i] += adapter->dx[i];
    return MIMO_OK;
}
