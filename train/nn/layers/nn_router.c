#include "train/nn/layers/nn_router.h"

#include <math.h>
#include <string.h>

#include "core/checked.h"
#include "core/mutation.h"
#include "train/nn/params/nn_support.h"

static mimo_status check_number(const char *name, const char *what, double number)
{
    MIMO_CHECK(isfinite(number) && number >= 0, MIMO_ERR_ARGUMENT,
               "%s: %s is %g, must be a number from 0 on", name, what, number);
    return MIMO_OK;
}

static mimo_status check_desc(const nn_params *params, const nn_router_desc *desc)
{
    MIMO_CHECK(params, MIMO_ERR_ARGUMENT, "%s: no parameter store", desc->name);
    MIMO_TRY(nn_check_size(desc->name, "top_k", desc->top_k));
    MIMO_TRY(nn_check_size(desc->name, "max_rows", desc->max_rows));
    MIMO_TRY(nn_check_size(desc->name, "max_batch", desc->max_batch));
    MIMO_CHECK(desc->top_k <= desc->experts, MIMO_ERR_ARGUMENT,
               "%s: top_k %" PRId64 " of %" PRId64 " experts", desc->name, desc->top_k,
               desc->experts);
    MIMO_CHECK((unsigned)desc->scores <= NN_SCORES_SIGMOID, MIMO_ERR_ARGUMENT,
               "%s: unknown rule of scores %d", desc->name, (int)desc->scores);
    MIMO_TRY(check_number(desc->name, "scale", desc->scale));
    MIMO_TRY(check_number(desc->name, "balance", desc->balance));
    MIMO_TRY(check_number(desc->name, "bias_rate", desc->bias_rate));
    MIMO_CHECK(desc->bias_rate == 0 || desc->scores == NN_SCORES_SIGMOID, MIMO_ERR_ARGUMENT,
               "%s: bias_rate %g is for scores that are sigmoids", desc->name, desc->bias_rate);
    return MIMO_OK;
}

static mimo_status add_bias(nn_router *made, const nn_router_desc *desc)
{
    char name[NN_NAME_CAPACITY];
    made->bias = -1;
    if (desc->bias_rate == 0)
        return MIMO_OK;
    MIMO_TRY(nn_join(name, desc->name, "bias"));
    nn_param_desc bias = {.name = name, .ndim = 1, .shape = {desc->experts, 1}, .untrained = true};
    return nn_params_add(made->params, &bias, &made->bias);
}

static mimo_status init_parts(nn_router *made, mimo_comm *tp, const nn_router_desc *desc)
{
    nn_linear_desc linear = {.name = desc->name,
                             .in = desc->hidden,
                             .out = desc->experts,
                             .split = NN_SPLIT_NONE,
                             .std = desc->std,
                             .max_rows = desc->max_rows,
                             .sp = !MIMO_MUTATED("router-whole"),
                             .apart = true};
    MIMO_TRY(nn_linear_init(&made->linear, made->params, tp, &linear));
    MIMO_TRY(nn_exchange_check(&made->cp, desc->name));
    MIMO_TRY(add_bias(made, desc));
    MIMO_TRY(mimo_copy_string(&made->name, desc->name));
    if (desc->replay)
        MIMO_TRY(
            mimo_reserve(&made->replayed, desc->max_rows * desc->top_k, sizeof *made->replayed));
    MIMO_TRY(mimo_reserve(&made->loads, desc->experts, sizeof *made->loads));
    MIMO_TRY(mimo_reserve(&made->moved, desc->experts, sizeof *made->moved));
    return nn_runtime_reserve(made->runtime, &made->counts, desc->experts, sizeof *made->counts);
}

mimo_status nn_router_init(nn_router *layer, nn_params *params, mimo_comm *tp,
                           const nn_router_desc *desc)
{
    MIMO_TRY(check_desc(params, desc));
    const nn_runtime *runtime = nn_params_runtime(params);
    nn_params_counts *counts = nn_params_exchanged(params);
    nn_router made = {.runtime = runtime,
                      .params = params,
                      .experts = desc->experts,
                      .top_k = desc->top_k,
                      .max_batch = desc->max_batch,
                      .max_rows = desc->max_rows,
                      .scores = desc->scores,
                      .scale = desc->scale > 0 ? desc->scale : 1,
                      .balance = desc->balance,
                      .bias_rate = desc->bias_rate,
                      .tp = {tp, runtime, &counts->tp},
                      .cp = {desc->cp, runtime, &counts->cp},
                      .replay = desc->replay};
    mimo_status status = init_parts(&made, tp, desc);
    if (status != MIMO_OK) {
        nn_router_release(&made);
        return status;
    }
    *layer = made;
    return MIMO_OK;
}

void nn_router_release(nn_router *layer)
{
    nn_linear_release(&layer->linear);
    nn_runtime_free(layer->runtime, layer->counts);
    mimo_release(layer->replayed);
    mimo_release(layer->loads);
    mimo_release(layer->moved);
    mimo_release(layer->name);
    memset(layer, 0, sizeof *layer);
}

