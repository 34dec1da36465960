/*
 * A mixture of experts, in place of an MLP. A router gives each token k experts with weights; the
 * token's row goes to the ranks of these experts, and the sum of their results comes back:
 *
 *   y = sum over choices of expert(x, w), and with a shared expert + mlp(x)
 *
 * Ranks of a group {etp, ep} share E experts (nn_experts.h). Which tp, cp and dp they have plays no
 * part. Rows are a rank's own: those of a tile that tp ranks all have are cut,
 *
 *   tp rank t has rows [t * c, (t + 1) * c),    c = ceil(rows / tp)
 *
 * and y, and dx in backward, are gathered over tp. Under sequence parallelism they are cut already.
 * Uncut, every gradient of an expert would be tp times too large. Masked rows go to no expert.
 *
 * Forward and backward are each made of parts. Between them parts of another micro-batch may run:
 *
 *                    forward                        backward
 *   before           choose experts                 of the choices; gather over tp; dx is whole
 *   route_start      where the rows go: ids alone   nothing
 *   dispatch_start   rows and weights to experts    (combine) gradients of these rows back
 *   shared           the shared expert              the same
 *   experts          this rank's experts            the same
 *   combine_start    sums back                      (dispatch) gradients of y to the experts
 *   behind           gather over tp; y is whole     nothing
 *
 * Forward runs down the table, backward up. A start leaves a move in flight; the part that reads
 * what it brings comes after mimo_op_wait. `shared` may run anywhere between `before` and `behind`.
 * What a move or another part reads or writes lies in the saved state, so moves of several
 * micro-batches can be in flight.
 *
 * A forward may be repeated before its backward (nn_stack.h). The route and the rows of this rank's
 * tokens are then kept (nn_moe_kept) and no route is set again. The rows of experts are kept as
 * well, or dispatch_start sends them once more. What combine_start and behind would make again
 * nobody reads.
 *
 * All ranks of a group make the calls of a layer in the same order. A rank without rows calls as
 * well.
 *
 * Parameters: NAME.router.weight (and NAME.router.bias), NAME.experts.G.*, NAME.shared.*.
 */
#ifndef MIMO_NN_NN_MOE_H
#define MIMO_NN_NN_MOE_H

#include "train/nn/exchange/nn_dispatch.h"
#include "train/nn/layers/nn_experts.h"
#include "train/nn/layers/nn_mlp.h"
#include "train/nn/layers/nn_router.h"

/** What a mixture has beside what an MLP has. */
typedef struct nn_mixture {
    nn_dispatch *dispatch;   /* E, k, and the ranks that share the experts; borrowed, and shared by
                                the mixtures of a model */
    int64_t inner;           /* width inside an expert */
    int64_t shared;          /* width inside the shared expert; 0: there is none */
    nn_router_scores scores; /* this and the next three: nn_router.h */
    double scale, balance, bias_rate;
    int64_t capacity;        /* most rows of this rank's experts in a call: more is an
                                error on all ranks, on a device in the fixed order that of
                                nn_dispatch_check. 0: any choice fits */
    mimo_comm *cp;           /* of the sequences, for the balance; NULL: one rank */
    const nn_replay *replay; /* borrowed; NULL: routers choose */
    bool traced;             /* for tests: what nn_moe_saved says */
} nn_mixture;

typedef struct nn_moe_desc {
    const char *name;
    const nn_mixture *mixture;
    int64_t hidden;
    int64_t max_rows, max_batch;       /* rows of all tp ranks together */
    double std, out_std;               /* of router and up; of down */
    bool sp;                           /* rows outside are cut over tp (nn_linear.h) */
    const nn_lora_selection *adapters; /* NULL: none */
} nn_moe_desc;

typedef struct nn_moe {
    const nn_runtime *runtime; /* the store's */
    nn_router router;
    nn_experts experts;
    nn_mlp shared; /* zeroed where there is none */
    nn_exchange tp;
    nn_dispatch *dispatch;      /* the mixture's */
    nn_exchange_counts *counts; /* of its moves */
    bool cut, traced;           /* cut: this layer cuts the rows */
    int64_t hidden, top_k;
    int64_t max_rows;          /* of the caller's tile */
    int64_t max_own, capacity; /* rows of this rank's tokens, and of its experts */
    nn_real *d_routed; /* workspace of backward_before [max_own, H]: of the router's input */
} nn_moe;

/** What the experts of a rank get. */
typedef struct nn_moe_rows {
    nn_real *x, *weights; /* [capacity, H], [capacity] */
    int64_t *numbers;     /* [capacity], of a traced mixture alone */
} nn_moe_rows;

/** What a micro-batch keeps of a forward that is repeated in another saved state. */
typedef struct nn_moe_kept {
    mimo_route *route;   /* the dispatch's */
    int32_t *ends;       /* the dispatch's: room in host memory for the ends of its rows */
    int64_t rows, batch; /* of the caller's tile */
    nn_row_range own;    /* of these, this rank's tokens */
    nn_moe_rows sent;    /* zeroed: they are sent again */
} nn_moe_kept;

