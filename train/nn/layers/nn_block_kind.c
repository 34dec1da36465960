#include "train/nn/layers/nn_block_kind.h"

#include "core/check.h"

static mimo_status init_plain(void *layer, nn_params *params, mimo_comm *tp,
                              const nn_block_desc *desc, nn_block_half half)
{
    nn_block_desc plain = *desc;
    plain.mixture = NULL;
    plain.half = half;
    return nn_block_init(layer, params, tp, &plain);
}

static mimo_status init_dense(void *layer, nn_params *params, mimo_comm *tp,
                              const nn_block_desc *desc)
{
    return init_plain(layer, params, tp, desc, NN_BLOCK_BOTH);
}

static mimo_status init_attention(void *layer, nn_params *params, mimo_comm *tp,
                                  const nn_block_desc *desc)
{
    return init_plain(layer, params, tp, desc, NN_BLOCK_ATTENTION);
}

static mimo_status init_mlp(void *layer, nn_params *params, mimo_comm *tp,
                            const nn_block_desc *desc)
{
    return init_plain(layer, params, tp, desc, NN_BLOCK_MLP);
}

static mimo_status init_mixed(void *layer, nn_params *params, mimo_comm *tp,
                              const nn_block_desc *desc)
{
    MIMO_CHECK(desc->mixture, MIMO_ERR_ARGUMENT, "%s: no mixture of experts", desc->name);
    return nn_block_init(layer, params, tp, desc);
}

static void release(void *layer)
{
    nn_block_release(layer);
}

static mimo_status saved_place(void *saved, const void *layer, nn_room *room)
{
    return nn_block_saved_place(saved, layer, room);
}

static mimo_status forward(const void *layer, void *saved, nn_real *y, const nn_real *x,
                           const nn_sequence *sequence)
{
    return nn_block_forward(layer, saved, y, x, sequence);
}

static mimo_status backward_input(const void *layer, void *saved, nn_real *dx, nn_real *dy)
{
    return nn_block_backward_input(layer, saved, dx, dy);
}

static mimo_status backward_params(const void *layer, void *saved)
{
    return nn_block_backward_params(layer, saved);
}

static mimo_status visit(void *layer, nn_lora_visit *each)
{
    return nn_block_visit(layer, each);
}

#define KIND(begin)                                                                            \
    {                                                                                          \
        .layer_size = sizeof(nn_block), .saved_size = sizeof(nn_block_saved), .init = (begin), \
        .release = release, .saved_place = saved_place, .forward = forward,                    \
        .backward_input = backward_input, .backward_params = backward_params, .visit = visit   \
    }

const nn_block_kind nn_block_dense = KIND(init_dense);
const nn_block_kind nn_block_mixed = KIND(init_mixed);
const nn_block_kind nn_block_attention = KIND(init_attention);
const nn_block_kind nn_block_mlp = KIND(init_mlp);
