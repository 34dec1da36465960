/*
 * From the sums of backward to the gradient of the mean token loss, and its norm, over all modules
 * of a step (<mimo/gradient.h>). In the fixed order the sums are in fixed point, and the norm is
 * added block by block: a block is a parameter, or one of the V parts of a parameter that tp cuts.
 * Experts, which are not cut then, are each on one rank of a group.
 */
#ifndef MIMO_NN_NN_GRADIENTS_H
#define MIMO_NN_NN_GRADIENTS_H

#include <mimo/gradient.h>

#include "train/nn/params/nn_params.h"

enum { NN_MOST_STORES = 4 };

/** The stores of a step, all of one order, and what they need. Borrowed. */
typedef struct nn_gradients {
    mimo_gradient *gradient;
    mimo_comm *world;                   /* NULL: one rank */
    int n;                              /* stores: at most NN_MOST_STORES */
    nn_params *stores[NN_MOST_STORES];  /* in the order of forward */
    mimo_comm *tp[NN_MOST_STORES];      /* of each store; NULL: one rank */
    mimo_comm *pp[NN_MOST_STORES];      /* the same over its stages */
    mimo_comm *experts[NN_MOST_STORES]; /* the same over the ranks that share its experts */
} nn_gradients;

/** Make the groups that nn_gradients_finish sums over, before the first step. Collective over the
 *  world, blocking. Errors: those of mimo_gradient_prepare. */
mimo_status nn_gradients_prepare(const nn_gradients *step);

/** Finalize all gradients; *norm is over all stores. `tokens` is N of mimo_gradient_count, which
 *  comes before. Collective over the world, blocking. Errors, on all ranks: those of
 *  mimo_gradient_finalize and mimo_gradient_norm; in the fixed order MIMO_ERR_STATE (gradients that
 *  were finished already), and MIMO_ERR_OVERFLOW, before any gradient moves (a
 *  rank's sum in fixed point has a term that is no number, or reaches 2^22, or 2^23 / ranks where
 *  that is less; the sentence names the last such tensor of the last store). */
mimo_status nn_gradients_finish(double *norm, const nn_gradients *step, int64_t tokens);

#endif
