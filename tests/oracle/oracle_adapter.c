#include "oracle_adapter.h"

#include <string.h>

#include "nn/nn_support.h"

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
    out->runtime = nn_params_runtime(params);
    MIMO_TRY(nn_runtime_reserve(out->runtime, &out->middle, desc->max_rows * desc->rank,
                                sizeof *out->middle));
    MIMO_TRY(nn_runtime_reserve(out->runtime, &out->d_middle, desc->max_rows * desc->rank,
                                sizeof *out->d_middle));
    return nn_runtime_reserve(out->runtime, &out->dx, desc->max_rows * desc->hidden,
                              sizeof *out->dx);
}

void oracle_adapter_release(oracle_adapter *adapter)
{
    nn_runtime_free(adapter->runtime, adapter->middle);
    nn_runtime_free(adapter->runtime, adapter->d_middle);
    nn_runtime_free(adapter->runtime, adapter->dx);
    memset(adapter, 0, sizeof *adapter);
}

static nn_matrix a_of(const oracle_adapter *adapter)
{
    return nn_matrix_of(nn_value(adapter->params, adapter->a), adapter->rank, adapter->hidden,
                        adapter->hidden);
}

static nn_matrix b_of(const oracle_adapter *adapter)
{
    return nn_matrix_of(nn_value(adapter->params, adapter->b), adapter->local, adapter->rank,
                        adapter->rank);
}

static nn_matrix contiguous(const nn_real *data, int64_t rows, int64_t columns)
{
    return nn_matrix_of(data, rows, columns, columns);
}

mimo_status oracle_adapter_forward(oracle_adapter *adapter, nn_real *logits, const nn_real *x,
                                   int64_t rows)
{
    const nn_runtime *runtime = adapter->runtime;
    MIMO_TRY(nn_multiply(runtime, adapter->middle, 0, contiguous(x, rows, adapter->hidden),
                         nn_transpose(a_of(adapter))));
    return nn_multiply(runtime, logits, 1, contiguous(adapter->middle, rows, adapter->rank),
                       nn_transpose(b_of(adapter)));
}

mimo_status oracle_adapter_backward(oracle_adapter *adapter, nn_real *dx, const nn_real *d_logits,
                                    const nn_real *x, int64_t rows)
{
    const nn_runtime *runtime = adapter->runtime;
    nn_matrix d = contiguous(d_logits, rows, adapter->local);
    nn_matrix middle = contiguous(adapter->middle, rows, adapter->rank);
    nn_matrix d_middle = contiguous(adapter->d_middle, rows, adapter->rank);
    MIMO_TRY(nn_multiply(runtime, adapter->d_middle, 0, d, b_of(adapter)));
    MIMO_TRY(
        nn_multiply(runtime, nn_grad(adapter->params, adapter->b), 1, nn_transpose(d), middle));
    MIMO_TRY(nn_multiply(runtime, nn_grad(adapter->params, adapter->a), 1, nn_transpose(d_middle),
                         contiguous(x, rows, adapter->hidden)));
    MIMO_TRY(nn_multiply(runtime, adapter->dx, 0, d_middle, a_of(adapter)));
    MIMO_TRY(nn_allreduce(runtime, adapter->tp, adapter->dx, rows * adapter->hidden));
    return runtime->ops->add(runtime, dx, adapter->dx, rows * adapter->hidden);
}
