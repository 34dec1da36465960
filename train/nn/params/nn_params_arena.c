#include <string.h>

#include "core/checked.h"
#include "core/memory.h"
#include "core/mutation.h"
#include "train/nn/ops/nn_fixed.h"
#include "train/nn/params/nn_initial.h"
#include "train/nn/params/nn_params_types.h"
#include "train/nn/params/nn_sizes.h"

/* The host makes the initial values, so that they are the same in every kind of memory. */
static mimo_status write_initial(const nn_params *params)
{
    nn_real *room;
    if (params->blank)
        return nn_runtime_zero(params->runtime, params->arena,
                               params->total * (int64_t)sizeof *params->arena);
    MIMO_TRY(mimo_reserve(&room, nn_params_largest(params), sizeof *room));
    mimo_status status = MIMO_OK;
    for (int i = 0; i < params->n && status == MIMO_OK; i++) {
        const nn_param *param = &params->list[i];
        if (!param->held)
            continue;
        nn_initial_values(room, param, params->seed);
        status = nn_runtime_write(params->runtime, param->value, room,
                                  param->count * (int64_t)sizeof *room);
    }
    mimo_release(room);
    return status;
}

/* The offsets of the next parameter, in the values and in each array of the trained ones. */
typedef struct arena_offsets {
    int64_t value, trained;
} arena_offsets;

static void place_param(nn_params *params, nn_param *param, arena_offsets *next)
{
    param->value = params->arena + next->value;
    next->value += param->count;
    if (param->frozen)
        return;
    param->m = params->arena + params->total + next->trained;
    param->v = param->m + params->trained;
    param->grad = (params->sums ? (nn_real *)params->sums
                                : params->arena + params->total + 2 * params->trained) +
                  next->trained;
    param->sums = params->sums ? params->sums + next->trained : NULL;
    next->trained += param->count;
}

/* What each rule says to a bucket; `stages`: shard where there are several stages. */
static const struct rule_words {
    const char *name, *grid, *shard, *stages, *partial;
} rule_words[NN_RULES] = {
    [NN_REPLICATED] = {"replicated", NULL, "", "pp", ""},
    [NN_SHARDED] = {"sharded", NULL, "tp", "tp,pp", ""},
    [NN_PARTIAL] = {"partial", NULL, "", "pp", "tp"},
    [NN_EXPERT_REPLICATED] = {"expert_replicated", NN_EXPERT_GRID, "ep", "ep,pp", ""},
    [NN_EXPERT_SHARDED] = {"expert_sharded", NN_EXPERT_GRID, "etp,ep", "etp,ep,pp", ""},
    [NN_EXPERT_PARTIAL] = {"expert_partial", NN_EXPERT_GRID, "ep", "ep,pp", "etp"},
};

/* The dimensions along which ranks hold different elements. */
static const char *shard_of(const nn_params *params, nn_rule rule)
{
    bool one = params->pp_size == 1 || MIMO_MUTATED("shard-without-pp");
    return one ? rule_words[rule].shard : rule_words[rule].stages;
}

mimo_gradient_bucket nn_rule_bucket(const nn_params *params, nn_rule rule)
{
    if (nn_rule_is_expert(rule) && MIMO_MUTATED("view-ignored"))
        rule -= NN_EXPERT_REPLICATED;
    return (mimo_gradient_bucket){.size = sizeof(mimo_gradient_bucket),
                                  .name = rule_words[rule].name,
                                  .module = params->module,
                                  .shard = shard_of(params, rule),
                                  .partial = rule_words[rule].partial,
                                  .grid = rule_words[rule].grid};
}

/* Trained parameters make a bucket, whichever rank holds them. */
static bool makes_bucket(const nn_param *param)
{
    return !param->frozen && (param->held || !MIMO_MUTATED("bucket-where-held"));
}

