/*
 * Linear layers, y = x W^T + b; W [out, in], b [out], both global.
 *
 *   NN_SPLIT_NONE     W, b replicated              x, y replicated
 *   NN_SPLIT_COLUMNS  W, b cut along out           x replicated, y this rank's out/tp columns;
 *                                                  dx is all-reduced over tp
 *   NN_SPLIT_ROWS     W cut along in, b replicated x this rank's in/tp columns, y all-reduced
 *                                                  over tp, bias added once, after the sum
 *
 * With these, gradients of replicated parameters are whole on every tp rank. W is normal(std), b
 * zeros; weight decay on W only.
 */
#ifndef MIMO_NN_NN_LINEAR_H
#define MIMO_NN_NN_LINEAR_H

#include <mimo/comm.h>

#include "nn/nn_params.h"

typedef enum nn_split {
    NN_SPLIT_NONE = 0,
    NN_SPLIT_COLUMNS = 1,
    NN_SPLIT_ROWS = 2,
} nn_split;

typedef struct nn_linear_desc {
    const char *name; /* parameters are NAME.weight and NAME.bias */
    int64_t in, out;  /* global */
    nn_split split;
    bool bias;
    double std;
} nn_linear_desc;

typedef struct nn_linear {
    nn_params *params;
    mimo_comm *tp;
    int weight, bias; /* parameter indices; bias -1 where none */
    int64_t in, out;  /* this rank's widths of x and y */
    nn_split split;
    const nn_real *x;
    int64_t rows; /* of the last forward; -1 before */
} nn_linear;

mimo_status nn_linear_init(nn_linear *layer, nn_params *params, mimo_comm *tp,
                           const nn_linear_desc *desc);
void nn_linear_release(nn_linear *layer);

/** y [rows, layer->out] from x [rows, layer->in]; any number of rows. */
mimo_status nn_linear_forward(nn_linear *layer, nn_real *y, const nn_real *x, int64_t rows);

/** dx [rows, layer->in] from dy [rows, layer->out]. dx NULL: only the parameters' gradients (and no
 *  communication). */
mimo_status nn_linear_backward(nn_linear *layer, nn_real *dx, const nn_real *dy);

#endif
