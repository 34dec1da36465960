#include "train/nn/layers/nn_linear.h"

#include <string.h>

#include "core/mutation.h"
#include "train/nn/params/nn_support.h"

/* The rule of a parameter that tp does not cut: partial where it applies to this rank's rows. */
static nn_rule uncut_rule(const nn_linear_desc *desc)
{
    return desc->sp ? NN_PARTIAL : NN_REPLICATED;
}

static mimo_status add_parameters(nn_linear *layer, nn_params *params, const nn_linear_desc *desc)
{
    char name[NN_NAME_CAPACITY];
    bool columns = desc->split == NN_SPLIT_COLUMNS, rows = desc->split == NN_SPLIT_ROWS;
    MIMO_TRY(nn_join(name, desc->name, "weight"));
    nn_param_desc weight = {.name = name,
                            .ndim = 2,
                            .shape = {desc->out, desc->in},
                            .rule = columns || rows ? NN_SHARDED : uncut_rule(desc),
                            .shard_dim = rows ? 1 : 0,
                            .packing = desc->packing,
                            .decay = true,
                            .init = NN_INIT_NORMAL,
                            .std = desc->std};
    MIMO_TRY(nn_params_add(params, &weight, &layer->weight));
    layer->bias = -1;
    if (!desc->bias)
        return MIMO_OK;
    MIMO_TRY(nn_join(name, desc->name, "bias"));
    nn_param_desc bias = {.name = name,
                          .ndim = 1,
                          .shape = {desc->out, 1},
                          .rule = columns ? NN_SHARDED : uncut_rule(desc),
                          .init = NN_INIT_ZEROS};
    return nn_params_add(params, &bias, &layer->bias);
}

static mimo_status add_adapter(nn_linear *layer, nn_params *params, const nn_linear_desc *desc)
{
    if (!desc->lora)
        return MIMO_OK;
    nn_lora_target target = {.layer = desc->name,
                             .in = desc->in,
                             .out = desc->out,
                             .cut = (int)desc->split - 1,
                             .split_rows = desc->sp && nn_params_tp_size(params) > 1,
                             .max_rows = desc->max_rows,
                             .packing = desc->packing};
    return nn_lora_init(&layer->lora, params, &target, desc->lora);
}

static mimo_status init_edges(nn_linear *layer, nn_params *params, mimo_comm *tp,
                              const nn_linear_desc *desc)
{
    nn_edge_kind summed = desc->sp ? NN_EDGE_ROWS : NN_EDGE_WHOLE;
    nn_edge before = {.tp = {tp, nn_params_runtime(params), &nn_params_exchanged(params)->tp},
                      .kind = desc->split == NN_SPLIT_COLUMNS ? summed : NN_EDGE_NONE,
                      .width = desc->in,
                      .max_rows = desc->max_rows};
    nn_edge after = before;
    after.kind = desc->split == NN_SPLIT_ROWS ? summed : NN_EDGE_NONE;
    after.width = desc->out;
    MIMO_TRY(nn_edge_init(&layer->before, &before));
    return nn_edge_init(&layer->after, &after);
}

/* Rounded sums over parts that tp chooses differ between topologies. */
static mimo_status check_order(const nn_params *params, const nn_linear_desc *desc)
{
    int ranks = nn_params_tp_size(params);
    bool fixed = nn_params_runtime(params)->order == NN_ORDER_FIXED && !desc->apart;
    MIMO_CHECK(!fixed || !desc->sp || desc->split != NN_SPLIT_NONE || ranks == 1,
               MIMO_ERR_UNSUPPORTED,
               "%s: under sequence parallelism each of %d tp ranks would sum its own rows of a "
               "gradient, so the fixed order of additions has no layer that tp does not cut",
               desc->name, ranks);
    return MIMO_OK;
}

