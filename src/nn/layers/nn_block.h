/* A pre-norm transformer block: a = x + attention(norm(x)), y = a + mlp(norm(a)). The sequence
 * makes it an encoder's or an LLM's (causal or not, cp or not). Parameters: NAME.norm1.*,
 * NAME.attention.*, NAME.norm2.*, NAME.mlp.*. */
#ifndef MIMO_NN_NN_BLOCK_H
#define MIMO_NN_NN_BLOCK_H

#include "nn/layers/nn_attention.h"
#include "nn/layers/nn_mlp.h"
#include "nn/layers/nn_norm.h"

typedef struct nn_block_desc {
    const char *name;
    int64_t hidden, heads, inner;           /* inner: width inside the MLP, often 4 * hidden */
    int64_t max_rows, max_batch, max_parts; /* upper limits: S_local, B, cp (0 counts as 1) */
    double std;                             /* of qkv and up */
    double out_std; /* of the two projections back to the residual; often std / sqrt(2 * layers) */
    bool sp;        /* sequence parallelism: outside of the products, each tp rank has its rows */
    const nn_lora_choice *adapters; /* of the linear layers; NULL: none */
} nn_block_desc;

typedef struct nn_block {
    const nn_runtime *runtime; /* the store's */
    nn_norm norm1, norm2;
    nn_attention attention;
    nn_mlp mlp;
    int64_t hidden;
    int64_t rows;               /* n of the last forward; -1: none yet */
    nn_real *normed1, *normed2; /* [max_rows * max_batch, H] */
    nn_real *middle;            /* a */
    nn_real *room;              /* workspace of backward */
} nn_block;

mimo_status nn_block_init(nn_block *block, nn_params *params, mimo_comm *tp,
                          const nn_block_desc *desc);
void nn_block_release(nn_block *block);

/** y, x "sbh" [sequence rows, sequence batch, H]; under sp this rank's contiguous tp-th of these
 *  rows. Collective over tp and the sequence's cp. */
mimo_status nn_block_forward(nn_block *block, nn_real *y, const nn_real *x,
                             const nn_sequence *sequence);

/** dx may be dy. */
mimo_status nn_block_backward(nn_block *block, nn_real *dx, const nn_real *dy);

/** Visit the block's linear layers. */
mimo_status nn_block_visit(nn_block *block, nn_linear_visit *visit);

#endif
