/* A pre-norm transformer block: a = x + attention(norm(x)), y = a + mlp(norm(a)). In place of the
 * MLP may be a mixture of experts. A block may also be one of its halves alone: models of other
 * patterns have both in any order, and two halves one behind the other give the bits of a whole
 * block. The sequence makes it an encoder's or an LLM's (causal or not, cp or not). Parameters:
 * NAME.norm1.*, NAME.attention.*, NAME.norm2.*, NAME.mlp.*, of a half its own.
 *
 * Here is what a block has. What it does, part by part, is a row of nn_block_kind.h. */
#ifndef MIMO_NN_NN_BLOCK_H
#define MIMO_NN_NN_BLOCK_H

#include "train/nn/layers/nn_attention.h"
#include "train/nn/layers/nn_mlp.h"
#include "train/nn/layers/nn_moe.h"
#include "train/nn/layers/nn_norm.h"

typedef enum nn_block_half { NN_BLOCK_BOTH, NN_BLOCK_ATTENTION, NN_BLOCK_MLP } nn_block_half;

typedef struct nn_block_desc {
    const char *name;
    int64_t hidden, heads, inner;           /* inner: width inside the MLP, often 4 * hidden */
    int64_t max_rows, max_batch, max_parts; /* upper limits: S_local, B, cp (0 counts as 1) */
    double std;                             /* of qkv and up */
    double out_std; /* of the two projections back to the residual; often std / sqrt(2 * layers) */
    bool sp;        /* sequence parallelism: outside of the products, each tp rank has its rows */
    const nn_lora_selection *adapters; /* of the linear layers; NULL: none */
    const nn_mixture *mixture; /* in place of the MLP; NULL: none. Its cp is the sequence's */
    nn_block_half half;        /* that the block has */
} nn_block_desc;

typedef struct nn_block {
    const nn_runtime *runtime; /* the store's */
    nn_norm norm1, norm2;
    nn_attention attention;
    nn_mlp mlp;
    nn_moe moe;
    bool mixed;               /* moe is there, and not mlp */
    nn_block_half half;       /* the other one is zeroed */
    int64_t hidden, max_rows; /* max_rows: of all samples */
    int64_t share;            /* under sp a rank has a share-th of the rows; otherwise 1 */
    nn_real *d_normed;        /* [max_rows, H], workspace of a half's backward */
} nn_block;

typedef struct nn_block_saved {
    nn_norm_saved norm1, norm2;
    nn_attention_saved attention;
    nn_mlp_saved mlp;
    nn_moe_saved moe;
    nn_real *normed1, *normed2; /* [max_rows, H] */
    nn_real *d_normed; /* [max_rows, H]: of a mixture, whose parts write it one after the other */
    nn_real *middle;   /* a, of a whole block; in backward its gradient, which is attention's dy */
} nn_block_saved;

mimo_status nn_block_init(nn_block *block, nn_params *params, mimo_comm *tp,
                          const nn_block_desc *desc);
void nn_block_release(nn_block *block);

/** Place a saved state (nn_saved.h). Errors: those of nn_room_take. */
mimo_status nn_block_saved_take(nn_block_saved *saved, const nn_block *block, nn_room *room);

/** The same without what a micro-batch keeps of a mixture's forward (nn_moe_again_place). */
mimo_status nn_block_again_place(nn_block_saved *saved, const nn_block *block, nn_room *room,
                                 bool rows);

/** The rows of this rank's tiles. */
int64_t nn_block_rows(const nn_block *block, const nn_sequence *sequence);

/** Visit the adapters. */
mimo_status nn_block_visit(nn_block *block, nn_lora_visit *visit);

#endif
