/*
 * A router: each row chooses top_k of E experts, and gives each choice a weight.
 *
 *   logits = x W^T;   NAME.weight [E, H]
 *
 * How logits become scores and weights: nn_router_scores of nn_ops.h. A NaN among the logits of a
 * row makes its weights NaN, which the loss shows.
 *
 * The rows are a rank's own: tp ranks cut them, so W has a partial gradient (NN_PARTIAL). Masked
 * rows, those of padding, get no expert: no loss, load or gradient has them.
 *
 * Balance, with `balance` c > 0. The loss is a sum over rows, like that of the tokens:
 *
 *   c * E * sum over e of f_e p_e,    f_e = choices of e in the row's sequence / all choices there
 *
 * and p_e is the row's score of e as a part of all its scores. The counts of a sequence are those
 * of all tp and cp ranks. So the loss is the same for every topology and number of micro-batches.
 * For Megatron's mean over M tokens pass c * N / M, with N the tokens of the step.
 *
 * Bias, with `bias_rate` > 0 (NN_SCORES_SIGMOID alone): NAME.bias [E] is added to the scores by
 * which experts are chosen, and not to the weights. It has no gradient. Once a step
 * nn_router_adjust moves it towards equal counts.
 */
#ifndef MIMO_NN_NN_ROUTER_H
#define MIMO_NN_NN_ROUTER_H

#include "train/nn/layers/nn_linear.h"
#include "train/nn/ops/nn_ops.h"

/** Rows first, ..., first + count - 1 of a tile "sbh" of `batch` samples: row s * batch + b is
 *  token s of sample b. A masked row is no token: it gets no expert, and counts nowhere. */
typedef struct nn_row_range {
    int64_t first, count, batch;
    const uint8_t *masked; /* [count] in the runtime's memory, until backward; NULL: none is */
} nn_row_range;

/** Gives the ids of rows, ids[count, top_k] (-1: none), in place of those that a router would
 *  choose: those of an earlier run, or of another model. `layer` is the router's name. The router
 *  still gives weights from its own scores, with gradients. `ids` NULL: once more the ids of the
 *  last forward of the saved state, which had as many rows. Then a forward uploads nothing, and a
 *  graph can capture it. */
typedef struct nn_replay {
    mimo_status (*ids)(void *context, int32_t *ids, const char *layer, const nn_row_range *rows);
    void *context;
} nn_replay;

typedef struct nn_router_desc {
    const char *name;
    int64_t hidden, experts, top_k;
    nn_router_scores scores;
    double scale;     /* of the weights; 0 counts as 1 */
    double balance;   /* c */
    double bias_rate; /* of the bias in a step */
    double std;       /* of W */
    int64_t max_rows, max_batch;
    mimo_comm *cp;           /* of the sequences; NULL: one rank */
    const nn_replay *replay; /* borrowed; NULL: the router chooses */
} nn_router_desc;

typedef struct nn_router {
    const nn_runtime *runtime; /* the store's */
    nn_params *params;
    nn_linear linear;
    char *name;
    int bias; /* its index; -1: there is none */
    int64_t experts, top_k, max_batch, max_rows;
    nn_router_scores scores;
    double scale, balance, bias_rate;
    nn_exchange tp, cp;
    const nn_replay *replay;
    int32_t *replayed; /* host memory [max_rows, top_k] */
    int64_t *counts;   /* [E]: choices in backward since the last nn_router_adjust */
    int64_t *loads;    /* host memory [E], [E]: workspace of that */
    nn_real *moved;
} nn_router;

typedef struct nn_router_saved {
    nn_linear_saved linear;
    nn_row_range rows;
    nn_real *logits, *d_logits; /* [rows, E] */
    int32_t *chosen, *ids;      /* [rows, top_k]: by the scores; those in use */
    nn_real *weights;           /* [rows, top_k], of ids */
    int64_t *counts;            /* [batch, E], of whole sequences; NULL: no balance */
    double *losses;             /* [rows] */
} nn_router_saved;

/** Errors: those of every init; MIMO_ERR_ARGUMENT (top_k > E, a scale, rate or c below 0 or not
 *  finite, a rate without NN_SCORES_SIGMOID). */
mimo_status nn_router_init(nn_router *layer, nn_params *params, mimo_comm *tp,
                           const nn_router_desc *desc);
void nn_router_release(nn_router *layer);

/** Place a saved state (nn_saved.h). Errors: those of nn_room_take. */
mimo_status nn_router_saved_take(nn_router_saved *saved, const nn_router *layer, nn_room *room);

/** Choose for x [rows.count, H], into saved->ids and saved->weights. With balance collective over
 *  tp and cp, otherwise local. Errors: those of the replay; MIMO_ERR_ARGUMENT (it gave an id that
 *  is no expert). */
mimo_status nn_router_forward(const nn_router *layer, nn_router_saved *saved, const nn_real *x,
                              const nn_row_range *rows);

/** dx [rows.count, H] from d_weights [rows.count, top_k], with the balance's gradient. Local. */
mimo_status nn_router_backward_input(const nn_router *layer, nn_router_saved *saved, nn_real *dx,
                                     const nn_real *d_weights);
mimo_status nn_router_backward_params(const nn_router *layer, nn_router_saved *saved);

/** The sum of the balance losses of this rank's rows; 0 without balance. After forward. Waits. */
mimo_status nn_router_balance_loss(double *loss, const nn_router *layer,
                                   const nn_router_saved *saved);

/** Begin the next step: sum the counts of the micro-batches that went backward over `ranks`, the
 *  module's along tp, cp and dp (NULL: one rank), move the bias,
 *
 *    bias_e += rate * sign(mean - count_e)
 *
 *  where W is trained (beside adapters it is frozen), and write the counts to loads[E] in host
 *  memory, if that is not NULL. Collective, waits. */
mimo_status nn_router_adjust(nn_router *layer, mimo_comm *ranks, int64_t *loads);

#endif