typedef struct nn_moe_saved {
    nn_router_saved router;
    nn_experts_saved experts;
    nn_mlp_saved shared;
    nn_moe_kept kept;
    bool resumed;       /* `kept` is that of a forward which ran elsewhere */
    const nn_real *x;   /* borrowed until backward_params */
    nn_real *d_out;     /* [capacity, H]: the gradient of what experts give */
    nn_real *out;       /* [capacity, H]: what experts give; in backward dx of theirs */
    nn_real *d_weights; /* [capacity]: of the weights of the experts' rows */
    nn_real *d_choices; /* [max_own, k]: the gradients of the weights, of all parts */
    /* What a combine writes where tp gathers it or a shared expert adds to it, [tp * max_own, H];
     * otherwise NULL, and it writes to y or dx. */
    nn_real *combined;
    /* A traced mixture alone. The caller numbers the rows of its tile before dispatch; the numbers
     * go to the experts beside the rows. y stays here, as the caller may overwrite its own. */
    int64_t *numbers; /* [max_rows] */
    nn_real *y;       /* [max_rows, H] */
} nn_moe_saved;

/** Most rows of a rank's own, of max_rows of all tp ranks together: max_tokens of the dispatch. */
int64_t nn_moe_own_rows(int64_t max_rows, int64_t tp_size);

/** Local. Errors: those of the parts' inits; MIMO_ERR_ARGUMENT (no dispatch; one for fewer tokens
 *  or rows of another width; one whose rank or etp is not that of the store's place). */
mimo_status nn_moe_init(nn_moe *layer, nn_params *params, mimo_comm *tp, const nn_moe_desc *desc);
void nn_moe_release(nn_moe *layer);

/** Place a saved state (nn_saved.h). It takes a route of the dispatch, which lasts as long as that;
 *  all ranks of a group place states in the same order. Errors: those of nn_room_take and of
 *  mimo_route_create. */
mimo_status nn_moe_saved_take(nn_moe_saved *saved, const nn_moe *layer, nn_room *room);

/** The same in two: what a micro-batch keeps, with the rows of experts if `rows`; and a state in
 *  which forward runs, once or again, for a micro-batch that keeps this. */
mimo_status nn_moe_kept_place(nn_moe_kept *kept, const nn_moe *layer, nn_room *room, bool rows);
mimo_status nn_moe_again_place(nn_moe_saved *saved, const nn_moe *layer, nn_room *room, bool rows);

/** Take up what a micro-batch keeps, before any part of a forward or of a backward; and store it
 *  behind a forward. Local. */
void nn_moe_resume(nn_moe_saved *saved, const nn_moe_kept *kept);
void nn_moe_keep(nn_moe_kept *kept, const nn_moe_saved *saved);

/** What a forward reads, borrowed until backward_params. */
typedef struct nn_moe_input {
    const nn_real *x; /* [rows, H], of `batch` samples "sbh" */
    int64_t rows, batch;
    const uint8_t *masked; /* of the rows of all tp ranks together those that are no tokens, in the
                              runtime's memory; NULL: none is */
} nn_moe_input;

/** y [rows, H]: all parts, each move waited for. The parts are collective over tp, or over the
 *  ranks of the dispatch, as the table above says of their work. All parts get one y. It is the
 *  layer's from the first of them that gets it until `behind` is over. */
mimo_status nn_moe_forward(const nn_moe *layer, nn_moe_saved *saved, nn_real *y,
                           const nn_moe_input *input);
mimo_status nn_moe_before(const nn_moe *layer, nn_moe_saved *saved, const nn_moe_input *input);
mimo_status nn_moe_route_start(mimo_op **out, const nn_moe *layer, nn_moe_saved *saved);
mimo_status nn_moe_dispatch_start(mimo_op **out, const nn_moe *layer, nn_moe_saved *saved);
mimo_status nn_moe_shared(const nn_moe *layer, nn_moe_saved *saved, nn_real *y);
mimo_status nn_moe_experts(const nn_moe *layer, nn_moe_saved *saved);
mimo_status nn_moe_combine_start(mimo_op **out, const nn_moe *layer, nn_moe_saved *saved,
                                 nn_real *y);
mimo_status nn_moe_behind(const nn_moe *layer, nn_moe_saved *saved, nn_real *y);

/** dx [rows, H] from dy [rows, H], which is lent until backward_params. All parts get one dx and
 *  one dy. dx is the layer's from the first part that gets it until `before` is over. */
mimo_status nn_moe_backward_input(const nn_moe *layer, nn_moe_saved *saved, nn_real *dx,
                                  nn_real *dy);
mimo_status nn_moe_backward_combine_start(mimo_op **out, const nn_moe *layer, nn_moe_saved *saved,
                                          nn_real *dy);
mimo_status nn_moe_backward_experts(const nn_moe *layer, nn_moe_saved *saved);
mimo_status nn_moe_backward_shared(const nn_moe *layer, nn_moe_saved *saved, nn_real *dx,
                                   nn_real *dy);
mimo_status nn_moe_backward_dispatch_start(mimo_op **out, const nn_moe *layer, nn_moe_saved *saved,
                                           nn_real *dx);
mimo_status nn_moe_backward_before(const nn_moe *layer, nn_moe_saved *saved, nn_real *dx);

/** Local: all parameters, or those of one part. */
mimo_status nn_moe_backward_params(const nn_moe *layer, nn_moe_saved *saved);
mimo_status nn_moe_params_of_experts(const nn_moe *layer, nn_moe_saved *saved);
mimo_status nn_moe_params_of_shared(const nn_moe *layer, nn_moe_saved *saved);
mimo_status nn_moe_params_of_router(const nn_moe *layer, nn_moe_saved *saved);

/** Visit the adapters of this rank's experts and of the shared one. */
mimo_status nn_moe_visit(nn_moe *layer, nn_lora_visit *visit);

#endif
