#include "train/nn/layers/nn_block.h"

#include <string.h>

#include "train/nn/params/nn_support.h"

/* Under sp a norm sees this rank's rows. */
static nn_rule norm_rule(const nn_block_desc *desc)
{
    return desc->sp ? NN_PARTIAL : NN_REPLICATED;
}

static bool has_attention(const nn_block *block)
{
    return block->half != NN_BLOCK_MLP;
}

static bool has_mlp(const nn_block *block)
{
    return block->half != NN_BLOCK_ATTENTION;
}

static mimo_status init_first_half(nn_block *block, nn_params *params, mimo_comm *tp,
                                   const nn_block_desc *desc, int64_t rows)
{
    char name[NN_NAME_CAPACITY];
    MIMO_TRY(nn_join(name, desc->name, "norm1"));
    MIMO_TRY(nn_norm_init(&block->norm1, params, name, desc->hidden, rows, norm_rule(desc)));
    MIMO_TRY(nn_join(name, desc->name, "attention"));
    nn_attention_desc attention = {.name = name,
                                   .hidden = desc->hidden,
                                   .heads = desc->heads,
                                   .max_rows = desc->max_rows,
                                   .max_batch = desc->max_batch,
                                   .max_parts = desc->max_parts,
                                   .std = desc->std,
                                   .out_std = desc->out_std,
                                   .sp = desc->sp,
                                   .adapters = desc->adapters};
    return nn_attention_init(&block->attention, params, tp, &attention);
}

static mimo_status init_second_half(nn_block *block, nn_params *params, mimo_comm *tp,
                                    const nn_block_desc *desc, int64_t rows)
{
    char name[NN_NAME_CAPACITY];
    MIMO_TRY(nn_join(name, desc->name, "norm2"));
    MIMO_TRY(nn_norm_init(&block->norm2, params, name, desc->hidden, rows, norm_rule(desc)));
    MIMO_TRY(nn_join(name, desc->name, "mlp"));
    nn_moe_desc moe = {.name = name,
                       .mixture = desc->mixture,
                       .hidden = desc->hidden,
                       .max_rows = rows,
                       .max_batch = desc->max_batch,
                       .std = desc->std,
                       .out_std = desc->out_std,
                       .sp = desc->sp,
                       .adapters = desc->adapters};
    if (desc->mixture)
        return nn_moe_init(&block->moe, params, tp, &moe);
    nn_mlp_desc mlp = {name,      desc->hidden,  desc->inner, rows,
                       desc->std, desc->out_std, desc->sp,    desc->adapters};
    return nn_mlp_init(&block->mlp, params, tp, &mlp);
}

mimo_status nn_block_init(nn_block *block, nn_params *params, mimo_comm *tp,
                          const nn_block_desc *desc)
{
    nn_block made = {.hidden = desc->hidden,
                     .half = desc->half,
                     .mixed = desc->mixture != NULL,
                     .share = desc->sp ? nn_comm_size(tp) : 1,
                     .runtime = nn_params_runtime(params)};
    MIMO_TRY(nn_check_size(desc->name, "max_rows", desc->max_rows));
    MIMO_TRY(nn_check_size(desc->name, "max_batch", desc->max_batch));
    made.max_rows = desc->max_rows * desc->max_batch;
    mimo_status status;
    if (has_attention(&made))
        MIMO_TRY_GOTO(status, fail, init_first_half(&made, params, tp, desc, made.max_rows));
    if (has_mlp(&made))
        MIMO_TRY_GOTO(status, fail, init_second_half(&made, params, tp, desc, made.max_rows));
    MIMO_TRY_GOTO(status, fail,
                  nn_runtime_reserve(made.runtime, &made.d_normed, made.max_rows * made.hidden,
                                     sizeof *made.d_normed));
    *block = made;
    return MIMO_OK;
fail:
    nn_block_release(&made);
    return status;
}

void nn_block_release(nn_block *block)
{
    nn_norm_release(&block->norm1);
    nn_norm_release(&block->norm2);
    nn_attention_release(&block->attention);
    nn_mlp_release(&block->mlp);
    nn_moe_release(&block->moe);
    nn_runtime_free(block->runtime, block->d_normed);
    memset(block, 0, sizeof *block);
}

static mimo_status place_first_half(nn_block_saved *saved, const nn_block *block, nn_room *room)
{
    int64_t elements = block->max_rows * block->hidden;
    MIMO_TRY(nn_norm_saved_take(&saved->norm1, &block->norm1, room));
    MIMO_TRY(nn_attention_saved_take(&saved->attention, &block->attention, room));
    return nn_room_take(room, &saved->normed1, elements, sizeof(nn_real));
}

static mimo_status place_second_half(nn_block_saved *saved, const nn_block *block, nn_room *room)
{
    int64_t elements = block->max_rows * block->hidden;
    MIMO_TRY(nn_norm_saved_take(&saved->norm2, &block->norm2, room));
    if (!block->mixed)
        MIMO_TRY(nn_mlp_saved_take(&saved->mlp, &block->mlp, room));
    else
        MIMO_TRY(nn_room_take(room, &saved->d_normed, elements, sizeof(nn_real)));
    return nn_room_take(room, &saved->normed2, elements, sizeof(nn_real));
}

/* All but the mixture. */
static mimo_status place_halves(nn_block_saved *saved, const nn_block *block, nn_room *room)
{
    if (has_attention(block))
        MIMO_TRY(place_first_half(saved, block, room));
    if (has_mlp(block))
        MIMO_TRY(place_second_half(saved, block, room));
    if (block->half != NN_BLOCK_BOTH)
        return MIMO_OK;
    return nn_room_take(room, &saved->middle, block->max_rows * block->hidden, sizeof(nn_real));
}

mimo_status nn_block_saved_take(nn_block_saved *saved, const nn_block *block, nn_room *room)
{
    MIMO_TRY(place_halves(saved, block, room));
    return block->mixed ? nn_moe_saved_take(&saved->moe, &block->moe, room) : MIMO_OK;
}

mimo_status nn_block_again_place(nn_block_saved *saved, const nn_block *block, nn_room *room,
                                 bool rows)
{
    MIMO_TRY(place_halves(saved, block, room));
    return block->mixed ? nn_moe_again_place(&saved->moe, &block->moe, room, rows) : MIMO_OK;
}

int64_t nn_block_rows(const nn_block *block, const nn_sequence *sequence)
{
    return sequence->rows * sequence->batch / block->share;
}

mimo_status nn_block_visit(nn_block *block, nn_lora_visit *visit)
{
    if (has_attention(block)) {
        MIMO_TRY(nn_linear_visit(&block->attention.qkv, visit));
        MIMO_TRY(nn_linear_visit(&block->attention.out, visit));
    }
    if (!has_mlp(block))
        return MIMO_OK;
    return block->mixed ? nn_moe_visit(&block->moe, visit) : nn_mlp_visit(&block->mlp, visit);
}
