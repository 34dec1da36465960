/* AdamW: decoupled weight decay, bias correction, clipping by the global norm. The store keeps the
 * moments and the number of steps. */
#ifndef MIMO_NN_NN_OPTIMIZER_H
#define MIMO_NN_NN_OPTIMIZER_H

#include "train/nn/params/nn_params.h"

typedef struct nn_adamw {
    double lr;
    double beta1, beta2, epsilon;
    double decay; /* value -= lr * decay * value, for parameters with decay set */
    double clip;  /* gradients are scaled by min(1, clip / norm); 0: no clipping */
} nn_adamw;

#define NN_ADAMW_INIT                    \
    {                                    \
        1e-3, 0.9, 0.95, 1e-8, 0.01, 1.0 \
    }

/**
 * One step on one module's store, from its finalized gradients, which it does not change. `norm` is
 * mimo_gradient_norm over *both* modules, so that both are clipped by the same factor. Local. Ranks
 * that hold equal elements get equal results. With g the clipped gradient and t the number of
 * steps, this one included:
 *
 *   m = beta1 m + (1 - beta1) g
 *   v = beta2 v + (1 - beta2) g^2
 *   value -= lr * (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + decay * value)
 *
 * Errors, before anything changes: MIMO_ERR_STATE (store not sealed, adapters merged, gradients
 * that are still sums in fixed point), MIMO_ERR_ARGUMENT (norm negative or not finite).
 */
mimo_status nn_adamw_step(const nn_adamw *rule, nn_params *params, double norm);

#endif
