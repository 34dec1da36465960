/*
 * Linear layers, y = x W^T + b; W [out, in], b [out], both global.
 *
 *                     NN_SPLIT_NONE   NN_SPLIT_COLUMNS             NN_SPLIT_ROWS
 *   W                 replicated      split along out              split along in
 *   b                 replicated      split along out              replicated
 *   x                 replicated      replicated                   this rank's in/tp columns
 *   y                 replicated      this rank's out/tp columns   replicated
 *   all-reduce (tp)   none            of dx                        of y, before the bias is added
 *
 * With every split, each tp rank has the whole gradient of a replicated parameter. W starts as
 * normal(std), b as zeros. Weight decay applies to W only.
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
    int weight, bias; /* parameter indices; bias is -1 where there is none */
    int64_t in, out;  /* this rank's widths of x and y */
    nn_split split;
    const nn_real *x;
    int64_t rows; /* of the last forward; -1: none yet */
} nn_linear;

mimo_status nn_linear_init(nn_linear *layer, nn_params *params, mimo_comm *tp,
                           const nn_linear_desc *desc);
void nn_linear_release(nn_linear *layer);

/** y [rows, layer->out] from x [rows, layer->in]. `rows` has no limit except INT_MAX. */
mimo_status nn_linear_forward(nn_linear *layer, nn_real *y, const nn_real *x, int64_t rows);

/** dx [rows, layer->in] from dy [rows, layer->out]. With dx NULL it computes only the parameters'
 *  gradients, without communication. */
mimo_status nn_linear_backward(nn_linear *layer, nn_real *dx, const nn_real *dy);

#endif
