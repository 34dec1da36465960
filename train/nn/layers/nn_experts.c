#include "train/nn/layers/nn_experts.h"

#include <stdio.h>
#include <string.h>

#include "core/checked.h"
#include "core/mutation.h"
#include "device/device.h"
#include "train/nn/params/nn_support.h"

/* ----------------------------------------- creation ------------------------------------------ */

/* One of the two linear layers of an expert: W [out, in], and the dimension of W that etp cuts. */
typedef struct linear_shape {
    const char *name;
    int64_t in, out;
    int cut;
    double std;
    bool elsewhere; /* other ranks have this expert: it is listed */
} linear_shape;

static mimo_status add_parameters(nn_expert_linear *linear, nn_params *params,
                                  const linear_shape *shape)
{
    char name[NN_NAME_CAPACITY];
    MIMO_TRY(nn_join(name, shape->name, "weight"));
    nn_param_desc weight = {.name = name,
                            .ndim = 2,
                            .shape = {shape->out, shape->in},
                            .rule = NN_EXPERT_SHARDED,
                            .shard_dim = shape->cut,
                            .decay = true,
                            .elsewhere = shape->elsewhere,
                            .init = NN_INIT_NORMAL,
                            .std = shape->std};
    MIMO_TRY(nn_params_add(params, &weight, &linear->weight));
    MIMO_TRY(nn_join(name, shape->name, "bias"));
    nn_param_desc bias = {.name = name,
                          .ndim = 1,
                          .shape = {shape->out, 1},
                          .rule = shape->cut == 0 ? NN_EXPERT_SHARDED : NN_EXPERT_REPLICATED,
                          .elsewhere = shape->elsewhere};
    return nn_params_add(params, &bias, &linear->bias);
}

static mimo_status add_linear(nn_experts *made, nn_expert_linear *linear, const linear_shape *shape,
                              const nn_lora_selection *adapters)
{
    const nn_lora_desc *lora = nn_lora_for(adapters, shape->name);
    nn_lora_target target = {.layer = shape->name,
                             .in = shape->in,
                             .out = shape->out,
                             .cut = shape->cut,
                             .expert = true,
                             .elsewhere = shape->elsewhere,
                             .max_rows = made->max_rows};
    MIMO_TRY(add_parameters(linear, made->params, shape));
    return lora ? nn_lora_init(&linear->lora, made->params, &target, lora) : MIMO_OK;
}

/* Expert `number`: one of this rank's, or one that is only listed. */
static mimo_status add_expert(nn_experts *made, int64_t number, const nn_experts_desc *desc)
{
    nn_expert other = {0};
    int64_t own = number - made->first;
    bool here = own >= 0 && own < made->count;
    nn_expert *expert = here ? &made->list[own] : &other;
    char name[NN_NAME_CAPACITY], part[NN_NAME_CAPACITY];
    snprintf(part, sizeof part, "experts.%" PRId64, number);
    MIMO_TRY(nn_join(name, desc->name, part));
    MIMO_TRY(nn_join(part, name, "up"));
    linear_shape up = {part, desc->hidden, desc->inner, 0, desc->std, !here};
    MIMO_TRY(add_linear(made, &expert->up, &up, desc->adapters));
    MIMO_TRY(nn_join(part, name, "down"));
    linear_shape down = {part, desc->inner, desc->hidden, 1, desc->out_std, !here};
    MIMO_TRY(add_linear(made, &expert->down, &down, desc->adapters));
    made->up_rank = mimo_larger(made->up_rank, expert->up.lora.rank);
    made->down_rank = mimo_larger(made->down_rank, expert->down.lora.rank);
    return MIMO_OK;
}

