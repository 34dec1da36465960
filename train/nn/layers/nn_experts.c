#include "train/nn/layers/nn_experts.h"

#include <stdio.h>
#include <string.h>

#include "core/checked.h"
#include "core/mutation.h"
#include "train/nn/ops/nn_groups.h"
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
static void count_adapter(nn_expert_products *products, const nn_lora *lora, bool here)
{
    products->rank = mimo_larger(products->rank, lora->rank);
    if (here && lora->rank > 0)
        products->scale = lora->scale;
}

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
    count_adapter(&made->up, &expert->up.lora, here);
    count_adapter(&made->down, &expert->down.lora, here);
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
    made.up = (nn_expert_products){NN_EXPERT_UP, made.hidden, made.inner, 0, 0};
    made.down = (nn_expert_products){NN_EXPERT_DOWN, made.inner, made.hidden, 0, 0};
    mimo_status status = mimo_reserve(&made.list, count, sizeof *made.list);
    if (status == MIMO_OK)
        status = nn_expert_lists_init(&made.lists, made.runtime, count);
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
    nn_expert_lists_release(&layer->lists, layer->runtime);
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
    MIMO_TRY(place_adapters(&saved->up, layer, layer->up.rank, room));
    return place_adapters(&saved->down_lora, layer, layer->down.rank, room);
}

/* ------------------------------------------ products ------------------------------------------ */

static const nn_expert_linear *linear_of(const nn_expert *expert, nn_expert_layer which)
{
    return which == NN_EXPERT_UP ? &expert->up : &expert->down;
}

static nn_lora_saved *adapters_of(nn_experts_saved *saved, const nn_expert_products *it)
{
    return it->layer == NN_EXPERT_UP ? &saved->up : &saved->down_lora;
}

/* What all experts have of a part: b of a product for each. */
static nn_group_factors factors_of(const nn_experts *layer, const nn_expert_products *it,
                                   nn_expert_part part, const nn_real *a)
{
    return (nn_group_factors){
        .alpha = 1, .a = a, .b = nn_expert_values(&layer->lists, it->layer, part)};
}

static mimo_status multiply(const nn_experts *layer, const nn_experts_saved *saved, nn_real *c,
                            int64_t columns, const nn_group_factors *first,
                            const nn_group_factors *then)
{
    const nn_group_product product = {
        .groups = saved->groups, .c = c, .columns = columns, .first = *first, .then = then};
    return layer->runtime->ops->multiply_groups(layer->runtime, &product);
}

/* c += a b. */
static mimo_status add_product(const nn_experts *layer, const nn_experts_saved *saved, nn_real *c,
                               int64_t columns, const nn_group_factors *factors)
{
    const nn_group_product product = {
        .groups = saved->groups, .c = c, .columns = columns, .beta = 1, .first = *factors};
    return layer->runtime->ops->multiply_groups(layer->runtime, &product);
}

/* The first adapter that is merged, which leaves no z. */
static const nn_lora *merged_of(const nn_experts *layer, nn_expert_layer which)
{
    for (int64_t e = 0; e < layer->count; e++) {
        const nn_lora *lora = &linear_of(&layer->list[e], which)->lora;
        if (lora->unmerged)
            return lora;
    }
    return NULL;
}

/* y = x W^T + s (x A^T) B^T, of all rows. */
static mimo_status product_forward(const nn_experts *layer, const nn_expert_products *it,
                                   nn_experts_saved *saved, nn_real *y, const nn_real *x)
{
    nn_lora_saved *low = adapters_of(saved, it);
    nn_group_factors whole = factors_of(layer, it, NN_EXPERT_WEIGHT, x);
    nn_group_factors down = factors_of(layer, it, NN_EXPERT_A, x);
    nn_group_factors up = factors_of(layer, it, NN_EXPERT_B, low->z);
    whole.k = down.k = it->in, up.k = it->rank;
    whole.transposed = down.transposed = up.transposed = true;
    up.alpha = (nn_real)it->scale;
    if (it->layer == NN_EXPERT_DOWN && MIMO_MUTATED("expert-adapter-per-t"))
        up.alpha *= (nn_real)nn_params_experts(layer->params)->etp_size;
    low->merged = merged_of(layer, it->layer);
    if (it->scale > 0)
        MIMO_TRY(multiply(layer, saved, low->z, it->rank, &down, NULL));
    return multiply(layer, saved, y, it->out, &whole, it->scale > 0 ? &up : NULL);
}

