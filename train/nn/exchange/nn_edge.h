/*
 * Where tensors enter and leave a product of which every tp rank computes a part. One edge stands
 * on that side of a split linear layer where tensors are not split along their columns:
 *
 *              in comes                            out go
 *   NONE       the tensor                          the tensor
 *   WHOLE      the tensor, alike on every rank     its sum over tp
 *   ROWS       the rows of all ranks (gather)      this rank's rows of the sum (reduce-scatter)
 *
 * Before a column-parallel product x comes in and dx goes out; behind a row-parallel one dy comes
 * in and y goes out. So WHOLE is copy and all-reduce, in this order or the other, and ROWS, which
 * is sequence parallelism, gather and scatter.
 */
#ifndef MIMO_NN_NN_EDGE_H
#define MIMO_NN_NN_EDGE_H

#include "train/nn/exchange/nn_exchange.h"
#include "train/nn/ops/nn_saved.h"

typedef enum nn_edge_kind {
    NN_EDGE_NONE = 0,
    NN_EDGE_WHOLE = 1,
    NN_EDGE_ROWS = 2,
} nn_edge_kind;

typedef struct nn_edge {
    nn_edge_kind kind;
    nn_exchange tp;
    int64_t width;    /* columns of the tensors */
    int64_t max_rows; /* ROWS: the most rows of all ranks together; what tp divides */
    nn_real *leaving; /* ROWS: [max_rows, width], before the sum */
} nn_edge;

/** On one tp rank every kind is NONE. ROWS reserves memory of the runtime. Local. Errors:
 *  MIMO_ERR_ARGUMENT (max_rows < 1 for ROWS), MIMO_ERR_MEMORY. Release accepts a zeroed struct. */
mimo_status nn_edge_init(nn_edge *edge, const nn_edge *desc);
void nn_edge_release(nn_edge *edge);

/** How many rows inside there are for one outside: tp where rows are split, otherwise 1. */
int64_t nn_edge_factor(const nn_edge *edge);

/** Room of a saved state for what enters: ROWS: [max_rows, width], the rows of all ranks; otherwise
 *  NULL. Errors: those of nn_room_take. */
mimo_status nn_edge_take(const nn_edge *edge, nn_room *room, nn_real **entered);

/** *inside is what the product reads: `outside` [rows, width] itself, or the rows of all ranks,
 *  gathered into `entered`. Collective over tp where rows are split. */
mimo_status nn_edge_enter(const nn_edge *edge, nn_real *entered, const nn_real **inside,
                          const nn_real *outside, int64_t rows);

/** Where the product writes what is to leave to `outside`: there, or into memory of the edge. */
nn_real *nn_edge_target(const nn_edge *edge, nn_real *outside);

/** Sum what was written to the target into `outside` [rows, width]. Collective over tp unless the
 *  kind is NONE. */
mimo_status nn_edge_leave(const nn_edge *edge, nn_real *outside, int64_t rows);

#endif