static mimo_status check_desc(const nn_params *params, const nn_experts_desc *desc)
{
    MIMO_CHECK(params, MIMO_ERR_ARGUMENT, "%s: no parameter store", desc->name);
    const nn_expert_coords *coords = nn_params_experts(params);
    MIMO_TRY(nn_check_size(desc->name, "hidden", desc->hidden));
    MIMO_TRY(nn_check_size(desc->name, "inner", desc->inner));
    MIMO_TRY(nn_check_size(desc->name, "experts", desc->experts));
    MIMO_TRY(nn_check_size(desc->name, "max_rows", desc->max_rows));
    MIMO_TRY(nn_check_divides(desc->name, "inner", desc->inner, coords->etp_size));
    MIMO_TRY(nn_check_divides(desc->name, "experts", desc->experts, coords->ep_size));
    MIMO_CHECK(nn_params_runtime(params)->order == NN_ORDER_FAST || coords->etp_size == 1,
               MIMO_ERR_UNSUPPORTED, "%s: same bits need etp=1, not etp=%d", desc->name,
               coords->etp_size);
    return MIMO_OK;
}

mimo_status nn_experts_init(nn_experts *layer, nn_params *params, const nn_experts_desc *desc)
{
    MIMO_TRY(check_desc(params, desc));
    const nn_expert_coords *coords = nn_params_experts(params);
    int64_t count = desc->experts / coords->ep_size;
    nn_experts made = {.count = count,
                       .runtime = nn_params_runtime(params),
                       .params = params,
                       .first = coords->ep_rank * count,
                       .hidden = desc->hidden,
                       .inner = desc->inner / coords->etp_size,
                       .max_rows = desc->max_rows};
    mimo_status status = mimo_reserve(&made.list, count, sizeof *made.list);
    for (int64_t e = 0; e < desc->experts && status == MIMO_OK; e++)
        status = add_expert(&made, e, desc);
    if (status != MIMO_OK) {
        nn_experts_release(&made);
        return status;
    }
    *layer = made;
    return MIMO_OK;
}

void nn_experts_release(nn_experts *layer)
{
    for (int64_t e = 0; e < layer->count && layer->list; e++) {
        nn_lora_release(&layer->list[e].up.lora);
        nn_lora_release(&layer->list[e].down.lora);
    }
    mimo_release(layer->list);
    memset(layer, 0, sizeof *layer);
}

/* The widest adapter says how much a row takes, also where other ranks have it: so a saved state
 * has the same layout on all ranks, which a buffer of them needs. */
static mimo_status place_adapters(nn_lora_saved *saved, const nn_experts *layer, int64_t rank,
                                  nn_room *room)
{
    const nn_lora widest = {.rank = rank, .max_rows = layer->max_rows, .z_parts = 1, .dz_parts = 1};
    return nn_lora_saved_take(saved, &widest, room);
}

mimo_status nn_experts_saved_take(nn_experts_saved *saved, const nn_experts *layer, nn_room *room)
{
    int64_t count;
    nn_real **const tensors[] = {&saved->u, &saved->gate, &saved->activated, &saved->down,
                                 &saved->du};
    *saved = (nn_experts_saved){0};
    MIMO_TRY(mimo_mul(&count, layer->max_rows, layer->inner));
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        MIMO_TRY(nn_room_take(room, tensors[i], count, sizeof(nn_real)));
    MIMO_TRY(place_adapters(&saved->up, layer, layer->up_rank, room));
    return place_adapters(&saved->down_lora, layer, layer->down_rank, room);
}

/* ---------------------------------------- one expert ----------------------------------------- */

/* An expert, with its rows of the tiles. */
typedef struct expert_rows {
    const nn_expert *expert;
    int64_t begin, rows;
} expert_rows;

static expert_rows rows_of(const nn_experts *layer, const nn_experts_saved *saved, int64_t e)
{
    int64_t begin = e > 0 ? saved->ends[e - 1] : 0;
    return (expert_rows){&layer->list[e], begin, saved->ends[e] - begin};
}

/* to = a b, and what the adapter adds, which in the fixed order goes on with the same chains. */
static mimo_status multiply(const nn_experts *layer, nn_real *to, nn_matrix a, nn_matrix b,
                            const nn_factors *added)
{
    const nn_runtime *runtime = layer->runtime;
    nn_product product = {
        .c = to, .stride = b.columns, .alpha = 1, .a = a, .b = b, .count = 1, .parts = 1};
    bool fixed = runtime->order == NN_ORDER_FIXED;
    product.then = fixed ? added : NULL;
    MIMO_TRY(runtime->ops->matmul(runtime, &product));
    return added && !fixed ? nn_add_product(runtime, to, added) : MIMO_OK;
}

