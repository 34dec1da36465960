#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/checked.h"
#include "core/hash.h"
#include "core/memory.h"
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
    nn_real *arena; /* value | grad | m | v, `total` elements each; NULL before seal */
    int64_t total;
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

double nn_normal(uint64_t seed, const char *name, int64_t index)
{
    return keyed_normal(element_key(seed, name), index);
}

mimo_status nn_params_create(nn_params **out, const nn_params_desc *desc)
{
    MIMO_CHECK(out && desc && desc->name, MIMO_ERR_ARGUMENT,
               "parameter store: NULL out, descriptor or name");
    MIMO_CHECK(desc->tp_size >= 1 && desc->tp_rank >= 0 && desc->tp_rank < desc->tp_size,
               MIMO_ERR_ARGUMENT, "parameter store \"%s\": tp rank %d of %d", desc->name,
               desc->tp_rank, desc->tp_size);
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
    params->runtime = nn_runtime_or_host(desc->runtime);
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
    MIMO_CHECK((unsigned)desc->init <= NN_INIT_NORMAL, MIMO_ERR_ARGUMENT,
               "parameter \"%s\": unknown init %d", desc->name, (int)desc->init);
    if (desc->rule != NN_SHARDED)
        return MIMO_OK;
    MIMO_CHECK(desc->shard_dim >= 0 && desc->shard_dim < desc->ndim, MIMO_ERR_ARGUMENT,
               "parameter \"%s\": shard dimension %d of %d", desc->name, desc->shard_dim,
               desc->ndim);
    return nn_check_divides(desc->name, "sharded dimension", desc->shape[desc->shard_dim],
                            params->tp_size);
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
    param->name = name;
    param->ndim = desc->ndim;
    param->shape[0] = param->local[0] = desc->shape[0];
    param->shape[1] = param->local[1] = desc->ndim == 2 ? desc->shape[1] : 1;
    param->shard_dim = -1;
    param->rule = desc->rule;
    param->decay = desc->decay;
    param->init = desc->init;
    param->std = desc->std;
    if (desc->rule == NN_SHARDED) {
        int64_t length = desc->shape[desc->shard_dim] / params->tp_size;
        param->shard_dim = desc->shard_dim;
        param->local[desc->shard_dim] = length;
        param->start = params->tp_rank * length;
    }
    param->count = param->local[0] * param->local[1];
    *index = params->n++;
    return MIMO_OK;
}

static void set_initial(nn_real *value, const nn_param *param, uint64_t seed)
{
    uint64_t key = element_key(seed, param->name);
    int64_t row0 = param->shard_dim == 0 ? param->start : 0;
    int64_t column0 = param->shard_dim == 1 ? param->start : 0;
    for (int64_t i = 0; i < param->local[0]; i++) {
        nn_real *row = value + i * param->local[1];
        int64_t first = (row0 + i) * param->shape[1] + column0;
        for (int64_t j = 0; j < param->local[1]; j++)
            row[j] = param->init == NN_INIT_NORMAL
                         ? (nn_real)(param->std * keyed_normal(key, first + j))
                         : (nn_real)(param->init == NN_INIT_ONES);
    }
}

/* The host makes the initial values, so that they are the same in every kind of memory. */
static mimo_status write_initial(const nn_params *params)
{
    int64_t most = 0;
    nn_real *room;
    for (int i = 0; i < params->n; i++)
        if (params->list[i].count > most)
            most = params->list[i].count;
    MIMO_TRY(mimo_reserve(&room, most, sizeof *room));
    mimo_status status = MIMO_OK;
    for (int i = 0; i < params->n && status == MIMO_OK; i++) {
        const nn_param *param = &params->list[i];
        set_initial(room, param, params->seed);
        status = nn_runtime_write(params->runtime, param->value, room,
                                  param->count * (int64_t)sizeof *room);
    }
    mimo_release(room);
    return status;
}

