/* Private: the operations of nn_ops on the host, one function per slot; contracts are there. */
#ifndef MIMO_NN_NN_HOST_H
#define MIMO_NN_NN_HOST_H

#include "nn/nn_ops.h"

mimo_status nn_host_open(nn_runtime *runtime);
void nn_host_close(nn_runtime *runtime);
mimo_status nn_host_matmul(const nn_runtime *runtime, const nn_product *product);

mimo_status nn_host_add(const nn_runtime *runtime, nn_real *to, const nn_real *from, int64_t n);
mimo_status nn_host_add_bias(const nn_runtime *runtime, nn_real *y, const nn_real *bias,
                             int64_t rows, int64_t width);
mimo_status nn_host_add_columns(const nn_runtime *runtime, nn_real *sums, const nn_real *x,
                                int64_t rows, int64_t width);
mimo_status nn_host_gelu(const nn_runtime *runtime, nn_real *y, nn_real *gate, const nn_real *u,
                         int64_t n);
mimo_status nn_host_gelu_backward(const nn_runtime *runtime, nn_real *d, const nn_real *u,
                                  const nn_real *gate, int64_t n);
mimo_status nn_host_adamw(const nn_runtime *runtime, const nn_moments *moments,
                          const nn_adamw_factors *factors);
mimo_status nn_host_to_bf16(const nn_runtime *runtime, uint16_t *to, const nn_real *from,
                            int64_t n);
mimo_status nn_host_from_bf16(const nn_runtime *runtime, nn_real *to, const uint16_t *from,
                              int64_t n);

mimo_status nn_host_norm(const nn_runtime *runtime, nn_real *y, const nn_norm_rows *rows);
mimo_status nn_host_norm_backward(const nn_runtime *runtime, const nn_norm_rows *rows,
                                  const nn_norm_gradients *gradients);

mimo_status nn_host_softmax(const nn_runtime *runtime, const nn_scores *scores);
mimo_status nn_host_softmax_backward(const nn_runtime *runtime, nn_real *d, const nn_real *w,
                                     int64_t rows, int64_t width);

mimo_status nn_host_lookup(const nn_runtime *runtime, nn_real *y, const nn_lookup *lookup);
mimo_status nn_host_lookup_add(const nn_runtime *runtime, nn_real *y, const nn_lookup *lookup);
mimo_status nn_host_lookup_backward(const nn_runtime *runtime, nn_real *grad, const nn_real *dy,
                                    const nn_lookup *lookup, const nn_uses *uses);

mimo_status nn_host_token_maxima(const nn_runtime *runtime, const nn_token_rows *tokens);
mimo_status nn_host_token_sums(const nn_runtime *runtime, const nn_token_rows *tokens);
mimo_status nn_host_token_losses(const nn_runtime *runtime, double *losses, double *total,
                                 const nn_token_rows *tokens);
mimo_status nn_host_token_gradients(const nn_runtime *runtime, nn_real *d,
                                    const nn_token_rows *tokens);
mimo_status nn_host_row_largest(const nn_runtime *runtime, double *value,
                                const nn_token_rows *tokens);
mimo_status nn_host_row_choice(const nn_runtime *runtime, double *negated, const double *value,
                               const nn_token_rows *tokens, int64_t absent);

#endif