/* y = x W^T + s (x A^T) B^T, of `in` and `out` columns. */
typedef struct expert_product {
    const nn_expert_linear *linear;
    nn_lora_saved *saved; /* of all rows */
    int64_t rank;         /* the room of a row there */
    int64_t in, out;
} expert_product;

static expert_product up_of(const nn_experts *layer, nn_experts_saved *saved, const expert_rows *at)
{
    return (expert_product){&at->expert->up, &saved->up, layer->up_rank, layer->hidden,
                            layer->inner};
}

static expert_product down_of(const nn_experts *layer, nn_experts_saved *saved,
                              const expert_rows *at)
{
    return (expert_product){&at->expert->down, &saved->down_lora, layer->down_rank, layer->inner,
                            layer->hidden};
}

static nn_matrix weight_of(const nn_experts *layer, const expert_product *it)
{
    return nn_matrix_of(nn_value(layer->params, it->linear->weight), it->out, it->in, it->in);
}

/* The part of the adapters' state that belongs to these rows. */
static nn_lora_saved adapter_rows(const expert_product *it, const expert_rows *at)
{
    nn_lora_saved part = *it->saved;
    int64_t first = MIMO_MUTATED("expert-z-of-last") ? 0 : at->begin * it->rank;
    if (it->linear->lora.rank == 0)
        return part;
    part.z += first;
    part.dz += first;
    part.rows = at->rows;
    return part;
}

/* Pointers are to the first row of all experts. */
static mimo_status product_forward(const nn_experts *layer, const expert_product *it, nn_real *y,
                                   const nn_real *x, const expert_rows *at)
{
    const nn_lora *lora = &it->linear->lora;
    nn_lora_saved saved = adapter_rows(it, at);
    nn_factors added;
    x += at->begin * it->in;
    MIMO_TRY(nn_lora_forward(lora, &saved, x, at->rows));
    if (!it->saved->merged)
        it->saved->merged = saved.merged;
    bool adapted = nn_lora_output(&added, lora, &saved);
    if (adapted && nn_params_at(layer->params, lora->b)->rule == NN_EXPERT_PARTIAL &&
        MIMO_MUTATED("expert-adapter-per-t"))
        added.alpha *= (nn_real)nn_params_experts(layer->params)->etp_size;
    return multiply(layer, y + at->begin * it->out, nn_matrix_of(x, at->rows, it->in, it->in),
                    nn_transpose(weight_of(layer, it)), adapted ? &added : NULL);
}

static mimo_status product_backward(const nn_experts *layer, const expert_product *it, nn_real *dx,
                                    const nn_real *dy, const expert_rows *at)
{
    const nn_lora *lora = &it->linear->lora;
    nn_lora_saved saved = adapter_rows(it, at);
    nn_factors added;
    dy += at->begin * it->out;
    MIMO_TRY(nn_lora_backward(lora, &saved, dy));
    bool adapted = nn_lora_input(&added, lora, &saved);
    return multiply(layer, dx + at->begin * it->in, nn_matrix_of(dy, at->rows, it->out, it->out),
                    weight_of(layer, it), adapted ? &added : NULL);
}

static mimo_status product_gradients(const nn_experts *layer, const expert_product *it,
                                     const nn_real *dy, const nn_real *x, const expert_rows *at)
{
    const nn_lora *lora = &it->linear->lora;
    nn_lora_saved saved = adapter_rows(it, at);
    nn_tokens tokens = {at->rows, at->rows};
    nn_token_product weight = {1, dy + at->begin * it->out, x + at->begin * it->in, it->out,
                               it->in};
    MIMO_TRY(nn_sum_products(layer->params, it->linear->weight, &weight, tokens));
    return nn_lora_backward_params(lora, &saved, weight.dy, weight.x, tokens);
}

/* ------------------------------------------ the calls ---------------------------------------- */

/* The rows of all experts together. */
static int64_t all_rows(const nn_experts *layer, const int32_t *ends)
{
    return ends[layer->count - 1];
}

