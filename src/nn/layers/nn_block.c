#include "nn/layers/nn_block.h"

#include <string.h>

#include "nn/params/nn_support.h"

/* Under sp a norm sees this rank's rows. */
static nn_rule norm_rule(const nn_block_desc *desc)
{
    return desc->sp ? NN_PARTIAL : NN_REPLICATED;
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
    nn_mlp_desc mlp = {name,      desc->hidden,  desc->inner, rows,
                       desc->std, desc->out_std, desc->sp,    desc->adapters};
    return nn_mlp_init(&block->mlp, params, tp, &mlp);
}

mimo_status nn_block_init(nn_block *block, nn_params *params, mimo_comm *tp,
                          const nn_block_desc *desc)
{
    nn_block made = {.hidden = desc->hidden, .runtime = nn_params_runtime(params)};
    MIMO_TRY(nn_check_size(desc->name, "max_rows", desc->max_rows));
    MIMO_TRY(nn_check_size(desc->name, "max_batch", desc->max_batch));
    made.max_rows = desc->max_rows * desc->max_batch;
    mimo_status status;
    MIMO_TRY_GOTO(status, fail, init_first_half(&made, params, tp, desc, made.max_rows));
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
    nn_runtime_free(block->runtime, block->d_normed);
    memset(block, 0, sizeof *block);
}

mimo_status nn_block_saved_place(nn_block_saved *saved, const nn_block *block, nn_room *room)
{
    int64_t elements = block->max_rows * block->hidden;
    MIMO_TRY(nn_norm_saved_place(&saved->norm1, &block->norm1, room));
    MIMO_TRY(nn_norm_saved_place(&saved->norm2, &block->norm2, room));
    MIMO_TRY(nn_attention_saved_place(&saved->attention, &block->attention, room));
    MIMO_TRY(nn_mlp_saved_place(&saved->mlp, &block->mlp, room));
    MIMO_TRY(nn_room_take(room, &saved->normed1, elements, sizeof(nn_real)));
    MIMO_TRY(nn_room_take(room, &saved->normed2, elements, sizeof(nn_real)));
    return nn_room_take(room, &saved->middle, elements, sizeof(nn_real));
}

mimo_status nn_block_forward(const nn_block *block, nn_block_saved *saved, nn_real *y,
                             const nn_real *x, const nn_sequence *sequence)
{
    MIMO_CHECK(sequence, MIMO_ERR_ARGUMENT, "block: NULL sequence");
    int64_t rows = sequence->rows * sequence->batch / nn_edge_factor(&block->attention.qkv.before);
    int64_t elements = rows * block->hidden;
    saved->mlp.down.stage = NN_STAGE_NONE;
    MIMO_TRY(nn_norm_forward(&block->norm1, &saved->norm1, saved->normed1, x, rows));
    MIMO_TRY(nn_attention_forward(&block->attention, &saved->attention, saved->middle,
                                  saved->normed1, sequence));
    MIMO_TRY(block->runtime->ops->add(block->runtime, saved->middle, x, elements));
    MIMO_TRY(nn_norm_forward(&block->norm2, &saved->norm2, saved->normed2, saved->middle, rows));
    MIMO_TRY(nn_mlp_forward(&block->mlp, &saved->mlp, y, saved->normed2, rows, sequence->batch));
    return block->runtime->ops->add(block->runtime, y, saved->middle, elements);
}

mimo_status nn_block_backward_input(const nn_block *block, nn_block_saved *saved, nn_real *dx,
                                    nn_real *dy)
{
    nn_real *d_normed = block->d_normed, *d_middle = saved->middle;
    MIMO_CHECK(saved->mlp.down.stage >= NN_STAGE_FORWARD, MIMO_ERR_STATE,
               "block: backward before forward");
    MIMO_TRY(nn_mlp_backward_input(&block->mlp, &saved->mlp, d_normed, dy));
    MIMO_TRY(nn_norm_backward_input(&block->norm2, &saved->norm2, d_middle, d_normed, dy));
    MIMO_TRY(nn_attention_backward_input(&block->attention, &saved->attention, d_normed, d_middle));
    return nn_norm_backward_input(&block->norm1, &saved->norm1, dx, d_normed, d_middle);
}

mimo_status nn_block_backward_params(const nn_block *block, nn_block_saved *saved)
{
    MIMO_TRY(nn_mlp_backward_params(&block->mlp, &saved->mlp));
    return nn_attention_backward_params(&block->attention, &saved->attention);
}

mimo_status nn_block_visit(nn_block *block, nn_linear_visit *visit)
{
    MIMO_TRY(visit(&block->attention.qkv));
    MIMO_TRY(visit(&block->attention.out));
    MIMO_TRY(visit(&block->mlp.up));
    return visit(&block->mlp.down);
}
