#include <cblas.h>
#include <string.h>

#include "core/memory.h"
#include "train/nn/params/nn_params_types.h"
#include "train/nn/params/nn_sizes.h"

static mimo_status check_order(const nn_params_desc *desc)
{
    if (nn_runtime_or_host(desc->runtime)->order == NN_ORDER_FAST)
        return MIMO_OK;
    MIMO_TRY(nn_order_check_parts("V", desc->shards > 0 ? desc->shards : 1));
    MIMO_TRY(nn_order_check_parts("C / cp", desc->pairs > 0 ? desc->pairs : 1));
    return nn_order_check_ranks("tp", desc->tp_size, desc->shards > 0 ? desc->shards : 1);
}

/* A size of 0 counts as 1. */
static mimo_status set_experts(nn_expert_coords *to, const nn_params_desc *desc)
{
    nn_expert_coords coords = desc->experts;
    coords.etp_size += coords.etp_size == 0;
    coords.ep_size += coords.ep_size == 0;
    MIMO_CHECK(coords.etp_size >= 1 && coords.etp_rank >= 0 && coords.etp_rank < coords.etp_size &&
                   coords.ep_size >= 1 && coords.ep_rank >= 0 && coords.ep_rank < coords.ep_size,
               MIMO_ERR_ARGUMENT, "parameter store \"%s\": rank %d of etp=%d, rank %d of ep=%d",
               desc->name, coords.etp_rank, coords.etp_size, coords.ep_rank, coords.ep_size);
    *to = coords;
    return MIMO_OK;
}

mimo_status nn_params_create(nn_params **out, const nn_params_desc *desc)
{
    MIMO_CHECK(out && desc && desc->name, MIMO_ERR_ARGUMENT,
               "parameter store: NULL out, descriptor or name");
    MIMO_CHECK(desc->tp_size >= 1 && desc->tp_rank >= 0 && desc->tp_rank < desc->tp_size,
               MIMO_ERR_ARGUMENT, "parameter store \"%s\": tp rank %d of %d", desc->name,
               desc->tp_rank, desc->tp_size);
    int stages = desc->pp_size > 0 ? desc->pp_size : 1;
    MIMO_CHECK(desc->pp_rank >= 0 && desc->pp_rank < stages, MIMO_ERR_ARGUMENT,
               "parameter store \"%s\": stage %d of %d", desc->name, desc->pp_rank, stages);
    MIMO_TRY(check_order(desc));
    nn_expert_coords experts;
    MIMO_TRY(set_experts(&experts, desc));
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
    params->pp_rank = desc->pp_rank;
    params->pp_size = stages;
    params->experts = experts;
    params->seed = desc->seed;
    params->frozen = desc->frozen;
    params->blank = desc->blank;
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

mimo_status nn_params_set_stage(nn_params *params, int stage)
{
    MIMO_CHECK(params && stage >= 0 && stage < params->pp_size, MIMO_ERR_ARGUMENT,
               "parameter store \"%s\": there is no stage %d of %d", params ? params->name : "",
               stage, params ? params->pp_size : 0);
    params->stage = stage;
    return MIMO_OK;
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
    if (!nn_rule_is_sharded(desc->rule))
        return MIMO_OK;
    MIMO_CHECK(desc->shard_dim >= 0 && desc->shard_dim < desc->ndim, MIMO_ERR_ARGUMENT,
               "parameter \"%s\": shard dimension %d of %d", desc->name, desc->shard_dim,
               desc->ndim);
    if (nn_rule_is_expert(desc->rule))
        return nn_check_divides(desc->name, "sharded dimension", desc->shape[desc->shard_dim],
                                params->experts.etp_size);
    /* V is a multiple of tp. */
    return nn_check_divides(desc->name, "sharded dimension", desc->shape[desc->shard_dim],
                            nn_params_fixed(params) ? params->shards : params->tp_size);
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
    bool expert = nn_rule_is_expert(desc->rule);
    nn_param *param = &params->list[params->n];
    *param = (nn_param){
        .name = name,
        .ndim = desc->ndim,
        .placement = {{desc->shape[0], desc->ndim == 2 ? desc->shape[1] : 1},
                      nn_rule_is_sharded(desc->rule) ? desc->shard_dim : -1,
                      expert ? params->experts.etp_size : params->tp_size},
        .rank = expert ? params->experts.etp_rank : params->tp_rank,
        .rule = desc->rule,
        .packing = desc->packing,
        .decay = desc->decay,
        .adapter = desc->adapter,
        .frozen = desc->untrained || (params->frozen && !desc->adapter),
        .moved = desc->untrained && !params->frozen,
        .stage = params->stage,
        .held = params->stage == params->pp_rank && !desc->elsewhere,
        .init = desc->init,
        .std = desc->std,
    };
    if (param->held)
        nn_placement_local(&param->placement, param->rank, param->local, &param->start);
    param->count = param->local[0] * param->local[1];
    *index = params->n++;
    return MIMO_OK;
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

bool nn_param_changes(const nn_param *param)
{
    return !param->frozen || param->moved;
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

const nn_runtime *nn_params_runtime(const nn_params *params)
{
    return params->runtime;
}

int64_t nn_params_shards(const nn_params *params)
{
    return nn_params_fixed(params) ? params->shards : 1;
}

int64_t nn_params_parts(const nn_params *params)
{
    return nn_params_fixed(params) ? params->shards / params->tp_size : 1;
}

int64_t nn_params_pairs(const nn_params *params)
{
    return nn_params_fixed(params) ? params->pairs : 1;
}

int nn_params_tp_rank(const nn_params *params)
{
    return params->tp_rank;
}

int nn_params_tp_size(const nn_params *params)
{
    return params->tp_size;
}

int nn_params_pp_rank(const nn_params *params)
{
    return params->pp_rank;
}

int nn_params_pp_size(const nn_params *params)
{
    return params->pp_size;
}

const nn_expert_coords *nn_params_experts(const nn_params *params)
{
    return &params->experts;
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

void nn_params_count_merged(nn_params *params, int change)
{
    params->merged += change;
}

mimo_status nn_params_check_unmerged(const nn_params *params, const char *what)
{
    MIMO_CHECK(params->merged == 0, MIMO_ERR_STATE,
               "%s: adapters are merged into the weights (%d): unmerge first", what,
               params->merged);
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