/* Only the first of the ranks that share an expert adds the bias of down. */
static bool adds_bias(const nn_experts *layer)
{
    if (MIMO_MUTATED("bias-on-every-t"))
        return true;
    return nn_params_experts(layer->params)->etp_rank == 0;
}

static mimo_status go_up(const nn_experts *layer, nn_experts_saved *saved, const expert_rows *at)
{
    const nn_runtime *runtime = layer->runtime;
    const expert_product up = up_of(layer, saved, at);
    MIMO_TRY(product_forward(layer, &up, saved->u, saved->x, at));
    return runtime->ops->add_bias(runtime, saved->u + at->begin * layer->inner,
                                  nn_value(layer->params, at->expert->up.bias), at->rows,
                                  layer->inner);
}

static nn_matrix weights_of(const nn_experts_saved *saved, const expert_rows *at)
{
    return nn_matrix_of(saved->weights + at->begin, at->rows, 1, 1);
}

static mimo_status go_down(const nn_experts *layer, nn_experts_saved *saved, nn_real *y,
                           const expert_rows *at)
{
    const expert_product down = down_of(layer, saved, at);
    const nn_real *bias = nn_value(layer->params, at->expert->down.bias);
    const nn_factors weighted = {.alpha = 1,
                                 .a = weights_of(saved, at),
                                 .b = nn_matrix_of(bias, 1, layer->hidden, layer->hidden)};
    MIMO_TRY(product_forward(layer, &down, y, saved->down, at));
    if (MIMO_MUTATED("weight-not-on-bias"))
        return layer->runtime->ops->add_bias(layer->runtime, y + at->begin * layer->hidden, bias,
                                             at->rows, layer->hidden);
    return adds_bias(layer)
               ? nn_add_product(layer->runtime, y + at->begin * layer->hidden, &weighted)
               : MIMO_OK;
}

mimo_status nn_experts_forward(const nn_experts *layer, nn_experts_saved *saved, nn_real *y,
                               const nn_expert_rows *rows)
{
    const nn_ops *ops = layer->runtime->ops;
    saved->progress = NN_PROGRESS_NONE;
    int64_t count = all_rows(layer, rows->ends);
    MIMO_TRY(nn_check_forward("experts", layer->params, count, layer->max_rows));
    saved->x = rows->x;
    saved->weights = rows->weights;
    saved->ends = rows->ends;
    saved->up.merged = saved->down_lora.merged = NULL;
    for (int64_t e = 0; e < layer->count; e++) {
        const expert_rows at = rows_of(layer, saved, e);
        MIMO_TRY(go_up(layer, saved, &at));
    }
    MIMO_TRY(ops->gelu(layer->runtime, saved->activated, saved->gate, saved->u,
                       (nn_rows){.most = count}, layer->inner));
    MIMO_TRY(ops->scale_rows(layer->runtime, saved->down, saved->activated, rows->weights,
                             (nn_rows){.most = count}, layer->inner));
    if (MIMO_MUTATED("weight-twice"))
        MIMO_TRY(ops->scale_rows(layer->runtime, saved->down, saved->down, rows->weights,
                                 (nn_rows){.most = count}, layer->inner));
    for (int64_t e = 0; e < layer->count; e++) {
        const expert_rows at = rows_of(layer, saved, e);
        MIMO_TRY(go_down(layer, saved, y, &at));
    }
    saved->progress = NN_PROGRESS_FORWARD;
    return MIMO_OK;
}

