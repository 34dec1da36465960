/*
 * An embedding table [entries, H]: NAME.weight, normal(std), replicated over tp, without weight
 * decay. The same struct serves tokens (one id for each row) and learned positions (one id for each
 * position, repeated over the batch). Ids lie in host memory, and the call copies them.
 */
#ifndef MIMO_NN_NN_EMBEDDING_H
#define MIMO_NN_NN_EMBEDDING_H

#include "train/nn/ops/nn_saved.h"
#include "train/nn/params/nn_params.h"

typedef struct nn_embedding_desc {
    const char *name;
    int64_t entries, width;
    double std;
    nn_rule rule; /* NN_REPLICATED, or NN_PARTIAL where each tp rank looks up its own rows (sp) */
    int64_t max_ids; /* of a call; may be 0 */
} nn_embedding_desc;

typedef struct nn_embedding {
    const nn_runtime *runtime; /* the store's */
    nn_params *params;
    int weight;
    int64_t entries, width, max_ids;
    int64_t *host, *place; /* workspace of nn_uses_fill: its numbers, and [entries] */
} nn_embedding;

typedef struct nn_embedding_saved {
    nn_progress progress;
    int64_t n, repeat;
    int64_t used;     /* distinct entries among the n ids */
    int64_t *numbers; /* ids and their uses (nn_lookup_uses.h) */
} nn_embedding_saved;

mimo_status nn_embedding_init(nn_embedding *layer, nn_params *params,
                              const nn_embedding_desc *desc);
void nn_embedding_release(nn_embedding *layer);

/** Place a saved state (nn_saved.h). Errors: those of nn_room_take. */
mimo_status nn_embedding_saved_take(nn_embedding_saved *saved, const nn_embedding *layer,
                                    nn_room *room);

/** y[i] = table[ids[i]], i < n; y [n, H]. Errors: MIMO_ERR_ARGUMENT (an id outside [0, entries);
 *  the sentence names its index). */
mimo_status nn_embedding_forward(const nn_embedding *layer, nn_embedding_saved *saved, nn_real *y,
                                 const int64_t *ids, int64_t n);

/** x[i * repeat + j] += table[ids[i]], i < n, j < repeat; x [n * repeat, H], in place. For the
 *  positions of a tile "sbh", ids are the global positions of the S_local rows
 *  (mimo_partition_index), and repeat is B. The gradient of x is that of the result. Errors: those
 *  of nn_embedding_forward. */
mimo_status nn_embedding_add(const nn_embedding *layer, nn_embedding_saved *saved, nn_real *x,
                             const int64_t *ids, int64_t n, int64_t repeat);

/** Add dy to the gradients of the entries that the forward used. dy has the shape of its y or x.
 *  Ids have no gradient, so there is no input's half: this call alone reads dy. */
mimo_status nn_embedding_backward_params(const nn_embedding *layer, nn_embedding_saved *saved,
                                         const nn_real *dy);

#endif