/* Lay out the parameters of one rule from `offset` on and describe them as one bucket. */
static mimo_status seal_rule(nn_params *params, nn_rule rule, int64_t *offset)
{
    static const char *const names[NN_RULES] = {"replicated", "sharded", "partial"};
    int64_t begin = *offset;
    for (int i = 0; i < params->n; i++) {
        nn_param *param = &params->list[i];
        if (param->rule != rule)
            continue;
        param->value = params->arena + *offset;
        param->grad = param->value + params->total;
        param->m = param->grad + params->total;
        param->v = param->m + params->total;
        *offset += param->count;
    }
    if (*offset == begin)
        return MIMO_OK;
    char text[NN_NAME_CAPACITY];
    MIMO_TRY(nn_join(text, params->name, names[rule]));
    MIMO_TRY(mimo_copy_string(&params->bucket_names[rule], text));
    params->buckets[params->n_buckets++] = (mimo_gradient_bucket){
        .size = sizeof(mimo_gradient_bucket),
        .name = params->bucket_names[rule],
        .grad = params->arena + params->total + begin,
        .count = *offset - begin,
        .dtype = NN_DTYPE,
        .module = params->module,
        .shard = rule == NN_SHARDED ? "tp" : "",
        .partial = rule == NN_PARTIAL ? "tp" : "",
    };
    return MIMO_OK;
}

/* Undo a seal that failed. */
static void unseal(nn_params *params)
{
    for (int i = 0; i < params->n; i++)
        params->list[i].value = params->list[i].grad = params->list[i].m = params->list[i].v = NULL;
    for (int r = 0; r < NN_RULES; r++) {
        mimo_release(params->bucket_names[r]);
        params->bucket_names[r] = NULL;
    }
    nn_runtime_free(params->runtime, params->arena);
    params->arena = NULL;
    params->n_buckets = 0;
}

mimo_status nn_params_seal(nn_params *params)
{
    MIMO_CHECK(params, MIMO_ERR_ARGUMENT, "seal: NULL store");
    MIMO_CHECK(!params->arena, MIMO_ERR_STATE, "parameter store \"%s\" is sealed already",
               params->name);
    int64_t total = 0, elements;
    for (int i = 0; i < params->n; i++)
        MIMO_TRY(mimo_add(&total, total, params->list[i].count));
    MIMO_TRY(mimo_mul(&elements, total, 4));
    MIMO_TRY(nn_runtime_reserve(params->runtime, &params->arena, elements, sizeof *params->arena));
    params->total = total;
    int64_t offset = 0;
    mimo_status status = MIMO_OK;
    for (int rule = 0; rule < NN_RULES && status == MIMO_OK; rule++)
        status = seal_rule(params, (nn_rule)rule, &offset);
    if (status == MIMO_OK)
        status = write_initial(params);
    if (status != MIMO_OK)
        unseal(params);
    return status;
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

static mimo_status find_part(nn_real **out, const nn_params *params, int index, nn_part part)
{
    MIMO_CHECK(params && index >= 0 && index < params->n, MIMO_ERR_ARGUMENT,
               "parameter %d of a store of %d", index, params ? params->n : 0);
    MIMO_CHECK(params->arena, MIMO_ERR_STATE, "parameter store \"%s\" is not sealed", params->name);
    MIMO_CHECK((unsigned)part <= NN_MOMENT_V, MIMO_ERR_ARGUMENT, "parameter \"%s\": no part %d",
               params->list[index].name, (int)part);
    *out = params->list[index].value + (int)part * params->total;
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

int nn_params_tp_rank(const nn_params *params)
{
    return params->tp_rank;
}

int nn_params_tp_size(const nn_params *params)
{
    return params->tp_size;
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
    return nn_runtime_zero(params->runtime, params->arena + params->total,
                           params->total * (int64_t)sizeof *params->arena);
}

int64_t nn_params_steps(const nn_params *params)
{
    return params->steps;
}

void nn_params_set_steps(nn_params *params, int64_t steps)
{
    params->steps = steps;
}