static mimo_status check_desc(const nn_params *params, mimo_comm *tp, const nn_linear_desc *desc)
{
    int64_t ranks = nn_comm_size(tp);
    MIMO_TRY(nn_check_tp(desc->name, params, tp));
    MIMO_TRY(nn_check_size(desc->name, "in", desc->in));
    MIMO_TRY(nn_check_size(desc->name, "out", desc->out));
    MIMO_CHECK((unsigned)desc->split <= NN_SPLIT_ROWS, MIMO_ERR_ARGUMENT, "%s: unknown split %d",
               desc->name, (int)desc->split);
    MIMO_TRY(check_order(params, desc));
    if (desc->split == NN_SPLIT_COLUMNS)
        MIMO_TRY(nn_check_divides(desc->name, "out", desc->out, ranks));
    if (desc->split == NN_SPLIT_ROWS)
        MIMO_TRY(nn_check_divides(desc->name, "in", desc->in, ranks));
    return MIMO_OK;
}

mimo_status nn_linear_init(nn_linear *layer, nn_params *params, mimo_comm *tp,
                           const nn_linear_desc *desc)
{
    int64_t ranks = nn_comm_size(tp);
    MIMO_TRY(check_desc(params, tp, desc));
    nn_linear made = {.params = params, .split = desc->split, .apart = desc->apart};
    made.in = desc->split == NN_SPLIT_ROWS ? desc->in / ranks : desc->in;
    made.out = desc->split == NN_SPLIT_COLUMNS ? desc->out / ranks : desc->out;
    made.max_rows = desc->max_rows > 0 ? desc->max_rows : INT_MAX;
    mimo_status status;
    MIMO_TRY_GOTO(status, fail, init_edges(&made, params, tp, desc));
    MIMO_TRY_GOTO(status, fail, add_parameters(&made, params, desc));
    MIMO_TRY_GOTO(status, fail, add_adapter(&made, params, desc));
    *layer = made;
    return MIMO_OK;
fail:
    nn_linear_release(&made);
    return status;
}

void nn_linear_release(nn_linear *layer)
{
    nn_edge_release(&layer->before);
    nn_edge_release(&layer->after);
    nn_lora_release(&layer->lora);
    memset(layer, 0, sizeof *layer);
}

mimo_status nn_linear_saved_take(nn_linear_saved *saved, const nn_linear *layer, nn_room *room)
{
    *saved = (nn_linear_saved){0};
    MIMO_TRY(nn_edge_take(&layer->before, room, &saved->entered_x));
    MIMO_TRY(nn_edge_take(&layer->after, room, &saved->entered_dy));
    return nn_lora_saved_take(&saved->lora, &layer->lora, room);
}

static nn_matrix weight_of(const nn_linear *layer)
{
    return nn_matrix_of(nn_value(layer->params, layer->weight), layer->out, layer->in, layer->in);
}

static mimo_status check_rows(const nn_linear *layer, int64_t rows)
{
    int64_t inside = rows >= 0 && rows <= INT_MAX ? rows * nn_edge_factor(&layer->before) : rows;
    MIMO_TRY(nn_check_forward("linear", layer->params, inside, layer->max_rows));
    MIMO_CHECK(inside % nn_edge_factor(&layer->after) == 0, MIMO_ERR_SHAPE,
               "%s: %" PRId64 " rows do not divide over tp=%" PRId64,
               nn_params_at(layer->params, layer->weight)->name, inside,
               nn_edge_factor(&layer->after));
    return MIMO_OK;
}

static int64_t rows_of_y(const nn_linear *layer, const nn_linear_saved *saved)
{
    return saved->rows / nn_edge_factor(&layer->after);
}

static mimo_status check_samples(const nn_linear *layer, int64_t rows, int64_t batch)
{
    int64_t pairs = nn_params_pairs(layer->params), unit = pairs > 1 ? 2 * pairs : 1;
    MIMO_CHECK(batch >= 1 && rows % batch == 0 && rows / batch % unit == 0, MIMO_ERR_SHAPE,
               "%s: %" PRId64 " rows are not those of %" PRId64 " samples in %" PRId64
               " chunks each",
               nn_params_at(layer->params, layer->weight)->name, rows, batch, unit);
    return MIMO_OK;
}

