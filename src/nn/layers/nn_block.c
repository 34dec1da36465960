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

static mimo_status reserve_rooms(nn_block *block, const nn_params *params, int64_t elements)
{
    block->runtime = nn_params_runtime(params);
    MIMO_TRY(nn_runtime_reserve(block->runtime, &block->normed1, elements, sizeof(nn_real)));
    MIMO_TRY(nn_runtime_reserve(block->runtime, &block->normed2, elements, sizeof(nn_real)));
    MIMO_TRY(nn_runtime_reserve(block->runtime, &block->middle, elements, sizeof(nn_real)));
    return nn_runtime_reserve(block->runtime, &block->room, elements, sizeof(nn_real));
}

mimo_status nn_block_init(nn_block *block, nn_params *params, mimo_comm *tp,
                          const nn_block_desc *desc)
{
    nn_block made = {.hidden = desc->hidden, .rows = -1};
    MIMO_TRY(nn_check_size(desc->name, "max_rows", desc->max_rows));
    MIMO_TRY(nn_check_size(desc->name, "max_batch", desc->max_batch));
    int64_t rows = desc->max_rows * desc->max_batch;
    mimo_status status;
    MIMO_TRY_GOTO(status, fail, init_first_half(&made, params, tp, desc, rows));
    MIMO_TRY_GOTO(status, fail, init_second_half(&made, params, tp, desc, rows));
    MIMO_TRY_GOTO(status, fail, reserve_rooms(&made, params, rows * desc->hidden));
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
    nn_runtime_free(block->runtime, block->normed1);
    nn_runtime_free(block->runtime, block->normed2);
    nn_runtime_free(block->runtime, block->middle);
    nn_runtime_free(block->runtime, block->room);
    memset(block, 0, sizeof *block);
}

mimo_status nn_block_forward(nn_block *block, nn_real *y, const nn_real *x,
                             const nn_sequence *sequence)
{
    MIMO_CHECK(sequence, MIMO_ERR_ARGUMENT, "block: NULL sequence");
    int64_t rows = sequence->rows * sequence->batch / nn_edge_factor(&block->attention.qkv.before);
    int64_t elements = rows * block->hidden;
    MIMO_TRY(nn_norm_forward(&block->norm1, block->normed1, x, rows));
    MIMO_TRY(nn_attention_forward(&block->attention, block->middle, block->normed1, sequence));
    MIMO_TRY(block->runtime->ops->add(block->runtime, block->middle, x, elements));
    MIMO_TRY(nn_norm_forward(&block->norm2, block->normed2, block->middle, rows));
    MIMO_TRY(nn_mlp_forward(&block->mlp, y, block->normed2, rows, sequence->batch));
    MIMO_TRY(block->runtime->ops->add(block->runtime, y, block->middle, elements));
    block->rows = rows;
    return MIMO_OK;
}

mimo_status nn_block_backward(nn_block *block, nn_real *dx, const nn_real *dy)
{
    MIMO_CHECK(block->normed1 && block->rows >= 0, MIMO_ERR_STATE,
               "block: backward before forward");
    MIMO_TRY(nn_mlp_backward(&block->mlp, block->room, dy));
    MIMO_TRY(nn_norm_backward(&block->norm2, dx, block->room, dy)); /* dx: gradient of a */
    MIMO_TRY(nn_attention_backward(&block->attention, block->room, dx));
    return nn_norm_backward(&block->norm1, dx, block->room, dx);
}

mimo_status nn_block_visit(nn_block *block, nn_linear_visit *visit)
{
    MIMO_TRY(visit(&block->attention.qkv));
    MIMO_TRY(visit(&block->attention.out));
    MIMO_TRY(visit(&block->mlp.up));
    return visit(&block->mlp.down);
}
