/*
 * The experts of a rank, each an MLP over rows of its own:
 *
 *   y = down(w * gelu(up(x)))       with w the weight of the row's pair
 *
 * up [F, H] and down [H, F] are cut along F over the etp ranks that share the expert: y is a part,
 * and so are the gradients of x and w. A combine adds them (nn_moe.h). The bias of down, w * b, is
 * added by the first of these ranks alone. Its gradient, the sum of w * dy, is whole on each of
 * them.
 *
 * Parameters: NAME.experts.G.up.weight and so on, with the expert's number G among all. So a file
 * does not depend on the grid. A rank lists those of all experts and holds those of its own.
 *
 *                  up.weight, up.bias   down.weight   down.bias     up.lora_A   up.lora_B
 *                                                                   down.lora_B down.lora_A
 *   rule           sharded              sharded       replicated    partial     sharded
 *
 * Rows stand expert by expert, as <mimo/route.h> orders them. A row's result does not depend on the
 * other rows in the fixed order of additions. BLAS, in the fast order, makes no such promise.
 */
#ifndef MIMO_NN_NN_EXPERTS_H
#define MIMO_NN_NN_EXPERTS_H

#include "train/nn/layers/nn_expert_lists.h"
#include "train/nn/ops/nn_saved.h"
#include "train/nn/params/nn_params.h"

typedef struct nn_experts_desc {
    const char *name;
    int64_t hidden, inner, experts;    /* etp divides inner, ep divides experts */
    int64_t max_rows;                  /* most rows of this rank's experts together */
    double std;                        /* of up */
    double out_std;                    /* of down */
    const nn_lora_selection *adapters; /* NULL: none */
} nn_experts_desc;

/* The products of one of the two linear layers, of all experts. */
typedef struct nn_expert_products {
    nn_expert_layer layer;
    int64_t in, out; /* of this rank */
    int64_t rank;    /* the largest of all experts' adapters; 0: none has one */
    double scale;    /* of the adapters of this rank's experts; 0: none has one */
} nn_expert_products;

typedef struct nn_experts {
    const nn_runtime *runtime; /* the store's */
    nn_params *params;
    nn_expert *list;       /* [count] */
    int64_t first, count;  /* of this rank, among all */
    int64_t hidden, inner; /* inner: of this rank */
    int64_t max_rows;
    nn_expert_products up, down;
    nn_expert_lists lists; /* of `list` */
} nn_experts;

/** Rows up to max_rows. One place for all experts: expert e's rows lie behind those of e - 1, also
 *  where either has no adapter. */
typedef struct nn_experts_saved {
    nn_progress progress;
    nn_groups groups;                     /* the rows of each expert; the ends are borrowed */
    nn_rows filled;                       /* those of all */
    const nn_real *x, *weights;           /* borrowed: [rows, H], [rows] */
    nn_real *dy;                          /* lent */
    nn_real *u, *gate, *activated, *down; /* [rows, inner]; down: what down gets */
    nn_real *du;                          /* [rows, inner] */
    nn_lora_saved up, down_lora;          /* [rows, up.rank], [rows, down.rank] of the layer */
} nn_experts_saved;

/** Errors: those of every init; MIMO_ERR_ARGUMENT also where etp or ep leave a rest;
 *  MIMO_ERR_UNSUPPORTED (the fixed order with etp > 1). */
mimo_status nn_experts_init(nn_experts *layer, nn_params *params, const nn_experts_desc *desc);
void nn_experts_release(nn_experts *layer);

/** Place a saved state (nn_saved.h). Errors: those of nn_room_take. */
mimo_status nn_experts_saved_take(nn_experts_saved *saved, const nn_experts *layer, nn_room *room);

/** What a forward reads, borrowed until backward_params. */
typedef struct nn_expert_rows {
    const nn_real *x, *weights; /* [rows, H], [rows] */
    const int32_t *ends;        /* [count], ascending: where each expert's rows end. In the fixed
                                   order in the runtime's memory; in the fast one in host memory,
                                   because products take their sizes from there */
} nn_expert_rows;

/** y [rows, H]. Rows behind the last end stay as they are. Local. Errors: MIMO_ERR_SHAPE (more rows
 *  than the limit). On a device in the fixed order nobody reads the ends for that: rows beyond the
 *  limit are left out, and nn_dispatch_check is who says so. */
mimo_status nn_experts_forward(const nn_experts *layer, nn_experts_saved *saved, nn_real *y,
                               const nn_expert_rows *rows);
/** dx [rows, H] and d_weights [rows] from dy [rows, H]. Local. */
mimo_status nn_experts_backward_input(const nn_experts *layer, nn_experts_saved *saved, nn_real *dx,
                                      nn_real *d_weights, nn_real *dy);
mimo_status nn_experts_backward_params(const nn_experts *layer, nn_experts_saved *saved);

/** Visit the adapters of this rank's experts. */
mimo_status nn_experts_visit(nn_experts *layer, nn_lora_visit *visit);

#endif