/* Write target = a b, and what the adapter adds (NULL: nothing). In the fixed order the adapter's
 * terms come before any other part's: a product of its own would add them after the tree. `summed`:
 * tp sums over the columns of `a`. */
static mimo_status multiply(const nn_linear *layer, nn_real *target, nn_matrix a, nn_matrix b,
                            const nn_factors *added, bool summed)
{
    const nn_runtime *runtime = nn_params_runtime(layer->params);
    nn_product product = {
        .c = target, .stride = b.columns, .alpha = 1, .a = a, .b = b, .count = 1, .parts = 1};
    if (runtime->order == NN_ORDER_FIXED) {
        product.then = added;
        if (summed && !MIMO_MUTATED("shard-by-rank"))
            product.parts = nn_params_parts(layer->params);
        return runtime->ops->matmul(runtime, &product);
    }
    MIMO_TRY(runtime->ops->matmul(runtime, &product));
    return added ? nn_add_product(runtime, target, added) : MIMO_OK;
}

/* The product, the adapter's part and the sum over tp. */
static mimo_status write_output(const nn_linear *layer, nn_linear_saved *saved, nn_real *y)
{
    nn_matrix input = nn_matrix_of(saved->x, saved->rows, layer->in, layer->in);
    nn_factors added;
    MIMO_TRY(nn_lora_forward(&layer->lora, &saved->lora, saved->x, saved->rows));
    bool adapted = nn_lora_output(&added, &layer->lora, &saved->lora);
    MIMO_TRY(multiply(layer, nn_edge_target(&layer->after, y), input,
                      nn_transpose(weight_of(layer)), adapted ? &added : NULL,
                      layer->split == NN_SPLIT_ROWS));
    MIMO_TRY(nn_edge_leave(&layer->after, y, rows_of_y(layer, saved)));
    if (adapted && layer->after.kind == NN_EDGE_WHOLE && MIMO_MUTATED("adapter-after-sum"))
        MIMO_TRY(nn_add_product(nn_params_runtime(layer->params), y, &added));
    return MIMO_OK;
}

static mimo_status add_bias(const nn_linear *layer, nn_real *y, int64_t rows)
{
    const nn_runtime *runtime = nn_params_runtime(layer->params);
    if (layer->bias < 0)
        return MIMO_OK;
    const nn_real *bias = nn_value(layer->params, layer->bias);
    if (layer->after.kind == NN_EDGE_WHOLE && MIMO_MUTATED("bias-twice"))
        MIMO_TRY(runtime->ops->add_bias(runtime, y, bias, rows, layer->out));
    return runtime->ops->add_bias(runtime, y, bias, rows, layer->out);
}

mimo_status nn_linear_forward(const nn_linear *layer, nn_linear_saved *saved, nn_real *y,
                              const nn_real *x, int64_t rows, int64_t batch)
{
    saved->progress = NN_PROGRESS_NONE; /* a failure leaves nothing for backward */
    MIMO_TRY(check_rows(layer, rows));
    if (!layer->apart)
        MIMO_TRY(check_samples(layer, rows * nn_edge_factor(&layer->before), batch));
    saved->rows = rows * nn_edge_factor(&layer->before);
    saved->batch = layer->apart ? saved->rows : batch;
    MIMO_TRY(nn_edge_enter(&layer->before, saved->entered_x, &saved->x, x, rows));
    MIMO_TRY(write_output(layer, saved, y));
    if (layer->lora.rank > 0 && MIMO_MUTATED("two-sums"))
        MIMO_TRY(nn_exchange_sum(&layer->after.tp, saved->lora.dz, saved->rows * layer->lora.rank));
    MIMO_TRY(add_bias(layer, y, rows_of_y(layer, saved)));
    saved->progress = NN_PROGRESS_FORWARD;
    return MIMO_OK;
}

