/* mimo_gradient_finalize: sums over data and partial dimensions, then one scale. */
#include <mimo/env.h>

#include "comm/calls.h"
#include "core/hash.h"
#include "core/memory.h"
#include "core/mutation.h"
#include "device/profile.h"
#include "gradient/gradient_state.h"

/* ------------------------------------------ groups ---------------------------------------- */

static mimo_gradient_group *find_group(const mimo_gradient *gradient, const mimo_bucket_rule *rule)
{
    for (int64_t i = 0; i < gradient->group_count; i++) {
        mimo_gradient_group *group = &gradient->groups[i];
        if (group->home == rule->home && group->dims == mimo_rule_sum(rule))
            return group;
    }
    return NULL;
}

/* Memory for the groups that the buckets may need. Local. */
static mimo_status reserve_groups(const mimo_bucket_call *call)
{
    mimo_gradient *gradient = call->gradient;
    int64_t needed = gradient->group_count;
    for (int i = 0; i < call->n; i++)
        needed += !find_group(gradient, &call->rules[i]);
    if (needed <= gradient->group_capacity)
        return MIMO_OK;
    MIMO_TRY(
        mimo_regrow(&gradient->groups, gradient->group_capacity, needed, sizeof *gradient->groups));
    gradient->group_capacity = needed;
    return MIMO_OK;
}

static mimo_status make_group(mimo_gradient *gradient, const mimo_bucket_rule *rule)
{
    mimo_gradient_group group = {.home = rule->home, .dims = mimo_rule_sum(rule)};
    if (group.dims == 0 || find_group(gradient, rule))
        return MIMO_OK;
    MIMO_TRY(mimo_grid_split_set(&group.comm, gradient->comm, gradient->grids[group.home].grid,
                                 group.dims));
    gradient->groups[gradient->group_count++] = group;
    return MIMO_OK;
}

/* Make the groups that the buckets need and that no earlier call made. All ranks make the same
 * groups, since they agreed on the buckets, and a split has the same outcome on all ranks. */
static mimo_status make_groups(const mimo_bucket_call *call)
{
    for (int i = 0; i < call->n; i++)
        MIMO_TRY(make_group(call->gradient, &call->rules[i]));
    return MIMO_OK;
}

/* The communicator that sums bucket i; NULL where no sum is needed, or this rank is outside. */
static mimo_comm *group_of(const mimo_bucket_call *call, int i)
{
    const mimo_gradient_group *group = find_group(call->gradient, &call->rules[i]);
    return group ? group->comm : NULL;
}

/* Memory for sums that are guarded. */
static mimo_status prepare_sums(const mimo_bucket_call *call)
{
    for (int i = 0; i < call->n; i++) {
        const mimo_gradient_bucket *bucket = &call->buckets[i];
        if (group_of(call, i))
            MIMO_TRY(mimo_guard_prepare(group_of(call, i), call->guarded, bucket->count,
                                        (int64_t)mimo_dtype_size(bucket->dtype)));
    }
    return MIMO_OK;
}

/* ------------------------------------------- sums ----------------------------------------- */

static mimo_status sum_bucket(const mimo_bucket_call *call, int i, mimo_stream stream)
{
    const mimo_gradient_bucket *bucket = &call->buckets[i];
    mimo_comm *group = group_of(call, i);
    mimo_request *request = NULL;
    char text[MIMO_CALL_TEXT];
    if (!group || bucket->count == 0)
        return MIMO_OK;
    if (bucket->module == MIMO_SRC && MIMO_MUTATED("no-encoder-sum"))
        return MIMO_OK;
    const mimo_reduction sum = {.data = bucket->grad,
                                .count = bucket->count,
                                .dtype = bucket->dtype,
                                .op = MIMO_SUM,
                                .guarded = call->guarded};
    MIMO_TRY(group->backend->allreduce_start(&request, group, &sum, stream));
    snprintf(text, sizeof text, "sum of gradient bucket '%s'", bucket->name);
    return mimo_wait(group, &request, text);
}

/* What makes a sum the gradient of the mean loss. */
static double factor_of(const mimo_gradient *gradient)
{
    int64_t tokens = gradient->total;
    if (MIMO_MUTATED("local-count"))
        tokens = gradient->tokens;
    return 1.0 / (double)(tokens > 0 ? tokens : 1);
}

