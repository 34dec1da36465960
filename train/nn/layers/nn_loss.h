/*
 * Vocabulary-parallel cross-entropy: tp rank t holds the logits of ids [t V/tp, (t+1) V/tp). Maxima
 * and sums over tp are in f64. Rows whose label is NN_IGNORE do not count, and their gradient is 0.
 * nn_loss_argmax takes the best token over the whole vocabulary.
 */
#ifndef MIMO_NN_NN_LOSS_H
#define MIMO_NN_NN_LOSS_H

#include "train/nn/exchange/nn_exchange.h"
#include "train/nn/ops/nn_ops.h"
#include "train/nn/ops/nn_saved.h"

typedef struct nn_loss {
    const nn_runtime *runtime;
    mimo_comm *tp;
    nn_exchange_counts exchanged; /* over tp; the caller may set it to zero */
    int64_t vocabulary;           /* V; tp divides it */
    int64_t first, local;         /* this rank's ids: [first, first + local) */
    int64_t max_rows;
    double *best;   /* [2, max_rows]: workspace of nn_loss_argmax */
    double *total;  /* [1]: sum of the losses since the last read */
    int64_t tokens; /* rows that counted since the last read */
} nn_loss;

typedef struct nn_loss_saved {
    nn_progress progress;
    double *maxima; /* [max_rows] */
    double *sums;   /* [2, max_rows]: sum of exp(logit - max), logit of the label - max */
    int64_t *exps;  /* [max_rows]: the first of the sums in the fixed order; NULL in the fast one */
    double *losses; /* [max_rows]: loss of every row, 0 where ignored */
    int64_t *labels; /* [max_rows] */
    const nn_real *logits;
    int64_t rows;
} nn_loss_saved;

/** `runtime` NULL means the host. */
mimo_status nn_loss_init(nn_loss *loss, const nn_runtime *runtime, mimo_comm *tp,
                         int64_t vocabulary, int64_t max_rows);
void nn_loss_release(nn_loss *loss);

/** Place a saved state (nn_saved.h). Errors: those of nn_room_take. */
mimo_status nn_loss_saved_take(nn_loss_saved *saved, const nn_loss *loss, nn_room *room);

/** Adds to the sums that nn_loss_read returns. logits [rows, V/tp] are borrowed until backward.
 *  labels [rows] are global ids or NN_IGNORE, in host memory; the call copies them. rows may be 0.
 *  Errors: MIMO_ERR_ARGUMENT (a label outside [0, V); the sentence names its row). */
mimo_status nn_loss_forward(nn_loss *loss, nn_loss_saved *saved, const nn_real *logits,
                            const int64_t *labels, int64_t rows);

/** *sum is the sum of the losses of this rank's rows over all forwards since the last read. *tokens
 *  is how many of these rows counted. Both are the same on every tp rank, as mimo_gradient_add
 *  needs them. Both start again at 0. It waits for the work enqueued before it. One call for each
 *  training step is enough. */
mimo_status nn_loss_read(nn_loss *loss, double *sum, int64_t *tokens);

/** losses [rows of the forward], in host memory: the loss of each row, 0 where ignored. Waits for
 *  the work enqueued before it. */
mimo_status nn_loss_read_rows(const nn_loss *loss, const nn_loss_saved *saved, double *losses);

/** d_logits [rows, V/tp]: the gradient of the sum of the losses. d_logits may be the logits. There
 *  are no parameters, so there is no other half. */
mimo_status nn_loss_backward_input(const nn_loss *loss, nn_loss_saved *saved, nn_real *d_logits);

/** ids[i], in host memory: the id of the largest logit of row i over all tp ranks. Where several
 *  are equal, the lowest id wins. Independent of forward and backward. Waits for the work enqueued
 *  before it. */
mimo_status nn_loss_argmax(nn_loss *loss, const nn_real *logits, int64_t rows, int64_t *ids);

#endif
