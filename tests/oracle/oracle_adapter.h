/*
 * A low-rank adapter beside the LLM's column-parallel head: logits += (x A^T) B^T. A [rank, H] is
 * replicated. B [V, rank] is cut along V over tp. Each tp rank sees the gradient of its own logits
 * only, so its gradient of A is a part. The rule that "replicated factors are SUMmed over their
 * shard group" is about this.
 */
#ifndef ORACLE_ORACLE_ADAPTER_H
#define ORACLE_ORACLE_ADAPTER_H

#include "nn/nn.h"

typedef struct oracle_adapter {
    nn_params *params;
    const nn_runtime *runtime; /* the store's */
    mimo_comm *tp;
    int a, b; /* indices of the two parameters */
    int64_t hidden, rank;
    int64_t local;              /* V / tp */
    nn_real *middle, *d_middle; /* [rows, rank] */
    nn_real *dx;                /* [rows, H] */
} oracle_adapter;

typedef struct oracle_adapter_desc {
    int64_t hidden, rank, vocabulary, max_rows;
    double std_a, std_b;
} oracle_adapter_desc;

mimo_status oracle_adapter_init(oracle_adapter *out, nn_params *params, mimo_comm *tp,
                                const oracle_adapter_desc *desc);
void oracle_adapter_release(oracle_adapter *adapter);

/* logits [rows, V/tp] += ...; x [rows, H]. */
mimo_status oracle_adapter_forward(oracle_adapter *adapter, nn_real *logits, const nn_real *x,
                                   int64_t rows);
/* dx [rows, H] += the gradient through the adapter. Every tp rank gets the whole of it. x is the
 * input of the forward. */
mimo_status oracle_adapter_backward(oracle_adapter *adapter, nn_real *dx, const nn_real *d_logits,
                                    const nn_real *x, int64_t rows);

#endif
