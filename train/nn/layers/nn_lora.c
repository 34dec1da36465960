#include "train/nn/layers/nn_lora.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/checked.h"
#include "core/mutation.h"
#include "device/device.h"
#include "train/nn/params/nn_support.h"

static bool is_target(const char *name, const char *target)
{
    size_t length = strlen(name), end = strlen(target);
    if (end > length || strcmp(name + length - end, target) != 0)
        return false;
    return end == length || name[length - end - 1] == '.';
}

const nn_lora_desc *nn_lora_for(const nn_lora_selection *selection, const char *name)
{
    if (!selection)
        return NULL;
    bool chosen = !selection->targets;
    for (int i = 0; i < selection->n_targets && !chosen; i++)
        chosen = is_target(name, selection->targets[i]);
    return chosen ? &selection->adapter : NULL;
}

static double scale_of(const nn_lora_desc *desc)
{
    return desc->alpha / (desc->rslora ? sqrt((double)desc->rank) : (double)desc->rank);
}

static mimo_status check_desc(const char *layer, const nn_lora_desc *desc)
{
    MIMO_TRY(nn_check_size(layer, "the adapter's rank", desc->rank));
    MIMO_CHECK(isfinite(desc->alpha) && desc->alpha > 0, MIMO_ERR_ARGUMENT,
               "%s: the adapter's alpha is %g, must be a number above 0", layer, desc->alpha);
    MIMO_CHECK(scale_of(desc) >= FLT_MIN && scale_of(desc) <= FLT_MAX, MIMO_ERR_ARGUMENT,
               "%s: the adapter's scale is %g, of alpha %g and rank %" PRId64
               ", and f32 holds %g to %g",
               layer, scale_of(desc), desc->alpha, desc->rank, FLT_MIN, FLT_MAX);
    MIMO_CHECK(isfinite(desc->b_std) && desc->b_std >= 0, MIMO_ERR_ARGUMENT,
               "%s: the adapter's b_std is %g, must be a number from 0 on", layer, desc->b_std);
    return MIMO_OK;
}

/* The ranks that cut the layer. */
static int64_t ranks_of(const nn_lora_target *target, const nn_params *params)
{
    return target->expert ? nn_params_experts(params)->etp_size : nn_params_tp_size(params);
}

/* The rule of the factor that tp does not cut: each rank sees a part of its gradient. */
static nn_rule uncut_rule(const nn_lora_target *target)
{
    if (target->expert && target->cut == 1 && MIMO_MUTATED("expert-b-whole"))
        return NN_REPLICATED;
    return target->cut >= 0 || target->split_rows ? NN_PARTIAL : NN_REPLICATED;
}

/* The same rule of an expert's parameter. */
static nn_rule rule_at(const nn_lora_target *target, nn_rule rule)
{
    if (target->expert && rule == NN_PARTIAL && target->cut == 0 && MIMO_MUTATED("expert-a-whole"))
        return NN_EXPERT_REPLICATED;
    return target->expert ? (nn_rule)(rule + NN_EXPERT_REPLICATED) : rule;
}

static nn_rule rule_of_a(const nn_lora_target *target)
{
    if (target->cut == 0 && !target->expert && MIMO_MUTATED("adapter-a-whole"))
        return NN_REPLICATED;
    return rule_at(target, target->cut == 1 ? NN_SHARDED : uncut_rule(target));
}

static nn_rule rule_of_b(const nn_lora_target *target)
{
    if (target->cut == 1 && !target->expert && MIMO_MUTATED("adapter-b-whole"))
        return NN_REPLICATED;
    return rule_at(target, target->cut == 0 ? NN_SHARDED : uncut_rule(target));
}

static double bound_of(const nn_lora_target *target, const nn_params *params)
{
    int64_t in = target->in;
    if (MIMO_MUTATED("init-local-fan-in") && target->cut == 1)
        in /= ranks_of(target, params);
    return 1 / sqrt((double)in);
}

static mimo_status add_factors(nn_lora *made, const nn_lora_target *target,
                               const nn_lora_desc *desc)
{
    char name[NN_NAME_CAPACITY];
    MIMO_TRY(nn_join(name, target->layer, "lora_A.weight"));
    nn_param_desc a = {.name = name,
                       .ndim = 2,
                       .shape = {desc->rank, target->in},
                       .rule = rule_of_a(target),
                       .shard_dim = 1,
                       .decay = true,
                       .adapter = true,
                       .elsewhere = target->elsewhere,
                       .init = NN_INIT_UNIFORM,
                       .std = bound_of(target, made->params)};
    MIMO_TRY(nn_params_add(made->params, &a, &made->a));
    MIMO_TRY(nn_join(name, target->layer, "lora_B.weight"));
    nn_param_desc b = {.name = name,
                       .ndim = 2,
                       .shape = {target->out, desc->rank},
                       .rule = rule_of_b(target),
                       .shard_dim = 0,
                       .packing = target->packing,
                       .decay = true,
                       .adapter = true,
                       .elsewhere = target->elsewhere,
                       .init = desc->b_std > 0 ? NN_INIT_NORMAL : NN_INIT_ZEROS,
                       .std = desc->b_std};
    if (MIMO_MUTATED("adapter-rows-apart"))
        b.packing = (nn_packing){0};
    return nn_params_add(made->params, &b, &made->b);
}