/* What both halves of backward need: dy as the product sees it, and the adapter's dz. */
static mimo_status begin_backward(const nn_linear *layer, nn_linear_saved *saved, nn_real *dy)
{
    MIMO_CHECK(saved->progress >= NN_PROGRESS_FORWARD, MIMO_ERR_STATE,
               "linear: backward before forward");
    saved->progress = NN_PROGRESS_FORWARD;
    MIMO_TRY(nn_lora_check_backward(&layer->lora, &saved->lora)); /* before any exchange */
    MIMO_TRY(
        nn_edge_enter(&layer->after, saved->entered_dy, &saved->dy, dy, rows_of_y(layer, saved)));
    MIMO_TRY(nn_lora_backward(&layer->lora, &saved->lora, saved->dy));
    saved->lent = dy;
    saved->progress = NN_PROGRESS_INPUT;
    return MIMO_OK;
}

mimo_status nn_linear_backward_input(const nn_linear *layer, nn_linear_saved *saved, nn_real *dx,
                                     nn_real *dy)
{
    MIMO_TRY(begin_backward(layer, saved, dy));
    if (!dx)
        return MIMO_OK;
    nn_matrix gradient = nn_matrix_of(saved->dy, saved->rows, layer->out, layer->out);
    nn_factors added;
    bool adapted = nn_lora_input(&added, &layer->lora, &saved->lora);
    MIMO_TRY(multiply(layer, nn_edge_target(&layer->before, dx), gradient, weight_of(layer),
                      adapted ? &added : NULL, layer->split == NN_SPLIT_COLUMNS));
    if (MIMO_MUTATED("no-input-sum") && layer->before.kind == NN_EDGE_WHOLE)
        return MIMO_OK;
    return nn_edge_leave(&layer->before, dx, saved->rows / nn_edge_factor(&layer->before));
}

static mimo_status add_bias_gradient(const nn_linear *layer, const nn_linear_saved *saved)
{
    int64_t rows = rows_of_y(layer, saved);
    if (layer->bias < 0)
        return MIMO_OK;
    if (layer->after.kind == NN_EDGE_WHOLE && MIMO_MUTATED("bias-gradient-twice"))
        MIMO_TRY(nn_sum_rows(layer->params, layer->bias, saved->lent, rows));
    return nn_sum_rows(layer->params, layer->bias, saved->lent, rows);
}

mimo_status nn_linear_backward_params(const nn_linear *layer, nn_linear_saved *saved)
{
    MIMO_CHECK(saved->progress == NN_PROGRESS_INPUT, MIMO_ERR_STATE,
               "linear: the parameters' half of backward before the input's");
    nn_tokens tokens = {saved->rows, saved->batch};
    nn_token_product weight = {1, saved->dy, saved->x, layer->out, layer->in};
    MIMO_TRY(nn_sum_products(layer->params, layer->weight, &weight, tokens));
    MIMO_TRY(add_bias_gradient(layer, saved));
    MIMO_TRY(nn_lora_backward_params(&layer->lora, &saved->lora, saved->dy, saved->x, tokens));
    if (!saved->stays)
        nn_poison(nn_params_runtime(layer->params), saved->lent,
                  rows_of_y(layer, saved) * layer->out);
    saved->progress = NN_PROGRESS_NONE;
    return MIMO_OK;
}

mimo_status nn_linear_backward(const nn_linear *layer, nn_linear_saved *saved, nn_real *dx,
                               nn_real *dy)
{
    MIMO_TRY(nn_linear_backward_input(layer, saved, dx, dy));
    return nn_linear_backward_params(layer, saved);
}

mimo_status nn_linear_visit(nn_linear *layer, nn_lora_visit *visit)
{
    return visit(&layer->lora, layer->weight);
}
