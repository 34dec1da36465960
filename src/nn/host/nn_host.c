/* The table of operations for host memory. */
#include "nn/host/nn_host.h"

const nn_ops nn_ops_host = {
    .open = nn_host_open,
    .close = nn_host_close,
    .matmul = nn_host_matmul,
    .add = nn_host_add,
    .add_bias = nn_host_add_bias,
    .add_columns = nn_host_add_columns,
    .gelu = nn_host_gelu,
    .gelu_backward = nn_host_gelu_backward,
    .norm = nn_host_norm,
    .norm_backward = nn_host_norm_backward,
    .softmax = nn_host_softmax,
    .softmax_backward = nn_host_softmax_backward,
    .lookup = nn_host_lookup,
    .lookup_add = nn_host_lookup_add,
    .lookup_backward = nn_host_lookup_backward,
    .token_maxima = nn_host_token_maxima,
    .token_sums = nn_host_token_sums,
    .token_losses = nn_host_token_losses,
    .token_gradients = nn_host_token_gradients,
    .row_largest = nn_host_row_largest,
    .row_choice = nn_host_row_choice,
    .adamw = nn_host_adamw,
    .to_bf16 = nn_host_to_bf16,
    .from_bf16 = nn_host_from_bf16,
};
