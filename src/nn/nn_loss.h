/*
 * Vocabulary-parallel cross-entropy: tp rank t holds the logits of ids [t V/tp, (t+1) V/tp). Maxima
 * and sums go over tp in f64. Rows whose label is NN_IGNORE count nowhere and get gradient 0. Also
 * the greedy choice over the whole vocabulary.
 */
#ifndef MIMO_NN_NN_LOSS_H
#define MIMO_NN_NN_LOSS_H

#include <mimo/comm.h>

#include "nn/nn_ops.h"

typedef struct nn_loss {
    const nn_runtime *runtime;
    mimo_comm *tp;
    int64_t vocabulary;   /* V; tp divides it */
    int64_t first, local; /* this rank's ids */
    int64_t max_rows;
    double *maxima;  /* [max_rows] */
    double *sums;    /* [2, max_rows]: sum of exp(logit - max), logit of the label - max */
    double *losses;  /* [max_rows]: loss of every row of the last forward, 0 where ignored */
    double *choices; /* [2, max_rows]: room of argmax */
    double *total;   /* [1]: the losses since the last read */
    int64_t tokens;  /* and how many rows counted */
    int64_t *labels; /* [max_rows] */
    const nn_real *logits;
    int64_t rows; /* of the last forward; -1 before */
} nn_loss;

/** runtime NULL: on the host. */
mimo_status nn_loss_init(nn_loss *loss, const nn_runtime *runtime, mimo_comm *tp,
                         int64_t vocabulary, int64_t max_rows);
void nn_loss_release(nn_loss *loss);

/** logits [rows, V/tp], borrowed until backward; labels [rows] in host memory, global ids or
 *  NN_IGNORE, copied. Adds to the sums that nn_loss_read gives. rows may be 0. Errors:
 *  MIMO_ERR_ARGUMENT: a label outside [0, V), with its row. */
mimo_status nn_loss_forward(nn_loss *loss, const nn_real *logits, const int64_t *labels,
                            int64_t rows);

/** *sum: the losses of this rank's rows over all forwards since the last read, *tokens: how many
 *  rows counted; the same on every tp rank, as mimo_gradient_add wants them. Both begin again at 0.
 *  Waits for the work enqueued before it: once a step is enough. */
mimo_status nn_loss_read(nn_loss *loss, double *sum, int64_t *tokens);

/** losses [rows of the last forward] in host memory: each row's, 0 where ignored. Waits. */
mimo_status nn_loss_read_rows(const nn_loss *loss, double *losses);

/** d_logits [rows, V/tp]: gradient of the sum of the losses. May be the logits themselves. */
mimo_status nn_loss_backward(nn_loss *loss, nn_real *d_logits);

/** ids[i], in host memory: the id of the largest logit of row i over all tp ranks; the lowest one
 *  where several are equal. Independent of forward and backward. Waits. */
mimo_status nn_loss_argmax(nn_loss *loss, const nn_real *logits, int64_t rows, int64_t *ids);

#endif
