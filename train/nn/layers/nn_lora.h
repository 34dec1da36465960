/*
 * A low-rank adapter (LoRA) of a linear layer: W x becomes W x + s B A x, with A [r, in], B [out,
 * r] and s = alpha / r, or alpha / sqrt(r) (rsLoRA). It is a part of the layer. What it adds, it
 * adds before the layer's one exchange, so it costs no exchange of its own in any split:
 *
 *                     NN_SPLIT_NONE   NN_SPLIT_COLUMNS     NN_SPLIT_ROWS
 *   A                 replicated      partial              split along in
 *   B                 replicated      split along out      partial
 *
 * Partial: a column-parallel layer sees the gradient of its own outputs, so its gradient of A is a
 * part; a row-parallel one sees its own inputs, so A x, and with it the gradient of B, is a part.
 * Both are linear in the partial factor: their SUM over tp is the gradient. (Rules: "LoRA" of
 * docs/concepts.md.)
 *
 * Parameters: LINEAR.lora_A.weight, uniform in (-b, b] with b = 1 / sqrt(in) of the whole layer,
 * and LINEAR.lora_B.weight, zeros. Both decay.
 */
#ifndef MIMO_NN_NN_LORA_H
#define MIMO_NN_NN_LORA_H

#include "train/nn/ops/nn_ops.h"
#include "train/nn/ops/nn_saved.h"
#include "train/nn/params/nn_params.h"
#include "train/nn/params/nn_token_sums.h"

typedef struct nn_lora_desc {
    int64_t rank; /* r >= 1 */
    double alpha; /* > 0 */
    double b_std; /* 0: B starts as zeros; otherwise as normal(b_std): for tests */
    bool rslora;
} nn_lora_desc;

typedef struct nn_lora {
    nn_params *params;
    int a, b;        /* parameter indices */
    int64_t rank;    /* 0: there is no adapter, and every call does nothing */
    int64_t in, out; /* this rank's widths, as the layer's product sees them */
    double scale;    /* s */
    int64_t max_rows;
    int64_t z_parts, dz_parts; /* of a sum over tp that cuts their factor; otherwise 1 */
    nn_real *unmerged;         /* while merged: the weight without the adapter [out, in] */
} nn_lora;

typedef struct nn_lora_saved {
    nn_real *z, *dz;       /* [parts, rows, rank]: A x, and s times B^T dy; rows up to max_rows */
    int64_t rows;          /* of z */
    const nn_lora *merged; /* an adapter that was merged in the forward, which left no z of it */
} nn_lora_saved;

/** Which linear layers of a model get adapters: PEFT's rule. A layer is chosen where its name is a
 *  target, or ends with "." and a target. */
typedef struct nn_lora_selection {
    nn_lora_desc adapter;       /* of each of them */
    const char *const *targets; /* NULL: every linear layer */
    int n_targets;
} nn_lora_selection;

/** The adapter of the layer `name`; NULL: it gets none, or `selection` is NULL. Pure. */
const nn_lora_desc *nn_lora_for(const nn_lora_selection *selection, const char *name);

/** What the adapter must know of its layer. */
typedef struct nn_lora_target {
    const char *layer;  /* its name */
    int64_t in, out;    /* global */
    int cut;            /* the dimension of W that tp cuts: 0, 1; -1: none */
    bool split_rows;    /* NN_SPLIT_NONE under sequence parallelism: both factors are partial */
    bool expert;        /* of an expert: etp cuts it, not tp */
    bool elsewhere;     /* of an expert of other ranks: its factors are listed alone */
    int64_t max_rows;   /* of a product */
    nn_packing packing; /* of the rows of W, and so of B */
} nn_lora_target;

/** Local. Errors: those of every init (nn.h); MIMO_ERR_ARGUMENT (rank, alpha, b_std, a scale
 *  that f32 does not hold). */
mimo_status nn_lora_init(nn_lora *lora, nn_params *params, const nn_lora_target *target,
                         const nn_lora_desc *desc);
void nn_lora_release(nn_lora *lora);

/** Place a saved state (nn_saved.h). Errors: those of nn_room_take. */
mimo_status nn_lora_saved_take(nn_lora_saved *saved, const nn_lora *lora, nn_room *room);

/** z from x [rows, in]. First in a forward; while merged it does nothing. dz from dy [rows, out].
 *  First in a backward. In the fixed order there is a z, or dz, for each part of the sum over tp.
 *  Local. Errors of backward: MIMO_ERR_STATE (merged, or so in the forward). */
mimo_status nn_lora_forward(const nn_lora *lora, nn_lora_saved *saved, const nn_real *x,
                            int64_t rows);
mimo_status nn_lora_backward(const nn_lora *lora, nn_lora_saved *saved, const nn_real *dy);
/** The errors of MIMO_ERR_STATE that nn_lora_backward would have. Local. */
mimo_status nn_lora_check_backward(const nn_lora *lora, const nn_lora_saved *saved);

/** What the adapter adds to y [rows, out], s z B^T, and to dx [rows, in], dz A: factors with which
 *  the layer's product goes on. False: it adds nothing. Local. */
bool nn_lora_output(nn_factors *added, const nn_lora *lora, const nn_lora_saved *saved);
bool nn_lora_input(nn_factors *added, const nn_lora *lora, const nn_lora_saved *saved);

/** Add to the gradients of both factors. After nn_lora_backward. Local. */
mimo_status nn_lora_backward_params(const nn_lora *lora, const nn_lora_saved *saved,
                                    const nn_real *dy, const nn_real *x, nn_tokens tokens);

/** W += s B A in place, and back again with every bit as it was; `weight` is W's index in the
 *  store. While merged, forward uses W alone, and there is no backward and no optimizer step.
 *  After a merged forward backward needs another forward. Local, without exchange.
 *  Errors: MIMO_ERR_STATE (merged, or not merged, already), MIMO_ERR_MEMORY. */
mimo_status nn_lora_merge(nn_lora *lora, int weight);
mimo_status nn_lora_unmerge(nn_lora *lora, int weight);

/** What a walk over layers does with the adapter of each weight, such as these two. A layer without
 *  an adapter has one of rank 0. The first error ends the walk. */
typedef mimo_status nn_lora_visit(nn_lora *lora, int weight);

#endif
