#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/checked.h"
#include "core/hash.h"
#include "core/memory.h"
#include "core/mutation.h"
#include "nn/nn_fixed.h"
#include "nn/nn_ops.h"
#include "nn/nn_params.h"
#include "nn/nn_sizes.h"

struct nn_params {
    char *name;
    mimo_side module;
    int tp_rank, tp_size;
    uint64_t seed;
    const nn_runtime *runtime;
    int n;
    nn_param *list;
    nn_real *arena; /* value [total] | m | v | grad [trained] each; NULL before seal */
    int64_t *sums;  /* the fixed order: [trained], and no grad in the arena; settled: grad */
    int64_t total, trained;
    int64_t shards, pairs;
    bool settled;
    bool frozen;
    nn_params_counts exchanged;
    mimo_gradient_bucket buckets[NN_RULES];
    char *bucket_names[NN_RULES];
    int n_buckets;
    int64_t steps;
};

static uint64_t element_key(uint64_t seed, const char *name)
{
    return mimo_hash_bytes(mimo_hash_int(MIMO_HASH_START, (int64_t)seed), name, strlen(name));
}

/* Uniform in (0, 1], from the upper 53 bits. */
static double uniform(uint64_t key, int64_t index)
{
    return (double)((mimo_hash_int(key, index) >> 11) + 1) * 0x1p-53;
}

/* Box-Muller. Each element has two counters of its own. */
static double keyed_normal(uint64_t key, int64_t index)
{
    double radius = sqrt(-2.0 * log(uniform(key, 2 * index)));
    return radius * cos(6.283185307179586 * uniform(key, 2 * index + 1));
}

static double keyed_uniform(uint64_t key, int64_t index)
{
    return 2 * uniform(key, index) - 1;
}

double nn_normal(uint64_t seed, const char *name, int64_t index)
{
    return keyed_normal(element_key(seed, name), index);
}

double nn_uniform(uint64_t seed, const char *name, int64_t index)
{
    return keyed_uniform(element_key(seed, name), index);
}

static bool is_fixed(const nn_params *params)
{
    return params->runtime->order == NN_ORDER_FIXED;
}

static mimo_status check_order(const nn_params_desc *desc)
{
    if (nn_runtime_or_host(desc->runtime)->order == NN_ORDER_FAST)
        return MIMO_OK;
    MIMO_TRY(nn_order_check_parts("V", desc->shards > 0 ? desc->shards : 1));
    MIMO_TRY(nn_order_check_parts("C / cp", desc->pairs > 0 ? desc->pairs : 1));
    return nn_order_check_ranks("tp", desc->tp_size, desc->shards > 0 ? desc->shards : 1);
}

mimo_status nn_params_create(nn_params **out, const nn_params_desc *desc)
{
    MIMO_CHECK(out && desc && desc->name, MIMO_ERR_ARGUMENT,
               "parameter store: NULL out, descriptor or name");
    MIMO_CHECK(desc->tp_size >= 1 && desc->tp_rank >= 0 && desc->tp_rank < desc->tp_size,
               MIMO_ERR_ARGUMENT, "parameter store \"%s\": tp rank %d of %d", desc->name,
               desc->tp_rank, desc->tp_size);
    MIMO_TRY(check_order(desc));
    nn_params *params;
    MIMO_TRY(mimo_reserve(&params, 1, sizeof *params));
    mimo_status status = mimo_copy_string(&params->name, desc->name);
    if (status != MIMO_OK) {
        nn_params_destroy(params);
        return status;
    }
    params->module = desc->module;
    params->tp_rank = desc->tp_rank;
    params->tp_size = desc->tp_size;
    params->seed = desc->seed;
    params->frozen = desc->frozen;
    params->runtime = nn_runtime_or_host(desc->runtime);
    params->shards = desc->shards > 0 ? desc->shards : 1;
    params->pairs = desc->pairs > 0 ? desc->pairs : 1;
    openblas_set_num_threads(1);
    *out = params;
    return MIMO_OK;
}

void nn_params_destroy(nn_params *params)
{
    if (!params)
        return;
    for (int i = 0; i < params->n; i++)
        mimo_release(params->list[i].name);
    for (int r = 0; r < NN_RULES; r++)
        mimo_release(params->bucket_names[r]);
    mimo_release(params->list);
    nn_runtime_free(params->runtime, params->arena);
    nn_runtime_free(params->runtime, params->sums);
    mimo_release(params->name);
    mimo_release(params);
}