mimo_status nn_router_saved_take(nn_router_saved *saved, const nn_router *layer, nn_room *room)
{
    int64_t logits, choices;
    *saved = (nn_router_saved){0};
    MIMO_TRY(mimo_mul(&logits, layer->max_rows, layer->experts));
    MIMO_TRY(mimo_mul(&choices, layer->max_rows, layer->top_k));
    MIMO_TRY(nn_linear_saved_take(&saved->linear, &layer->linear, room));
    MIMO_TRY(nn_room_take(room, &saved->logits, logits, sizeof *saved->logits));
    MIMO_TRY(nn_room_take(room, &saved->d_logits, logits, sizeof *saved->d_logits));
    MIMO_TRY(nn_room_take(room, &saved->chosen, choices, sizeof *saved->chosen));
    MIMO_TRY(nn_room_take(room, &saved->ids, choices, sizeof *saved->ids));
    MIMO_TRY(nn_room_take(room, &saved->weights, choices, sizeof *saved->weights));
    if (layer->balance == 0)
        return MIMO_OK;
    MIMO_TRY(mimo_mul(&choices, layer->max_batch, layer->experts));
    MIMO_TRY(nn_room_take(room, &saved->counts, choices, sizeof *saved->counts));
    return nn_room_take(room, &saved->losses, layer->max_rows, sizeof *saved->losses);
}

/* ------------------------------------------ forward ------------------------------------------ */

static mimo_status keep_ids(const nn_router *layer, const nn_router_saved *saved,
                            const nn_row_range *rows)
{
    MIMO_CHECK(saved->rows.count == rows->count, MIMO_ERR_STATE,
               "%s: replay keeps the ids of %" PRId64 " rows, and a forward has %" PRId64,
               layer->name, saved->rows.count, rows->count);
    return MIMO_OK;
}

/* Ids that an earlier run chose, into saved->ids. */
static mimo_status replay(const nn_router *layer, nn_router_saved *saved, const nn_row_range *rows)
{
    if (!layer->replay->ids)
        return keep_ids(layer, saved, rows);
    MIMO_TRY(layer->replay->ids(layer->replay->context, layer->replayed, layer->name, rows));
    for (int64_t i = 0; i < rows->count * layer->top_k; i++)
        MIMO_CHECK(layer->replayed[i] >= -1 && layer->replayed[i] < layer->experts,
                   MIMO_ERR_ARGUMENT, "%s: replay gave row %" PRId64 " expert %d of %" PRId64,
                   layer->name, rows->first + i / layer->top_k, (int)layer->replayed[i],
                   layer->experts);
    return nn_runtime_write(layer->runtime, saved->ids, layer->replayed,
                            rows->count * layer->top_k * (int64_t)sizeof *saved->ids);
}

static nn_choices choices_of(const nn_router *layer, const nn_router_saved *saved)
{
    return (nn_choices){
        .scores = layer->scores,
        .logits = saved->logits,
        .bias = layer->bias >= 0 ? nn_value(layer->params, layer->bias) : NULL,
        .forced = layer->replay ? saved->ids : NULL,
        .masked = saved->rows.masked,
        .rows = saved->rows.count,
        .experts = layer->experts,
        .top_k = layer->top_k,
        .scale = (nn_real)layer->scale,
        .chosen = saved->chosen,
        .ids = saved->ids,
        .weights = saved->weights,
    };
}

static nn_choice_shape shape_of(const nn_router *layer, const nn_router_saved *saved)
{
    return (nn_choice_shape){saved->rows.first, saved->rows.count, saved->rows.batch,
                             layer->experts, layer->top_k};
}

static nn_balance balance_of(const nn_router *layer, const nn_router_saved *saved)
{
    return (nn_balance){.scores = layer->scores,
                        .logits = saved->logits,
                        .counts = saved->counts,
                        .masked = saved->rows.masked,
                        .shape = shape_of(layer, saved),
                        .factor = layer->balance * (double)layer->experts,
                        .losses = saved->losses};
}

/* The choices of whole sequences, and the losses. */
static mimo_status balance(const nn_router *layer, nn_router_saved *saved)
{
    const nn_choice_shape shape = shape_of(layer, saved);
    const nn_balance job = balance_of(layer, saved);
    int64_t count = shape.batch * shape.experts;
    if (layer->balance == 0)
        return MIMO_OK;
    MIMO_TRY(nn_runtime_zero(layer->runtime, saved->counts, count * (int64_t)sizeof(int64_t)));
    MIMO_TRY(layer->runtime->ops->count_choices(layer->runtime, saved->counts, saved->ids, &shape));
    if (MIMO_MUTATED("balance-of-rank"))
        return layer->runtime->ops->balance(layer->runtime, &job);
    MIMO_TRY(nn_exchange_sum_i64(&layer->tp, saved->counts, count));
    MIMO_TRY(nn_exchange_sum_i64(&layer->cp, saved->counts, count));
    return layer->runtime->ops->balance(layer->runtime, &job);
}

