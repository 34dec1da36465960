/* Layer norm over the last dimension, with sums in f64:
 *
 *   y = (x - mean) / sqrt(var + 1e-5) * scale + shift
 *
 * Parameters: NAME.scale (ones) and NAME.shift (zeros), without weight decay. */
#ifndef MIMO_NN_NN_NORM_H
#define MIMO_NN_NN_NORM_H

#include "train/nn/ops/nn_saved.h"
#include "train/nn/params/nn_params.h"

typedef struct nn_norm {
    const nn_runtime *runtime; /* the store's */
    nn_params *params;
    int scale, shift; /* parameter indices */
    int64_t width, max_rows;
} nn_norm;

typedef struct nn_norm_saved {
    nn_progress progress;
    const nn_real *x;
    int64_t rows;
    nn_real *mean, *rstd; /* [max_rows] */
} nn_norm_saved;

/** `rule` is NN_REPLICATED, or NN_PARTIAL where each tp rank sees its own rows (sp). */
mimo_status nn_norm_init(nn_norm *layer, nn_params *params, const char *name, int64_t width,
                         int64_t max_rows, nn_rule rule);
void nn_norm_release(nn_norm *layer);

/** Place a saved state (nn_saved.h). Errors: those of nn_room_take. */
mimo_status nn_norm_saved_take(nn_norm_saved *saved, const nn_norm *layer, nn_room *room);

mimo_status nn_norm_forward(const nn_norm *layer, nn_norm_saved *saved, nn_real *y,
                            const nn_real *x, int64_t rows);

/** dx = residual + (gradient of x). residual NULL means zeros. dx may be residual, dy or x.
 *
 *  It adds the gradients of the parameters as well: they cost less than another reading of x and
 *  dy. So there is no parameters' half, x and dy are the caller's again, and the order of these
 *  calls is that in which the parameters' gradients add up. */
mimo_status nn_norm_backward_input(const nn_norm *layer, nn_norm_saved *saved, nn_real *dx,
                                   const nn_real *dy, const nn_real *residual);

#endif