/* The gradients of what down gets, and of the weights: of the activation, and of the bias. */
static mimo_status back_through_down(const nn_experts *layer, nn_experts_saved *saved,
                                     nn_real *d_weights, const expert_rows *at)
{
    const nn_runtime *runtime = layer->runtime;
    const expert_product down = down_of(layer, saved, at);
    const nn_real *bias = nn_value(layer->params, at->expert->down.bias);
    const nn_factors of_bias = {.alpha = 1,
                                .a = nn_matrix_of(saved->dy + at->begin * layer->hidden, at->rows,
                                                  layer->hidden, layer->hidden),
                                .b = nn_matrix_of(bias, layer->hidden, 1, 1)};
    int64_t first = at->begin * layer->inner;
    MIMO_TRY(product_backward(layer, &down, saved->du, saved->dy, at));
    if (MIMO_MUTATED("pair-gradient-of-t0") && nn_params_experts(layer->params)->etp_rank > 0)
        return MIMO_OK;
    MIMO_TRY(runtime->ops->row_dots(runtime, d_weights + at->begin, saved->activated + first,
                                    saved->du + first, (nn_rows){.most = at->rows}, layer->inner));
    return adds_bias(layer) ? nn_add_product(runtime, d_weights + at->begin, &of_bias) : MIMO_OK;
}

mimo_status nn_experts_backward_input(const nn_experts *layer, nn_experts_saved *saved, nn_real *dx,
                                      nn_real *d_weights, nn_real *dy)
{
    const nn_ops *ops = layer->runtime->ops;
    MIMO_CHECK(saved->progress >= NN_PROGRESS_FORWARD, MIMO_ERR_STATE,
               "experts: backward before forward");
    int64_t count = all_rows(layer, saved->ends);
    saved->dy = dy;
    MIMO_TRY(nn_runtime_zero(layer->runtime, d_weights, count * (int64_t)sizeof *d_weights));
    for (int64_t e = 0; e < layer->count; e++) {
        const expert_rows at = rows_of(layer, saved, e);
        MIMO_TRY(back_through_down(layer, saved, d_weights, &at));
    }
    MIMO_TRY(ops->scale_rows(layer->runtime, saved->du, saved->du, saved->weights,
                             (nn_rows){.most = count}, layer->inner));
    MIMO_TRY(ops->gelu_backward(layer->runtime, saved->du, saved->u, saved->gate,
                                (nn_rows){.most = count}, layer->inner));
    for (int64_t e = 0; e < layer->count; e++) {
        const expert_rows at = rows_of(layer, saved, e);
        const expert_product up = up_of(layer, saved, &at);
        MIMO_TRY(product_backward(layer, &up, dx, saved->du, &at));
    }
    saved->progress = NN_PROGRESS_INPUT;
    return MIMO_OK;
}

static mimo_status add_gradients(const nn_experts *layer, nn_experts_saved *saved,
                                 const expert_rows *at)
{
    const expert_product up = up_of(layer, saved, at), down = down_of(layer, saved, at);
    const nn_token_product bias = {1, saved->dy + at->begin * layer->hidden,
                                   saved->weights + at->begin, layer->hidden, 1};
    MIMO_TRY(product_gradients(layer, &down, saved->dy, saved->down, at));
    MIMO_TRY(nn_sum_products(layer->params, at->expert->down.bias, &bias,
                             (nn_tokens){at->rows, at->rows}));
    MIMO_TRY(product_gradients(layer, &up, saved->du, saved->x, at));
    return nn_sum_rows(layer->params, at->expert->up.bias, saved->du + at->begin * layer->inner,
                       at->rows);
}

mimo_status nn_experts_backward_params(const nn_experts *layer, nn_experts_saved *saved)
{
    MIMO_CHECK(saved->progress == NN_PROGRESS_INPUT, MIMO_ERR_STATE,
               "experts: the parameters' half of backward before the input's");
    for (int64_t e = 0; e < layer->count; e++) {
        const expert_rows at = rows_of(layer, saved, e);
        MIMO_TRY(add_gradients(layer, saved, &at));
    }
    nn_poison(layer->runtime, saved->dy, all_rows(layer, saved->ends) * layer->hidden);
    saved->progress = NN_PROGRESS_NONE;
    return MIMO_OK;
}

mimo_status nn_experts_visit(nn_experts *layer, nn_lora_visit *visit)
{
    for (int64_t e = 0; e < layer->count; e++) {
        nn_expert *expert = &layer->list[e];
        MIMO_TRY(visit(&expert->up.lora, expert->up.weight));
        MIMO_TRY(visit(&expert->down.lora, expert->down.weight));
    }
    return MIMO_OK;
}
