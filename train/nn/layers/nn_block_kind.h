/* A kind of block as a table, so that a stack need not know what its blocks are made of. `layer`
 * and `saved` are the kind's own structs: nn_block and nn_block_saved of nn_block_dense. */
#ifndef MIMO_NN_NN_BLOCK_KIND_H
#define MIMO_NN_NN_BLOCK_KIND_H

#include "train/nn/layers/nn_block.h"

/** These keep the contracts of the functions of nn_block.h with these names. */
typedef struct nn_block_kind {
    size_t layer_size, saved_size; /* of the structs; zeroed, release accepts the first one */
    mimo_status (*init)(void *layer, nn_params *params, mimo_comm *tp, const nn_block_desc *desc);
    void (*release)(void *layer);
    mimo_status (*saved_place)(void *saved, const void *layer, nn_room *room);
    mimo_status (*forward)(const void *layer, void *saved, nn_real *y, const nn_real *x,
                           const nn_sequence *sequence);
    mimo_status (*backward_input)(const void *layer, void *saved, nn_real *dx, nn_real *dy);
    mimo_status (*backward_params)(const void *layer, void *saved);
    mimo_status (*visit)(void *layer, nn_lora_visit *visit);
} nn_block_kind;

/** nn_block.h: attention and an MLP that all tokens go through, or a mixture of experts, that of
 *  the descriptor, which the others do not read; attention alone; an MLP alone. */
extern const nn_block_kind nn_block_dense, nn_block_mixed, nn_block_attention, nn_block_mlp;

#endif