/* Lay out the parameters of one rule, and describe the trained ones as one bucket. */
static mimo_status seal_rule(nn_params *params, nn_rule rule, arena_offsets *next)
{
    mimo_gradient_bucket bucket = nn_rule_bucket(params, rule);
    int64_t begin = next->trained;
    bool trained = false; /* on any stage */
    for (int i = 0; i < params->n; i++) {
        nn_param *param = &params->list[i];
        if (param->rule != rule)
            continue;
        trained = trained || makes_bucket(param);
        if (param->held)
            place_param(params, param, next);
    }
    if (!trained)
        return MIMO_OK;
    char text[NN_NAME_CAPACITY];
    MIMO_TRY(nn_join(text, params->name, bucket.name));
    MIMO_TRY(mimo_copy_string(&params->bucket_names[rule], text));
    bucket.name = params->bucket_names[rule];
    bucket.grad = params->sums ? (void *)(params->sums + begin)
                               : params->arena + params->total + 2 * params->trained + begin;
    bucket.count = next->trained - begin;
    bucket.dtype = params->sums ? MIMO_I64 : NN_DTYPE;
    params->buckets[params->n_buckets++] = bucket;
    return MIMO_OK;
}

/* Undo a seal that failed. */
static void unseal(nn_params *params)
{
    for (int i = 0; i < params->n; i++) {
        params->list[i].value = params->list[i].grad = params->list[i].m = params->list[i].v = NULL;
        params->list[i].sums = NULL;
    }
    for (int r = 0; r < NN_RULES; r++) {
        mimo_release(params->bucket_names[r]);
        params->bucket_names[r] = NULL;
    }
    nn_runtime_free(params->runtime, params->arena);
    nn_runtime_free(params->runtime, params->sums);
    params->arena = NULL;
    params->sums = NULL;
    params->n_buckets = 0;
}

static mimo_status reserve_arenas(nn_params *params)
{
    int64_t elements;
    MIMO_TRY(mimo_mul(&elements, params->trained, nn_params_fixed(params) ? 2 : 3));
    MIMO_TRY(mimo_add(&elements, elements, params->total));
    MIMO_TRY(nn_runtime_reserve(params->runtime, &params->arena, elements, sizeof *params->arena));
    return nn_params_fixed(params) ? nn_runtime_reserve(params->runtime, &params->sums,
                                                        params->trained, sizeof *params->sums)
                                   : MIMO_OK;
}

mimo_status nn_params_seal(nn_params *params)
{
    MIMO_CHECK(params, MIMO_ERR_ARGUMENT, "seal: NULL store");
    MIMO_CHECK(!params->arena, MIMO_ERR_STATE, "parameter store \"%s\" is sealed already",
               params->name);
    int64_t total = 0, trained = 0;
    for (int i = 0; i < params->n; i++) {
        MIMO_TRY(mimo_add(&total, total, params->list[i].count));
        trained += params->list[i].frozen ? 0 : params->list[i].count; /* at most total */
    }
    params->total = total;
    params->trained = trained;
    arena_offsets next = {0, 0};
    mimo_status status = reserve_arenas(params);
    for (int rule = 0; rule < NN_RULES && status == MIMO_OK; rule++)
        status = seal_rule(params, (nn_rule)rule, &next);
    if (status == MIMO_OK)
        status = write_initial(params);
    if (status != MIMO_OK)
        unseal(params);
    return status;
}

mimo_status nn_params_reset(nn_params *params)
{
    MIMO_CHECK(params && params->arena, MIMO_ERR_STATE, "reset: the store is not sealed");
    MIMO_TRY(nn_params_check_unmerged(params, "reset"));
    MIMO_TRY(write_initial(params)); /* first, as it needs memory */
    MIMO_TRY(nn_runtime_zero(params->runtime, params->arena + params->total,
                             2 * params->trained * (int64_t)sizeof *params->arena));
    params->steps = 0;
    return MIMO_OK;
}