mimo_status nn_lora_init(nn_lora *lora, nn_params *params, const nn_lora_target *target,
                         const nn_lora_desc *desc)
{
    int64_t ranks = ranks_of(target, params), parts = target->expert ? 1 : nn_params_parts(params);
    MIMO_TRY(check_desc(target->layer, desc));
    MIMO_TRY(nn_check_size(target->layer, "max_rows, which an adapter needs,", target->max_rows));
    nn_lora made = {.params = params, .rank = desc->rank, .max_rows = target->max_rows};
    made.in = target->cut == 1 ? target->in / ranks : target->in;
    made.out = target->cut == 0 ? target->out / ranks : target->out;
    made.z_parts = target->cut == 1 ? parts : 1;
    made.dz_parts = target->cut == 0 ? parts : 1;
    made.scale = scale_of(desc);
    MIMO_TRY(add_factors(&made, target, desc));
    *lora = made;
    return MIMO_OK;
}

void nn_lora_release(nn_lora *lora)
{
    nn_runtime_free(lora->params ? nn_params_runtime(lora->params) : NULL, lora->unmerged);
    memset(lora, 0, sizeof *lora);
}

mimo_status nn_lora_saved_take(nn_lora_saved *saved, const nn_lora *lora, nn_room *room)
{
    int64_t elements, z, dz;
    *saved = (nn_lora_saved){0};
    if (lora->rank == 0)
        return MIMO_OK;
    MIMO_TRY(mimo_mul(&elements, lora->max_rows, lora->rank));
    MIMO_TRY(mimo_mul(&z, elements, lora->z_parts));
    MIMO_TRY(mimo_mul(&dz, elements, lora->dz_parts));
    MIMO_TRY(nn_room_take(room, &saved->z, z, sizeof *saved->z));
    return nn_room_take(room, &saved->dz, dz, sizeof *saved->dz);
}

static nn_matrix a_of(const nn_lora *lora)
{
    return nn_matrix_of(nn_value(lora->params, lora->a), lora->rank, lora->in, lora->in);
}

static nn_matrix b_of(const nn_lora *lora)
{
    return nn_matrix_of(nn_value(lora->params, lora->b), lora->out, lora->rank, lora->rank);
}

static nn_matrix rows_of(const nn_real *data, int64_t rows, int64_t width)
{
    return nn_matrix_of(data, rows, width, width);
}

/* to [parts, rows, rank] = alpha x a, with the columns of x and the rows of a cut into parts: each
 * part is a product of its own. */
static mimo_status project(const nn_lora *lora, nn_real *to, double alpha, nn_matrix x, nn_matrix a,
                           int64_t parts)
{
    const nn_runtime *runtime = nn_params_runtime(lora->params);
    int64_t width = x.columns / parts;
    x.step = width;
    a.step = a.transposed ? width : width * a.stride;
    x.columns = a.rows = width;
    nn_product product = {.c = to,
                          .stride = lora->rank,
                          .step = x.rows * lora->rank,
                          .alpha = (nn_real)alpha,
                          .a = x,
                          .b = a,
                          .count = parts};
    return runtime->ops->matmul(runtime, &product);
}

/* Merged, the weight has the adapter's part. */
static bool adds_in_forward(const nn_lora *lora)
{
    return lora->rank > 0 && !lora->unmerged;
}

mimo_status nn_lora_forward(const nn_lora *lora, nn_lora_saved *saved, const nn_real *x,
                            int64_t rows)
{
    saved->rows = rows;
    saved->merged = lora->unmerged ? lora : NULL;
    if (!adds_in_forward(lora))
        return MIMO_OK;
    return project(lora, saved->z, 1, rows_of(x, rows, lora->in), nn_transpose(a_of(lora)),
                   lora->z_parts);
}

bool nn_lora_output(nn_factors *added, const nn_lora *lora, const nn_lora_saved *saved)
{
    if (!adds_in_forward(lora))
        return false;
    double scale = lora->scale;
    if (MIMO_MUTATED("adapter-mean") && nn_params_at(lora->params, lora->b)->rule == NN_PARTIAL)
        scale /= nn_params_tp_size(lora->params);
    *added = (nn_factors){.alpha = (nn_real)scale,
                          .a = rows_of(saved->z, saved->rows, lora->rank),
                          .b = nn_transpose(b_of(lora)),
                          .a_part = lora->z_parts > 1 ? saved->rows * lora->rank : 0};
    return true;
}