mimo_status nn_router_forward(const nn_router *layer, nn_router_saved *saved, const nn_real *x,
                              const nn_row_range *rows)
{
    saved->linear.progress = NN_PROGRESS_NONE;
    MIMO_CHECK(rows->batch >= 1 && rows->batch <= layer->max_batch, MIMO_ERR_SHAPE,
               "%s: %" PRId64 " samples, must be 1 to %" PRId64, layer->name, rows->batch,
               layer->max_batch);
    MIMO_TRY(nn_check_forward(layer->name, layer->params, rows->count, layer->max_rows));
    if (layer->replay)
        MIMO_TRY(replay(layer, saved, rows));
    saved->rows = *rows;
    MIMO_TRY(nn_linear_forward(&layer->linear, &saved->linear, saved->logits, x, rows->count, 1));
    const nn_choices choices = choices_of(layer, saved);
    MIMO_TRY(layer->runtime->ops->choose(layer->runtime, &choices));
    return balance(layer, saved);
}

mimo_status nn_router_balance_loss(double *loss, const nn_router *layer,
                                   const nn_router_saved *saved)
{
    double *losses, sum = 0;
    int64_t count = layer->balance > 0 ? saved->rows.count : 0;
    MIMO_CHECK(saved->linear.progress != NN_PROGRESS_NONE, MIMO_ERR_STATE,
               "%s: the balance loss before forward", layer->name);
    MIMO_TRY(mimo_reserve(&losses, count, sizeof *losses));
    mimo_status status =
        nn_runtime_read(layer->runtime, losses, saved->losses, count * (int64_t)sizeof *losses);
    for (int64_t i = 0; i < count && status == MIMO_OK; i++)
        sum += losses[i];
    mimo_release(losses);
    if (status == MIMO_OK)
        *loss = sum;
    return status;
}

/* ------------------------------------------ backward ----------------------------------------- */

mimo_status nn_router_backward_input(const nn_router *layer, nn_router_saved *saved, nn_real *dx,
                                     const nn_real *d_weights)
{
    const nn_choices choices = choices_of(layer, saved);
    const nn_balance job = balance_of(layer, saved);
    MIMO_CHECK(saved->linear.progress >= NN_PROGRESS_FORWARD, MIMO_ERR_STATE,
               "%s: backward before forward", layer->name);
    MIMO_TRY(
        layer->runtime->ops->choose_backward(layer->runtime, saved->d_logits, d_weights, &choices));
    if (layer->balance > 0)
        MIMO_TRY(layer->runtime->ops->balance_backward(layer->runtime, saved->d_logits, &job));
    return nn_linear_backward_input(&layer->linear, &saved->linear, dx, saved->d_logits);
}

mimo_status nn_router_backward_params(const nn_router *layer, nn_router_saved *saved)
{
    nn_choice_shape whole = shape_of(layer, saved);
    whole.batch = 1;
    MIMO_TRY(nn_linear_backward_params(&layer->linear, &saved->linear));
    return layer->runtime->ops->count_choices(layer->runtime, layer->counts, saved->ids, &whole);
}

/* -------------------------------------------- step ------------------------------------------- */

static mimo_status move_bias(nn_router *layer)
{
    int64_t total = 0;
    MIMO_TRY(nn_params_read(layer->params, layer->bias, NN_VALUE, layer->moved));
    for (int64_t e = 0; e < layer->experts; e++)
        total += layer->loads[e];
    for (int64_t e = 0; e < layer->experts; e++) {
        int64_t above = layer->loads[e] * layer->experts;
        layer->moved[e] += (nn_real)(layer->bias_rate * ((total > above) - (total < above)));
    }
    return nn_params_write(layer->params, layer->bias, NN_VALUE, layer->moved);
}

/* The counts of all ranks, into host memory; and zeros in their place. */
static mimo_status take_counts(nn_router *layer, mimo_comm *ranks)
{
    int64_t bytes = layer->experts * (int64_t)sizeof *layer->loads;
    nn_exchange exchange = {.comm = ranks, .runtime = layer->runtime};
    MIMO_TRY(nn_exchange_sum_i64(&exchange, layer->counts, layer->experts));
    MIMO_TRY(nn_runtime_read(layer->runtime, layer->loads, layer->counts, bytes));
    return nn_runtime_zero(layer->runtime, layer->counts, bytes);
}

mimo_status nn_router_adjust(nn_router *layer, mimo_comm *ranks, int64_t *loads)
{
    bool trained = layer->bias >= 0 && !nn_is_frozen(layer->params, layer->linear.weight);
    MIMO_TRY(take_counts(layer, ranks));
    if (trained)
        MIMO_TRY(move_bias(layer));
    if (loads)
        memcpy(loads, layer->loads, (size_t)layer->experts * sizeof *loads);
    return MIMO_OK;
}
