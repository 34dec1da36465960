/*
 * Embedding tables [entries, H], NAME.weight, normal(std), replicated over tp; no weight decay.
 * One struct serves tokens (ids of rows) and learned positions (ids of sequence positions, repeated
 * over the batch). Ids lie in host memory and are copied by the call.
 */
#ifndef MIMO_NN_NN_EMBEDDING_H
#define MIMO_NN_NN_EMBEDDING_H

#include "nn/nn_params.h"

typedef struct nn_embedding {
    const nn_runtime *runtime; /* the store's */
    nn_params *params;
    int weight;
    int64_t entries, width;
    int64_t n, repeat;       /* of the last forward or add; n -1 before */
    int64_t used;            /* distinct entries among them */
    int64_t capacity;        /* ids that the rooms hold; they grow with the first larger call */
    int64_t *host, *numbers; /* ids and their uses, here and in the runtime's memory */
    int64_t *slot;           /* [entries] room */
} nn_embedding;

mimo_status nn_embedding_init(nn_embedding *layer, nn_params *params, const char *name,
                              int64_t entries, int64_t width, double std);
void nn_embedding_release(nn_embedding *layer);

/** Room for n ids now, so that no call with as many takes memory: one that fails on this rank alone
 *  would leave the others waiting in the next layer. Local. MIMO_ERR_MEMORY. */
mimo_status nn_embedding_reserve(nn_embedding *layer, int64_t n);

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