/* The layer's name, for sentences: its length in the name that it returns. */
static const char *layer_of(const nn_lora *lora, int *length)
{
    const char *factor = nn_params_at(lora->params, lora->a)->name;
    *length = (int)(strlen(factor) - strlen(".lora_A.weight"));
    return factor;
}

/* Backward takes z from the forward, which had none while merged. */
static mimo_status check_z(const nn_lora_saved *saved)
{
    int length;
    if (!saved->merged)
        return MIMO_OK;
    const char *layer = layer_of(saved->merged, &length);
    return mimo_fail(MIMO_ERR_STATE,
                     "%.*s: the adapter was merged in the last forward: backward needs another one",
                     length, layer);
}

mimo_status nn_lora_check_backward(const nn_lora *lora, const nn_lora_saved *saved)
{
    int length;
    if (lora->rank == 0)
        return MIMO_OK;
    const char *layer = layer_of(lora, &length);
    MIMO_CHECK(!lora->unmerged, MIMO_ERR_STATE,
               "%.*s: the adapter is merged into the weight: unmerge before training", length,
               layer);
    return check_z(saved);
}

mimo_status nn_lora_backward(const nn_lora *lora, nn_lora_saved *saved, const nn_real *dy)
{
    if (lora->rank == 0)
        return MIMO_OK;
    MIMO_TRY(nn_lora_check_backward(lora, saved));
    return project(lora, saved->dz, lora->scale, rows_of(dy, saved->rows, lora->out), b_of(lora),
                   lora->dz_parts);
}

bool nn_lora_input(nn_factors *added, const nn_lora *lora, const nn_lora_saved *saved)
{
    if (lora->rank == 0 || MIMO_MUTATED("adapter-no-input"))
        return false;
    *added = (nn_factors){.alpha = 1,
                          .a = rows_of(saved->dz, saved->rows, lora->rank),
                          .b = a_of(lora),
                          .a_part = lora->dz_parts > 1 ? saved->rows * lora->rank : 0};
    return true;
}

mimo_status nn_lora_backward_params(const nn_lora *lora, const nn_lora_saved *saved,
                                    const nn_real *dy, const nn_real *x, nn_tokens tokens)
{
    if (lora->rank == 0)
        return MIMO_OK;
    double scale = lora->scale;
    if (MIMO_MUTATED("scale-twice"))
        scale *= lora->scale;
    int64_t part = tokens.rows * lora->rank;
    for (int64_t i = 0; i < lora->z_parts; i++) {
        nn_token_product b = {scale, dy, saved->z + i * part, lora->out, lora->rank};
        MIMO_TRY(nn_sum_products(lora->params, lora->b, &b, tokens));
    }
    for (int64_t i = 0; i < lora->dz_parts; i++) {
        nn_token_product a = {1, saved->dz + i * part, x, lora->rank, lora->in};
        MIMO_TRY(nn_sum_products(lora->params, lora->a, &a, tokens));
    }
    return MIMO_OK;
}

mimo_status nn_lora_merge(nn_lora *lora, int weight)
{
    if (lora->rank == 0)
        return MIMO_OK;
    const nn_runtime *runtime = nn_params_runtime(lora->params);
    nn_real *w = nn_value(lora->params, weight), *unmerged;
    int64_t elements = lora->in * lora->out;
    int length;
    const char *layer = layer_of(lora, &length);
    MIMO_CHECK(!lora->unmerged, MIMO_ERR_STATE, "%.*s: the adapter is merged already", length,
               layer);
    MIMO_TRY(nn_runtime_reserve(runtime, &unmerged, elements, sizeof *unmerged));
    double scale = lora->scale;
    if (MIMO_MUTATED("merge-unscaled"))
        scale = 1;
    mimo_status status =
        runtime->device->copy(unmerged, w, elements * (int64_t)sizeof *unmerged, runtime->stream);
    if (status == MIMO_OK)
        status = nn_add_product(
            runtime, w, &(nn_factors){.alpha = (nn_real)scale, .a = b_of(lora), .b = a_of(lora)});
    if (status != MIMO_OK) {
        nn_runtime_free(runtime, unmerged);
        return status;
    }
    lora->unmerged = unmerged;
    nn_params_count_merged(lora->params, 1);
    return MIMO_OK;
}

mimo_status nn_lora_unmerge(nn_lora *lora, int weight)
{
    if (lora->rank == 0)
        return MIMO_OK;
    const nn_runtime *runtime = nn_params_runtime(lora->params);
    int length;
    const char *layer = layer_of(lora, &length);
    MIMO_CHECK(lora->unmerged, MIMO_ERR_STATE, "%.*s: the adapter is not merged", length, layer);
    MIMO_TRY(runtime->device->copy(nn_value(lora->params, weight), lora->unmerged,
                                   lora->in * lora->out * (int64_t)sizeof(nn_real),
                                   runtime->stream));
    nn_runtime_free(runtime, lora->unmerged);
    lora->unmerged = NULL;
    nn_params_count_merged(lora->params, -1);
    return MIMO_OK;
}
