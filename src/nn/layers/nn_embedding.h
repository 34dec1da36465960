/*
 * An embedding table [entries, H]: NAME.weight, normal(std), replicated over tp, without weight
 * decay. The same struct serves tokens (one id for each row) and learned positions (one id for each
 * position, repeated over the batch). Ids lie in host memory, and the call copies them.
 */
#ifndef MIMO_NN_NN_EMBEDDING_H
#define MIMO_NN_NN_EMBEDDING_H

#include "nn/params/nn_params.h"

typedef struct nn_embedding_desc {
    const char *name;
    int64_t entries, width;
    double std;
    nn_rule rule; /* NN_REPLICATED, or NN_PARTIAL where each tp rank looks up its own rows (sp) */
} nn_embedding_desc;

typedef struct nn_embedding {
    const nn_runtime *runtime; /* the store's */
    nn_params *params;
    int weight;
    int64_t entries, width;
    int64_t n, repeat;       /* of the last forward or add; n is -1 before the first */
    int64_t used;            /* distinct entries among the n ids */
    int64_t capacity;        /* ids that host and numbers have memory for; a larger call grows it */
    int64_t *host, *numbers; /* ids and their uses, in host memory and in the runtime's */
    int64_t *slot;           /* [entries], workspace of nn_uses_fill */
} nn_embedding;

mimo_status nn_embedding_init(nn_embedding *layer, nn_params *params,
                              const nn_embedding_desc *desc);
void nn_embedding_release(nn_embedding *layer);

/** Reserve memory for n ids now. Then no call with at most n ids allocates. An allocation that
 *  fails on this rank alone would leave the others waiting in the next layer. Local. Errors:
 *  MIMO_ERR_MEMORY. */
mimo_status nn_embedding_reserve(nn_embedding *layer, int64_t n);

/** y[i] = table[ids[i]], i < n; y [n, H]. Errors: MIMO_ERR_ARGUMENT (an id outside [0, entries);
 *  the sentence names its index). */
mimo_status nn_embedding_forward(nn_embedding *layer, nn_real *y, const int64_t *ids, int64_t n);

/** x[i * repeat + j] += table[ids[i]], i < n, j < repeat; x [n * repeat, H], in place. For the
 *  positions of a tile "sbh", ids are the global positions of the S_local rows
 *  (mimo_partition_index), and repeat is B. The gradient of x is that of the result. Errors: those
 *  of nn_embedding_forward. */
mimo_status nn_embedding_add(nn_embedding *layer, nn_real *x, const int64_t *ids, int64_t n,
                             int64_t repeat);

/** Add dy to the gradients of the entries that the last call used. dy has the shape of that call's
 *  y or x. */
mimo_status nn_embedding_backward(nn_embedding *layer, const nn_real *dy);

#endif