static mimo_status check_desc(const nn_params *params, const nn_param_desc *desc)
{
    MIMO_CHECK(params && desc && desc->name && *desc->name, MIMO_ERR_ARGUMENT,
               "parameter: NULL store or descriptor, or no name");
    MIMO_CHECK(!params->arena, MIMO_ERR_STATE, "parameter \"%s\": the store is sealed", desc->name);
    MIMO_CHECK(nn_params_find(params, desc->name) < 0, MIMO_ERR_EXISTS,
               "parameter \"%s\" is in the store already", desc->name);
    MIMO_CHECK(desc->ndim == 1 || desc->ndim == 2, MIMO_ERR_ARGUMENT,
               "parameter \"%s\" has %d dimensions, must be 1 or 2", desc->name, desc->ndim);
    MIMO_TRY(nn_check_size(desc->name, "shape[0]", desc->shape[0]));
    MIMO_TRY(nn_check_size(desc->name, "shape[1]", desc->ndim == 2 ? desc->shape[1] : 1));
    MIMO_CHECK((unsigned)desc->rule < NN_RULES, MIMO_ERR_ARGUMENT,
               "parameter \"%s\": unknown gradient rule %d", desc->name, (int)desc->rule);
    MIMO_CHECK((unsigned)desc->init <= NN_INIT_UNIFORM, MIMO_ERR_ARGUMENT,
               "parameter \"%s\": unknown init %d", desc->name, (int)desc->init);
    if (desc->rule != NN_SHARDED)
        return MIMO_OK;
    MIMO_CHECK(desc->shard_dim >= 0 && desc->shard_dim < desc->ndim, MIMO_ERR_ARGUMENT,
               "parameter \"%s\": shard dimension %d of %d", desc->name, desc->shard_dim,
               desc->ndim);
    /* V is a multiple of tp. */
    return nn_check_divides(desc->name, "sharded dimension", desc->shape[desc->shard_dim],
                            is_fixed(params) ? params->shards : params->tp_size);
}

mimo_status nn_params_add(nn_params *params, const nn_param_desc *desc, int *index)
{
    MIMO_TRY(check_desc(params, desc));
    char *name;
    MIMO_TRY(mimo_copy_string(&name, desc->name));
    mimo_status status = mimo_regrow(&params->list, params->n, params->n + 1, sizeof *params->list);
    if (status != MIMO_OK) {
        mimo_release(name);
        return status;
    }
    nn_param *param = &params->list[params->n];
    *param = (nn_param){
        .name = name,
        .ndim = desc->ndim,
        .placement = {{desc->shape[0], desc->ndim == 2 ? desc->shape[1] : 1},
                      desc->rule == NN_SHARDED ? desc->shard_dim : -1,
                      params->tp_size},
        .rule = desc->rule,
        .packing = desc->packing,
        .decay = desc->decay,
        .adapter = desc->adapter,
        .frozen = params->frozen && !desc->adapter,
        .init = desc->init,
        .std = desc->std,
    };
    nn_placement_local(&param->placement, params->tp_rank, param->local, &param->start);
    param->count = param->local[0] * param->local[1];
    *index = params->n++;
    return MIMO_OK;
}

static nn_real initial(const nn_param *param, uint64_t key, int64_t index)
{
    switch (param->init) {
    case NN_INIT_NORMAL:
        return (nn_real)(param->std * keyed_normal(key, index));
    case NN_INIT_UNIFORM:
        return (nn_real)(param->std * keyed_uniform(key, index));
    default:
        return (nn_real)(param->init == NN_INIT_ONES);
    }
}

static void set_initial(nn_real *value, const nn_param *param, const nn_params *params)
{
    uint64_t key = element_key(params->seed, param->name);
    if (MIMO_MUTATED("init-by-rank"))
        key = mimo_hash_int(key, params->tp_rank);
    for (int64_t i = 0; i < nn_placement_runs(&param->placement); i++) {
        nn_run run = nn_placement_run(&param->placement, params->tp_rank, i);
        for (int64_t j = 0; j < run.count; j++)
            value[run.local + j] = initial(param, key, run.global + j);
    }
}

