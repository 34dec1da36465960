/*
 * Embedding tables [entries, H], NAME.weight, normal(std), replicated over tp; no weight decay.
 * One struct serves tokens (ids of rows) and learned positions (ids of sequence positions, repeated
 * over the batch).
 */
#ifndef MIMO_NN_NN_EMBEDDING_H
#define MIMO_NN_NN_EMBEDDING_H

#include "nn/nn_params.h"

typedef struct nn_embedding {
    nn_params *params;
    int weight;
    int64_t entries, width;
    const int64_t *ids; /* of the last forward or add; borrowed until backward */
    int64_t n, repeat;  /* n -1 before */
} nn_embedding;

mimo_status nn_embedding_init(nn_embedding *layer, nn_params *params, const char *name,
                              int64_t entries, int64_t width, double std);
void nn_embedding_release(nn_embedding *layer);

/** y[i] = table[ids[i]], i < n; y [n, H]. Errors: MIMO_ERR_ARGUMENT: an id outside [0, entries),
 *  with its place. */
mimo_status nn_embedding_forward(nn_embedding *layer, nn_real *y, const int64_t *ids, int64_t n);

/** x[i * repeat + j] += table[ids[i]], i < n, j < repeat; x [n * repeat, H] in place. Positions of
 *  a tile "sbh": ids = global positions of the S_local rows (mimo_partition_index), repeat = B. The
 *  gradient of x passes through unchanged. Errors as nn_embedding_forward. */
mimo_status nn_embedding_add(nn_embedding *layer, nn_real *x, const int64_t *ids, int64_t n,
                             int64_t repeat);

/** Add dy (shaped as y or x of the last call) to the gradients of the entries that it used. */
mimo_status nn_embedding_backward(nn_embedding *layer, const nn_real *dy);

#endif
