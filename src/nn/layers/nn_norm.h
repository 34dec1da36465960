/* Layer norm over the last dimension, with sums in f64:
 *
 *   y = (x - mean) / sqrt(var + 1e-5) * scale + shift
 *
 * Parameters: NAME.scale (ones) and NAME.shift (zeros), without weight decay. */
#ifndef MIMO_NN_NN_NORM_H
#define MIMO_NN_NN_NORM_H

#include "nn/params/nn_params.h"

typedef struct nn_norm {
    const nn_runtime *runtime; /* the store's */
    nn_params *params;
    int scale, shift; /* parameter indices */
    int64_t width, max_rows;
    const nn_real *x;
    int64_t rows;         /* of the last forward; -1: none yet */
    nn_real *mean, *rstd; /* [max_rows] */
} nn_norm;

/** `rule` is NN_REPLICATED, or NN_PARTIAL where each tp rank sees its own rows (sp). */
mimo_status nn_norm_init(nn_norm *layer, nn_params *params, const char *name, int64_t width,
                         int64_t max_rows, nn_rule rule);
void nn_norm_release(nn_norm *layer);

mimo_status nn_norm_forward(nn_norm *layer, nn_real *y, const nn_real *x, int64_t rows);

/** dx = residual + (gradient of x). residual NULL means zeros. dx may be residual or dy. */
mimo_status nn_norm_backward(nn_norm *layer, nn_real *dx, const nn_real *dy,
                             const nn_real *residual);

#endif