/* The host makes the initial values, so that they are the same in every kind of memory. */
static mimo_status write_initial(const nn_params *params)
{
    nn_real *room;
    MIMO_TRY(mimo_reserve(&room, nn_params_largest(params), sizeof *room));
    mimo_status status = MIMO_OK;
    for (int i = 0; i < params->n && status == MIMO_OK; i++) {
        const nn_param *param = &params->list[i];
        set_initial(room, param, params);
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

/* Lay out the parameters of one rule, and describe the trained ones as one bucket. */
static mimo_status seal_rule(nn_params *params, nn_rule rule, arena_offsets *next)
{
    static const char *const names[NN_RULES] = {"replicated", "sharded", "partial"};
    int64_t begin = next->trained;
    for (int i = 0; i < params->n; i++)
        if (params->list[i].rule == rule)
            place_param(params, &params->list[i], next);
    if (next->trained == begin)
        return MIMO_OK;
    char text[NN_NAME_CAPACITY];
    MIMO_TRY(nn_join(text, params->name, names[rule]));
    MIMO_TRY(mimo_copy_string(&params->bucket_names[rule], text));
    params->buckets[params->n_buckets++] = (mimo_gradient_bucket){
        .size = sizeof(mimo_gradient_bucket),
        .name = params->bucket_names[rule],
        .grad = params->sums ? (void *)(params->sums + begin)
                             : params->arena + params->total + 2 * params->trained + begin,
        .count = next->trained - begin,
        .dtype = params->sums ? MIMO_I64 : NN_DTYPE,
        .module = params->module,
        .shard = rule == NN_SHARDED ? "tp" : "",
        .partial = rule == NN_PARTIAL ? "tp" : "",
    };
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
    MIMO_TRY(mimo_mul(&elements, params->trained, is_fixed(params) ? 2 : 3));
    MIMO_TRY(mimo_add(&elements, elements, params->total));
    MIMO_TRY(nn_runtime_reserve(params->runtime, &params->arena, elements, sizeof *params->arena));
    return is_fixed(params) ? nn_runtime_reserve(params->runtime, &params->sums, params->trained,
                                                 sizeof *params->sums)
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
    params->steps = 0;
    MIMO_TRY(nn_runtime_zero(params->runtime, params->arena + params->total,
                             2 * params->trained * (int64_t)sizeof *params->arena));
    return write_initial(params);
}

bool nn_params_sealed(const nn_params *params)
{
    return params->arena != NULL;
}

int nn_params_count(const nn_params *params)
{
    return params->n;
}

const nn_param *nn_params_at(const nn_params *params, int index)
{
    return &params->list[index];
}

int nn_params_find(const nn_params *params, const char *name)
{
    for (int i = 0; i < params->n; i++)
        if (strcmp(params->list[i].name, name) == 0)
            return i;
    return -1;
}

bool nn_param_has(const nn_param *param, nn_part part)
{
    return part == NN_VALUE || !param->frozen;
}

nn_real *nn_param_array(const nn_param *param, nn_part part)
{
    nn_real *const arrays[] = {param->value, param->grad, param->m, param->v};
    return arrays[part];
}

int64_t nn_params_largest(const nn_params *params)
{
    int64_t most = 1;
    for (int i = 0; i < params->n; i++)
        if (params->list[i].count > most)
            most = params->list[i].count;
    return most;
}

bool nn_params_trainable(const nn_params *params)
{
    for (int i = 0; i < params->n; i++)
        if (!params->list[i].frozen)
            return true;
    return false;
}

static mimo_status find_part(nn_real **out, const nn_params *params, int index, nn_part part)
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
    *out = nn_param_array(param, part);
    return MIMO_OK;
}

mimo_status nn_params_read(const nn_params *params, int index, nn_part part, nn_real *to)
{
    nn_real *from = NULL;
    MIMO_TRY(find_part(&from, params, index, part));
    return nn_runtime_read(params->runtime, to, from,
                           params->list[index].count * (int64_t)sizeof *to);
}

mimo_status nn_params_write(nn_params *params, int index, nn_part part, const nn_real *from)
{
    nn_real *to = NULL;
    MIMO_TRY(find_part(&to, params, index, part));
    return nn_runtime_write(params->runtime, to, from,
                            params->list[index].count * (int64_t)sizeof *to);
}

const nn_runtime *nn_params_runtime(const nn_params *params)
{
    return params->runtime;
}

int64_t nn_params_shards(const nn_params *params)
{
    return is_fixed(params) ? params->shards : 1;
}

int64_t nn_params_parts(const nn_params *params)
{
    return is_fixed(params) ? params->shards / params->tp_size : 1;
}

int64_t nn_params_pairs(const nn_params *params)
{
    return is_fixed(params) ? params->pairs : 1;
}

int nn_params_tp_rank(const nn_params *params)
{
    return params->tp_rank;
}

int nn_params_tp_size(const nn_params *params)
{
    return params->tp_size;
}

nn_params_counts *nn_params_exchanged(nn_params *params)
{
    return &params->exchanged;
}

mimo_status nn_params_buckets(const nn_params *params, const mimo_gradient_bucket **buckets, int *n)
{
    MIMO_CHECK(params && buckets && n, MIMO_ERR_ARGUMENT, "buckets: NULL argument");
    MIMO_CHECK(params->arena, MIMO_ERR_STATE, "parameter store \"%s\" is not sealed", params->name);
    *buckets = params->buckets;
    *n = params->n_buckets;
    return MIMO_OK;
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
    MIMO_CHECK(!params->settled, MIMO_ERR_STATE,
               "parameter store \"%s\": its gradients are settled already", params->name);
    double factor = 1 / NN_FIXED_ONE / (double)(tokens > 0 ? tokens : 1);
    MIMO_TRY(params->runtime->ops->settle(params->runtime, params->sums, params->trained, factor));
    params->settled = true;
    return MIMO_OK;
}

int64_t nn_params_steps(const nn_params *params)
{
    return params->steps;
}

void nn_params_set_steps(nn_params *params, int64_t steps)
{
    params->steps = steps;
}