/* dx = dy W + (s dy B) A */
static mimo_status product_backward(const nn_experts *layer, const nn_expert_products *it,
                                    nn_experts_saved *saved, nn_real *dx, const nn_real *dy)
{
    const nn_lora_saved *low = adapters_of(saved, it);
    nn_group_factors whole = factors_of(layer, it, NN_EXPERT_WEIGHT, dy);
    nn_group_factors down = factors_of(layer, it, NN_EXPERT_B, dy);
    nn_group_factors up = factors_of(layer, it, NN_EXPERT_A, low->dz);
    whole.k = down.k = it->out, up.k = it->rank;
    down.alpha = (nn_real)it->scale;
    if (it->scale > 0)
        MIMO_TRY(multiply(layer, saved, low->dz, it->rank, &down, NULL));
    return multiply(layer, saved, dx, it->in, &whole, it->scale > 0 ? &up : NULL);
}

/* The gradient of a part += scale dy^T x. */
static mimo_status add_gradient(const nn_experts *layer, const nn_experts_saved *saved,
                                nn_expert_layer which, nn_expert_part part,
                                const nn_token_product *product)
{
    const nn_group_sums sums = {.groups = saved->groups,
                                .scale = (nn_real)product->scale,
                                .dy = product->dy,
                                .x = product->x,
                                .out = product->out,
                                .in = product->in,
                                .to = nn_expert_gradients(&layer->lists, which, part)};
    return layer->runtime->ops->sum_groups(layer->runtime, &sums);
}

static mimo_status product_gradients(const nn_experts *layer, const nn_expert_products *it,
                                     nn_experts_saved *saved, const nn_real *dy, const nn_real *x)
{
    const nn_lora_saved *low = adapters_of(saved, it);
    const nn_real *z = low->z;
    if (MIMO_MUTATED("expert-z-of-next"))
        z += it->rank;
    const nn_token_product weight = {1, dy, x, it->out, it->in},
                           b = {it->scale, dy, z, it->out, it->rank},
                           a = {1, low->dz, x, it->rank, it->in};
    MIMO_TRY(add_gradient(layer, saved, it->layer, NN_EXPERT_WEIGHT, &weight));
    if (it->scale == 0)
        return MIMO_OK;
    MIMO_TRY(add_gradient(layer, saved, it->layer, NN_EXPERT_B, &b));
    return add_gradient(layer, saved, it->layer, NN_EXPERT_A, &a);
}

/* ------------------------------------------ the calls ---------------------------------------- */

/* Only the first of the ranks that share an expert adds the bias of down. */
static bool adds_bias(const nn_experts *layer)
{
    if (MIMO_MUTATED("bias-on-every-t"))
        return true;
    return nn_params_experts(layer->params)->etp_rank == 0;
}

/* The rows of this forward. In the fixed order the ends stay where they are: on a device the host
 * knows no number of rows, and calls are for as many as the tile has. */
static mimo_status take_rows(const nn_experts *layer, nn_experts_saved *saved,
                             const nn_expert_rows *rows)
{
    const nn_runtime *runtime = layer->runtime;
    const bool fixed = runtime->order == NN_ORDER_FIXED;
    const bool told = !fixed || runtime->memory == MIMO_MEMORY_HOST;
    int64_t count = told ? rows->ends[layer->count - 1] : 0;
    MIMO_TRY(nn_check_forward("experts", layer->params, count, layer->max_rows));
    saved->x = rows->x;
    saved->weights = rows->weights;
    saved->groups = (nn_groups){rows->ends, layer->count, fixed ? layer->max_rows : count};
    saved->filled = fixed ? nn_group_rows(&saved->groups) : (nn_rows){.most = count};
    return nn_expert_lists_update(&layer->lists, layer->params, layer->list);
}

static mimo_status go_up(const nn_experts *layer, nn_experts_saved *saved)
{
    const nn_runtime *runtime = layer->runtime;
    MIMO_TRY(product_forward(layer, &layer->up, saved, saved->u, saved->x));
    return runtime->ops->add_group_bias(
        runtime, saved->u, &saved->groups,
        nn_expert_values(&layer->lists, NN_EXPERT_UP, NN_EXPERT_BIAS), layer->inner);
}

static mimo_status go_down(const nn_experts *layer, nn_experts_saved *saved, nn_real *y)
{
    const nn_runtime *runtime = layer->runtime;
    nn_group_factors weighted = factors_of(layer, &layer->down, NN_EXPERT_BIAS, saved->weights);
    weighted.k = 1;
    MIMO_TRY(product_forward(layer, &layer->down, saved, y, saved->down));
    if (MIMO_MUTATED("weight-not-on-bias"))
        return runtime->ops->add_group_bias(runtime, y, &saved->groups, weighted.b, layer->hidden);
    return adds_bias(layer) ? add_product(layer, saved, y, layer->hidden, &weighted) : MIMO_OK;
}