static mimo_status scale_bucket(const mimo_bucket_call *call, int i, double factor,
                                mimo_stream stream)
{
    const mimo_gradient_bucket *bucket = &call->buckets[i];
    if (bucket->dtype == MIMO_I64)
        return MIMO_OK;
    if (MIMO_MUTATED("edp-mean"))
        factor /= (double)mimo_grid_dim_size(mimo_bucket_home(call, i)->grid, "edp");
    return call->gradient->comm->device->scale(bucket->grad, bucket->count, bucket->dtype, factor,
                                               stream);
}

static mimo_status sum_and_scale(const mimo_bucket_call *call, mimo_stream stream)
{
    const mimo_gradient *gradient = call->gradient;
    double factor = factor_of(gradient);
    if (MIMO_MUTATED("dp-mean"))
        factor /= (double)mimo_grid_dim_size(gradient->grids[MIMO_DST].grid, "dp");
    for (int i = 0; i < call->n; i++)
        MIMO_TRY(sum_bucket(call, i, stream));
    for (int i = 0; i < call->n; i++)
        MIMO_TRY(scale_bucket(call, i, factor, stream));
    return MIMO_OK;
}

/* On a device the host must not wait in every step. So buckets that all ranks agreed on are not
 * compared again, unless MIMO_CHECK=calls asks for it. A mistake of one rank is then known to that
 * rank only (`local`), as in any call that moves tensors. */
static mimo_status is_known(bool *out, const mimo_bucket_call *call, mimo_status local)
{
    int64_t checks;
    const mimo_gradient *gradient = call->gradient;
    MIMO_TRY(mimo_comm_checks(&checks, gradient->comm));
    *out = gradient->comm->device->enqueues && !(checks & MIMO_CHECK_CALLS) &&
           gradient->has_agreed &&
           (local != MIMO_OK || gradient->agreed == mimo_bucket_call_hash(call));
    return MIMO_OK;
}

/* Agree on this rank's status and the buckets, and make the groups that they need. */
static mimo_status agree_and_group(const mimo_bucket_call *call, mimo_status local,
                                   mimo_call_kind kind)
{
    mimo_gradient *gradient = call->gradient;
    const char *verb =
        kind == MIMO_CALL_GRADIENT_PREPARE ? "gradient prepare" : "gradient finalize";
    if (local == MIMO_OK)
        local = reserve_groups(call);
    MIMO_TRY(mimo_bucket_call_agree(call, local, kind, verb));
    MIMO_TRY(mimo_gradient_agree_on_counts(call));
    MIMO_TRY(make_groups(call));
    MIMO_TRY(mimo_agree_as(gradient->comm, MIMO_AGREE_CALL, prepare_sums(call),
                           mimo_signature_start(MIMO_CALL_GRADIENT_GROUPS), verb));
    gradient->agreed = mimo_bucket_call_hash(call);
    gradient->has_agreed = true;
    return MIMO_OK;
}

mimo_status mimo_gradient_prepare(mimo_gradient *gradient, const mimo_gradient_bucket *buckets,
                                  int n)
{
    MIMO_RANGE();
    mimo_bucket_call call = {
        .gradient = gradient, .buckets = buckets, .n = n, .before_count = true};
    MIMO_CHECK(gradient, MIMO_ERR_ARGUMENT, "mimo_gradient_prepare: gradient is NULL");
    MIMO_ENTER(gradient->comm, "mimo_gradient_prepare");
    call.guarded = mimo_is_guarding(gradient->comm);
    mimo_status status =
        agree_and_group(&call, mimo_bucket_call_prepare(&call), MIMO_CALL_GRADIENT_PREPARE);
    mimo_bucket_call_release(&call);
    return status;
}

mimo_status mimo_gradient_finalize(mimo_gradient *gradient, const mimo_gradient_bucket *buckets,
                                   int n, mimo_stream stream)
{
    MIMO_RANGE();
    mimo_bucket_call call = {.gradient = gradient, .buckets = buckets, .n = n};
    mimo_status status;
    MIMO_CHECK(gradient, MIMO_ERR_ARGUMENT, "mimo_gradient_finalize: gradient is NULL");
    MIMO_ENTER(gradient->comm, "mimo_gradient_finalize");
    bool known = false;
    call.guarded = mimo_is_guarding(gradient->comm);
    status = mimo_bucket_call_prepare(&call);
    if (status == MIMO_OK)
        status = mimo_finalized_check(&call);
    MIMO_KEEP_FIRST(status, is_known(&known, &call, status));
    if (!known)
        status = agree_and_group(&call, status, MIMO_CALL_GRADIENT_FINALIZE);
    if (status == MIMO_OK) {
        mimo_finalized_note(&call);
        status = sum_and_scale(&call, stream);
    }
    mimo_bucket_call_release(&call);
    return status;
}