mimo_status nn_params_check_settled(const nn_params *params, const char *what)
{
    MIMO_CHECK(!params->sums || params->settled, MIMO_ERR_STATE,
               "%s: gradients are still sums in fixed point", what);
    return MIMO_OK;
}

mimo_status nn_params_check_unsettled(const nn_params *params)
{
    MIMO_CHECK(!params->sums || !params->settled, MIMO_ERR_STATE,
               "parameter store \"%s\": its gradients are settled already", params->name);
    return MIMO_OK;
}

mimo_status nn_params_check_part(const nn_params *params, int index, nn_part part)
{
    MIMO_CHECK(params && index >= 0 && index < params->n, MIMO_ERR_ARGUMENT,
               "parameter %d of a store of %d", index, params ? params->n : 0);
    MIMO_CHECK(params->arena, MIMO_ERR_STATE, "parameter store \"%s\" is not sealed", params->name);
    MIMO_CHECK((unsigned)part <= NN_MOMENT_V, MIMO_ERR_ARGUMENT, "parameter \"%s\": no part %d",
               params->list[index].name, (int)part);
    const nn_param *param = &params->list[index];
    MIMO_CHECK(nn_param_has(param, part), MIMO_ERR_STATE,
               "parameter \"%s\" is frozen: it has a value, and no part %d", param->name,
               (int)part);
    MIMO_CHECK(part != NN_GRAD || !params->sums || params->settled, MIMO_ERR_STATE,
               "parameter \"%s\": its gradient is still a sum in fixed point", param->name);
    return MIMO_OK;
}

mimo_status nn_params_array(nn_real **out, const nn_params *params, int index, nn_part part)
{
    MIMO_TRY(nn_params_check_part(params, index, part));
    const nn_param *param = &params->list[index];
    MIMO_CHECK(param->held || param->stage != params->pp_rank, MIMO_ERR_STATE,
               "parameter \"%s\" is of an expert of other ranks", param->name);
    MIMO_CHECK(param->held, MIMO_ERR_STATE, "parameter \"%s\" is of stage %d, and this is stage %d",
               param->name, param->stage, params->pp_rank);
    *out = nn_param_array(param, part);
    return MIMO_OK;
}

mimo_status nn_params_read(const nn_params *params, int index, nn_part part, nn_real *to)
{
    nn_real *from = NULL;
    MIMO_TRY(nn_params_array(&from, params, index, part));
    return nn_runtime_read(params->runtime, to, from,
                           params->list[index].count * (int64_t)sizeof *to);
}

mimo_status nn_params_write(nn_params *params, int index, nn_part part, const nn_real *from)
{
    nn_real *to = NULL;
    MIMO_TRY(nn_params_array(&to, params, index, part));
    if (part == NN_VALUE)
        MIMO_TRY(nn_params_check_unmerged(params, params->list[index].name));
    return nn_runtime_write(params->runtime, to, from,
                            params->list[index].count * (int64_t)sizeof *to);
}

mimo_status nn_params_zero_grad(nn_params *params)
{
    if (!params->arena)
        return MIMO_OK;
    params->settled = false;
    if (params->sums)
        return nn_runtime_zero(params->runtime, params->sums,
                               params->trained * (int64_t)sizeof *params->sums);
    return nn_runtime_zero(params->runtime, params->arena + params->total + 2 * params->trained,
                           params->trained * (int64_t)sizeof *params->arena);
}

mimo_status nn_params_settle(nn_params *params, int64_t tokens)
{
    MIMO_CHECK(params && params->arena, MIMO_ERR_STATE, "settle: the store is not sealed");
    if (!params->sums)
        return MIMO_OK;
    MIMO_TRY(nn_params_check_unsettled(params));
    double factor = 1 / NN_FIXED_ONE / (double)(tokens > 0 ? tokens : 1);
    MIMO_TRY(params->runtime->ops->settle(params->runtime, params->sums, params->trained, factor));
    params->settled = true;
    return MIMO_OK;
}