mimo_status nn_experts_forward(const nn_experts *layer, nn_experts_saved *saved, nn_real *y,
                               const nn_expert_rows *rows)
{
    const nn_runtime *runtime = layer->runtime;
    saved->progress = NN_PROGRESS_NONE;
    MIMO_TRY(take_rows(layer, saved, rows));
    MIMO_TRY(go_up(layer, saved));
    MIMO_TRY(runtime->ops->gelu(runtime, saved->activated, saved->gate, saved->u, saved->filled,
                                layer->inner));
    MIMO_TRY(runtime->ops->scale_rows(runtime, saved->down, saved->activated, rows->weights,
                                      saved->filled, layer->inner));
    if (MIMO_MUTATED("weight-twice"))
        MIMO_TRY(runtime->ops->scale_rows(runtime, saved->down, saved->down, rows->weights,
                                          saved->filled, layer->inner));
    MIMO_TRY(go_down(layer, saved, y));
    saved->progress = NN_PROGRESS_FORWARD;
    return MIMO_OK;
}

/* Backward needs z of each adapter. */
static mimo_status check_adapters(const nn_experts *layer, const nn_experts_saved *saved)
{
    for (int64_t e = 0; e < layer->count; e++)
        MIMO_TRY(nn_lora_check_backward(&layer->list[e].down.lora, &saved->down_lora));
    for (int64_t e = 0; e < layer->count; e++)
        MIMO_TRY(nn_lora_check_backward(&layer->list[e].up.lora, &saved->up));
    return MIMO_OK;
}

/* The gradients of what down gets, and of the weights: of the activation, and of the bias. */
static mimo_status back_through_down(const nn_experts *layer, nn_experts_saved *saved,
                                     nn_real *d_weights)
{
    const nn_runtime *runtime = layer->runtime;
    nn_group_factors of_bias = factors_of(layer, &layer->down, NN_EXPERT_BIAS, saved->dy);
    of_bias.k = layer->hidden;
    MIMO_TRY(product_backward(layer, &layer->down, saved, saved->du, saved->dy));
    if (MIMO_MUTATED("pair-gradient-of-t0") && nn_params_experts(layer->params)->etp_rank > 0)
        return MIMO_OK;
    MIMO_TRY(runtime->ops->row_dots(runtime, d_weights, saved->activated, saved->du, saved->filled,
                                    layer->inner));
    return adds_bias(layer) ? add_product(layer, saved, d_weights, 1, &of_bias) : MIMO_OK;
}

mimo_status nn_experts_backward_input(const nn_experts *layer, nn_experts_saved *saved, nn_real *dx,
                                      nn_real *d_weights, nn_real *dy)
{
    const nn_runtime *runtime = layer->runtime;
    MIMO_CHECK(saved->progress >= NN_PROGRESS_FORWARD, MIMO_ERR_STATE,
               "experts: backward before forward");
    MIMO_TRY(check_adapters(layer, saved));
    saved->dy = dy;
    MIMO_TRY(nn_runtime_zero(runtime, d_weights, saved->groups.rows * (int64_t)sizeof *d_weights));
    MIMO_TRY(back_through_down(layer, saved, d_weights));
    MIMO_TRY(runtime->ops->scale_rows(runtime, saved->du, saved->du, saved->weights, saved->filled,
                                      layer->inner));
    MIMO_TRY(runtime->ops->gelu_backward(runtime, saved->du, saved->u, saved->gate, saved->filled,
                                         layer->inner));
    MIMO_TRY(product_backward(layer, &layer->up, saved, dx, saved->du));
    saved->progress = NN_PROGRESS_INPUT;
    return MIMO_OK;
}

mimo_status nn_experts_backward_params(const nn_experts *layer, nn_experts_saved *saved)
{
    MIMO_CHECK(saved->progress == NN_PROGRESS_INPUT, MIMO_ERR_STATE,
               "experts: the parameters' half of backward before the input's");
    const nn_token_product down_bias = {1, saved->dy, saved->weights, layer->hidden, 1},
                           up_bias = {1, saved->du, NULL, layer->inner, 1};
    MIMO_TRY(product_gradients(layer, &layer->down, saved, saved->dy, saved->down));
    MIMO_TRY(add_gradient(layer, saved, NN_EXPERT_DOWN, NN_EXPERT_BIAS, &down_bias));
    MIMO_TRY(product_gradients(layer, &layer->up, saved, saved->du, saved->x));
    MIMO_TRY(add_gradient(layer, saved, NN_EXPERT_UP, NN_EXPERT_BIAS, &up_bias));
    nn_poison(layer->runtime, saved->dy, saved->groups.rows * layer->hidden);
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
