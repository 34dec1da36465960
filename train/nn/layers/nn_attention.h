/*
 * Multi-head self-attention, y = out(softmax(q k^T / sqrt(dh) + mask) v). Heads are split over tp,
 * positions over cp. The result is exact.
 *
 * Parameters: NAME.qkv.weight [3H, H] and NAME.qkv.bias [3H] are column-parallel. Their rows are in
 * the order (head, query | key | value, dh). So a slice along the rows is a slice of heads for any
 * tp. NAME.out.weight [H, H] is row-parallel, and there is NAME.out.bias [H].
 *
 * Under cp, one all-gather brings the keys and values of all cp ranks. The mask comes from global
 * positions. One all-reduce sums the gradients of keys and values over cp. In the fixed order the
 * gathered keys are put in the order of their positions: each row's sums run over all keys in one
 * order. There one reduce-scatter sums the gradients.
 */
#ifndef MIMO_NN_NN_ATTENTION_H
#define MIMO_NN_NN_ATTENTION_H

#include "train/nn/layers/nn_linear.h"
#include "train/nn/layers/nn_sequence.h"

typedef struct nn_attention_desc {
    const char *name;
    int64_t hidden, heads;             /* tp divides heads, heads divides hidden */
    int64_t max_rows, max_batch;       /* upper limits for S_local and B of the sequence */
    int64_t max_parts;                 /* cp size; 0 counts as 1 */
    double std;                        /* of qkv */
    double out_std;                    /* of the output projection */
    bool sp;                           /* rows outside are cut over tp (nn_linear.h) */
    const nn_lora_selection *adapters; /* of qkv and out; NULL: none */
} nn_attention_desc;

typedef struct nn_attention {
    const nn_runtime *runtime; /* the store's */
    nn_linear qkv, out;
    int64_t heads, dh; /* heads of this rank; elements of one head */
    int64_t max_rows, max_batch, max_parts;
    nn_real *ranked; /* workspace, cp > 1 in the fixed order: keys as saved, but in rank order */
    nn_real *d_keys, *d_context, *d_scores; /* workspace of backward */
} nn_attention;

typedef struct nn_attention_saved {
    nn_linear_saved qkv, out;
    const nn_sequence *sequence; /* borrowed until backward_input is over */
    nn_real *projected;          /* [n, heads, 3, dh] */
    /* cp > 1: keys and values of all cp ranks [parts, n, heads, 2, dh], in rank order; in the fixed
     * order of additions by position. */
    nn_real *keys;
    nn_real *weights;     /* softmax [B, heads, rows, parts * rows] */
    nn_real *context;     /* [n, heads, dh] */
    nn_real *d_projected; /* qkv's dy */
} nn_attention_saved;

mimo_status nn_attention_init(nn_attention *layer, nn_params *params, mimo_comm *tp,
                              const nn_attention_desc *desc);
void nn_attention_release(nn_attention *layer);

/** Place a saved state (nn_saved.h). Errors: those of nn_room_take. */
mimo_status nn_attention_saved_take(nn_attention_saved *saved, const nn_attention *layer,
                                    nn_room *room);

/** y, x "sbh" [sequence rows, sequence batch, H]; under sp this rank's contiguous tp-th of these
 *  rows. Collective over tp and the sequence's cp. */
mimo_status nn_attention_forward(const nn_attention *layer, nn_attention_saved *saved, nn_real *y,
                                 const nn_real *x, const nn_sequence *sequence);
mimo_status nn_attention_backward_input(const nn_attention *layer, nn_attention_saved *saved,
                                        nn_real *dx, nn_real *dy);
mimo_status nn_attention_backward_params(const nn_attention *layer, nn_attention_saved *saved);

#endif
