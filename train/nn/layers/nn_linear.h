/*
 * Linear layers, y = x W^T + b; W [out, in], b [out], both global.
 *
 *                     NN_SPLIT_NONE   NN_SPLIT_COLUMNS             NN_SPLIT_ROWS
 *   W                 replicated      split along out              split along in
 *   b                 replicated      split along out              replicated
 *   x                 replicated      replicated                   this rank's in/tp columns
 *   y                 replicated      this rank's out/tp columns   replicated
 *   exchange (tp)     none            the sum of dx                the sum of y, before b is added
 *
 * Under sequence parallelism (sp) what is replicated here, activations and their gradients, is cut
 * along its rows instead. Then x of a column-parallel layer is gathered and dx is scattered, dy of
 * a row-parallel layer is gathered and y is scattered (nn_edge.h). Parameters that apply to this
 * rank's rows alone have partial gradients: b of NN_SPLIT_ROWS, W and b of NN_SPLIT_NONE.
 *
 * The fixed order of additions has no NN_SPLIT_NONE under sp on several tp ranks, unless rows are
 * `apart`: tp would decide which rows are summed together, and a sum of rounded parts depends on
 * that.
 *
 * Without sp each tp rank has the whole gradient of a replicated parameter. W starts as
 * normal(std), b as zeros. Weight decay applies to W only. An adapter (nn_lora.h) adds its part
 * before the exchange.
 */
#ifndef MIMO_NN_NN_LINEAR_H
#define MIMO_NN_NN_LINEAR_H

#include <mimo/comm.h>

#include "train/nn/exchange/nn_edge.h"
#include "train/nn/layers/nn_lora.h"
#include "train/nn/params/nn_params.h"

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
    int64_t max_rows;   /* most rows of a product, those of all ranks under sp; 0: no limit,
                                 where there is neither sp nor an adapter */
    bool sp;            /* sequence parallelism */
    bool apart;         /* in the fixed order each row has a chain of its own in gradients, not
                                 each sample: `batch` is not read */
    nn_packing packing; /* of the rows of W */
    const nn_lora_desc *lora; /* the adapter; NULL: none */
} nn_linear_desc;

typedef struct nn_linear {
    nn_params *params;
    nn_edge before, after; /* of x and dx; of y and dy */
    nn_lora lora;
    int weight, bias; /* parameter indices; bias is -1 where there is none */
    int64_t in, out;  /* this rank's widths of x and y */
    nn_split split;
    bool apart;
    int64_t max_rows;
} nn_linear;

typedef struct nn_linear_saved {
    nn_progress progress;
    const nn_real *x, *dy;           /* as the product sees them */
    nn_real *lent;                   /* dy as the caller lent it */
    bool stays;                      /* others read dy later: its contents stay */
    int64_t rows, batch;             /* of the product, and its samples */
    nn_real *entered_x, *entered_dy; /* under sp: the rows of all ranks, where x and dy point */
    nn_lora_saved lora;
} nn_linear_saved;

/** Errors: MIMO_ERR_ARGUMENT (a size or the split; what tp does not divide), MIMO_ERR_UNSUPPORTED
 *  (the fixed order, see above), MIMO_ERR_EXISTS (a name), MIMO_ERR_MEMORY. */
mimo_status nn_linear_init(nn_linear *layer, nn_params *params, mimo_comm *tp,
                           const nn_linear_desc *desc);
void nn_linear_release(nn_linear *layer);

/** Place a saved state (nn_saved.h). Errors: those of nn_room_take. */
mimo_status nn_linear_saved_take(nn_linear_saved *saved, const nn_linear *layer, nn_room *room);

/** y [rows of y, layer->out] from x [rows, layer->in], the rows of `batch` samples "sbh" (only the
 *  fixed order of additions needs to know; elsewhere any divisor does). y has as many rows as x;
 *  under sp tp times as many for NN_SPLIT_COLUMNS, and a tp-th for NN_SPLIT_ROWS. Errors:
 *  MIMO_ERR_SHAPE (more rows than the limit; rows that tp does not divide; rows that are no
 *  multiple of `batch`, or of the chunks of the fixed order). */
mimo_status nn_linear_forward(const nn_linear *layer, nn_linear_saved *saved, nn_real *y,
                              const nn_real *x, int64_t rows, int64_t batch);

/** dx [rows, layer->in] from dy [rows of y, layer->out]; dx NULL: nobody needs it, and there is no
 *  sum of it. x and dy are the layer's until backward_params. Errors: MIMO_ERR_STATE (no forward,
 *  or the adapter is merged, or was in the forward). */
mimo_status nn_linear_backward_input(const nn_linear *layer, nn_linear_saved *saved, nn_real *dx,
                                     nn_real *dy);
/** Local. Errors: MIMO_ERR_STATE (before the input's half). */
mimo_status nn_linear_backward_params(const nn_linear *layer, nn_linear_saved *saved);
/** Both halves, one after the other. */
mimo_status nn_linear_backward(const nn_linear *layer, nn_linear_saved *saved, nn_real *dx,
                               nn_real *dy);

/** Visit the adapter. */
mimo_status nn_linear_visit(nn_linear *layer, nn_lora_visit *visit);

#endif
