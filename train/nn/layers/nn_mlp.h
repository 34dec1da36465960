/* y = down(gelu(up(x))). up [inner, H] is column-parallel, down [H, inner] is row-parallel. GELU is
 * the tanh form:
 *
 *   0.5 u (1 + tanh(sqrt(2 / pi) (u + 0.044715 u^3)))
 *
 * Parameters: NAME.up.*, NAME.down.*. */
#ifndef MIMO_NN_NN_MLP_H
#define MIMO_NN_NN_MLP_H

#include "train/nn/layers/nn_linear.h"

typedef struct nn_mlp_desc {
    const char *name;
    int64_t hidden, inner;             /* tp divides inner */
    int64_t max_rows;                  /* of all ranks under sp */
    double std;                        /* of up */
    double out_std;                    /* of down */
    bool sp;                           /* rows outside are cut over tp (nn_linear.h) */
    const nn_lora_selection *adapters; /* NULL: none */
} nn_mlp_desc;

typedef struct nn_mlp {
    const nn_runtime *runtime; /* the store's */
    nn_linear up, down;
    int64_t max_rows;
} nn_mlp;

typedef struct nn_mlp_saved {
    nn_linear_saved up, down;
    nn_real *u, *gate, *activated; /* [max_rows, inner / tp]; activated = u * gate */
    nn_real *du;                   /* the gradient of activated, then of u: up's dy */
} nn_mlp_saved;

mimo_status nn_mlp_init(nn_mlp *layer, nn_params *params, mimo_comm *tp, const nn_mlp_desc *desc);
void nn_mlp_release(nn_mlp *layer);

/** Place a saved state (nn_saved.h). Errors: those of nn_room_take. */
mimo_status nn_mlp_saved_take(nn_mlp_saved *saved, const nn_mlp *layer, nn_room *room);

mimo_status nn_mlp_forward(const nn_mlp *layer, nn_mlp_saved *saved, nn_real *y, const nn_real *x,
                           int64_t rows, int64_t batch);
mimo_status nn_mlp_backward_input(const nn_mlp *layer, nn_mlp_saved *saved, nn_real *dx,
                                  nn_real *dy);
mimo_status nn_mlp_backward_params(const nn_mlp *layer, nn_mlp_saved *saved);

/** Visit the adapters. */
mimo_status nn_mlp_visit(nn_mlp *layer, nn_lora_visit *visit);

#endif
