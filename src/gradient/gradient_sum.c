/* mimo_gradient_finalize: sums over data and partial dimensions, then one scale.
 * mimo_gradient_norm: each element once. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <mimo/env.h>

#include "core/address.h"
#include "core/checked.h"
#include "core/hash.h"
#include "core/memory.h"
#include "core/mutation.h"
#include "gradient/gradient_state.h"

/* ----------------------------------------- checks ---------------------------------------- */

static mimo_status read_span(mimo_span_rule *rule, const mimo_gradient *gradient,
                             const mimo_gradient_span *span, int i)
{
    int64_t bytes;
    char what[MIMO_CALL_TEXT];
    MIMO_CHECK(span->name, MIMO_ERR_ARGUMENT, "gradient span %d has no name", i);
    MIMO_CHECK(span->module == MIMO_SRC || span->module == MIMO_DST, MIMO_ERR_ARGUMENT,
               "gradient span '%s': unknown module %d", span->name, (int)span->module);
    MIMO_CHECK(mimo_dtype_size(span->dtype) > 0, MIMO_ERR_ARGUMENT,
               "gradient span '%s': unknown dtype %d", span->name, (int)span->dtype);
    MIMO_CHECK(span->dtype == MIMO_F32 || span->dtype == MIMO_F64 || span->dtype == MIMO_F16 ||
                   span->dtype == MIMO_BF16,
               MIMO_ERR_UNSUPPORTED, "gradient span '%s': dtype %s is no float that can be summed",
               span->name, mimo_dtype_name(span->dtype));
    MIMO_CHECK(span->count >= 0, MIMO_ERR_ARGUMENT, "gradient span '%s': %" PRId64 " elements",
               span->name, span->count);
    MIMO_TRY(mimo_mul(&bytes, span->count, (int64_t)mimo_dtype_size(span->dtype)));
    MIMO_CHECK(span->grad || span->count == 0, MIMO_ERR_ARGUMENT,
               "gradient span '%s': grad is NULL for %" PRId64 " elements", span->name,
               span->count);
    snprintf(what, sizeof what, "gradient span '%s': grad", span->name);
    MIMO_TRY(mimo_check_address(what, span->grad, span->count, span->dtype));
    MIMO_CHECK(mimo_grid_contains(gradient->grid[span->module], gradient->comm->rank) ||
                   span->count == 0,
               MIMO_ERR_GRID,
               "gradient span '%s': rank %d is outside the %s grid and has %" PRId64 " elements",
               span->name, gradient->comm->rank, mimo_module_name(span->module), span->count);
    return mimo_span_rule_of(rule, gradient->grid[span->module], span);
}

mimo_status mimo_gradient_read_spans(mimo_span_rule *rules, const mimo_gradient *gradient,
                                     const mimo_gradient_span *spans, int n)
{
    for (int i = 0; i < n; i++)
        MIMO_TRY(read_span(&rules[i], gradient, &spans[i], i));
    return MIMO_OK;
}

/* A call over spans: its arguments, and what was read from them. */
typedef struct span_call {
    mimo_gradient *gradient;
    const mimo_gradient_span *spans;
    int n;
    mimo_span_rule *rules; /* [n] */
    mimo_share *shares;    /* [comm size] */
    bool guarded;
} span_call;

static mimo_status prepare(span_call *call)
{
    const mimo_gradient *gradient = call->gradient;
    MIMO_CHECK(call->n >= 0 && (call->spans || call->n == 0), MIMO_ERR_ARGUMENT,
               "gradient: %d spans at %p", call->n, (const void *)call->spans);
    MIMO_CHECK(gradient->counted, MIMO_ERR_STATE,
               "gradient: mimo_gradient_count was not called since the last add (%" PRId64
               " tokens here)",
               gradient->tokens);
    MIMO_TRY(mimo_reserve(&call->rules, call->n, sizeof *call->rules));
    MIMO_TRY(mimo_reserve(&call->shares, gradient->comm->size, sizeof *call->shares));
    return mimo_gradient_read_spans(call->rules, gradient, call->spans, call->n);
}

static void release(span_call *call)
{
    mimo_release(call->rules);
    mimo_release(call->shares);
}

/* What every rank must pass alike of a span: name, module, dims and dtype. */
static uint64_t hash_span(uint64_t hash, const span_call *call, int i)
{
    const mimo_gradient_span *span = &call->spans[i];
    hash = mimo_hash_bytes(hash, span->name, strlen(span->name));
    hash = mimo_hash_int(mimo_hash_int(hash, span->module), span->dtype);
    return mimo_hash_int(mimo_hash_int(hash, call->rules[i].partial), call->rules[i].shard);
}

/* What the ranks agree on. Counts are not part of it: they may change on some ranks only, and every
 * rank decides by this hash whether to agree again. All ranks must decide the same. */
static uint64_t hash_call(const span_call *call)
{
    uint64_t hash = mimo_hash_int(MIMO_HASH_START, call->n);
    for (int i = 0; i < call->n; i++)
        hash = hash_span(hash, call, i);
    return hash;
}

/* The spans differ between ranks: agree on one after the other, so that the sentence names the
 * first that differs. */
static mimo_status name_span(const span_call *call, const char *verb)
{
    char text[MIMO_CALL_TEXT], partial[16], shard[16];
    for (int i = 0; i < call->n; i++) {
        const mimo_gradient_span *span = &call->spans[i];
        snprintf(text, sizeof text, "%s with span %d '%s' %s %s partial '%s' shard '%s'", verb, i,
                 span->name, mimo_module_name(span->module), mimo_dtype_name(span->dtype),
                 mimo_rule_text(call->rules[i].partial, partial),
                 mimo_rule_text(call->rules[i].shard, shard));
        MIMO_TRY(
            mimo_agree(call->gradient->comm, MIMO_OK, hash_span(MIMO_HASH_START, call, i), text));
    }
    return MIMO_OK;
}

/* Agree on this rank's status and on the call, then on the spans. Ranks may compare spans one by
 * one only if all of them are known to be in the same call with the same number of spans. */
static mimo_status agree(const span_call *call, mimo_status local, mimo_call_kind kind,
                         const char *verb)
{
    char text[MIMO_CALL_TEXT];
    mimo_comm *comm = call->gradient->comm;
    uint64_t hash = mimo_hash_int(mimo_signature_start(kind), call->n);
    snprintf(text, sizeof text, "%s of %d spans", verb, call->n);
    MIMO_TRY(mimo_agree(comm, local, hash, text));
    hash = mimo_hash_int(hash, (int64_t)hash_call(call));
    mimo_status status = mimo_agree(comm, MIMO_OK, hash, text);
    if (status == MIMO_ERR_MISMATCH)
        MIMO_TRY(name_span(call, verb));
    return status;
}

/* ---------------------------------------- finalize --------------------------------------- */

static mimo_status make_group(mimo_gradient *gradient, mimo_side module, unsigned mask)
{
    char dims[16];
    const mimo_grid *grid = gradient->grid[module];
    int64_t index = -1, position = 0;
    if (mask == 0 || gradient->made[module][mask])
        return MIMO_OK;
    if (mimo_grid_contains(grid, gradient->comm->rank))
        MIMO_TRY(mimo_grid_group_of(grid, mimo_rule_text(mask, dims), gradient->comm->rank, &index,
                                    &position));
    MIMO_TRY(
        mimo_comm_split(&gradient->group[module][mask], gradient->comm, (int)index, (int)position));
    gradient->made[module][mask] = true;
    return MIMO_OK;
}

/* Make the groups that the spans need and that no earlier call made. All ranks make the same
 * groups, since they agreed on the spans, and a split has the same outcome on all ranks. */
static mimo_status make_groups(const span_call *call)
{
    for (int i = 0; i < call->n; i++)
        MIMO_TRY(make_group(call->gradient, call->spans[i].module, mimo_rule_sum(&call->rules[i])));
    return MIMO_OK;
}

/* Gather every rank's number into call->shares, in rank order. */
static mimo_status gather_counts(const span_call *call, int64_t mine)
{
    mimo_comm *comm = call->gradient->comm;
    mimo_request *request = NULL;
    const mimo_share share = {0, mine};
    MIMO_TRY(
        comm->backend->host_allgather_start(&request, comm, call->shares, &share, sizeof share));
    return mimo_wait(comm, &request, "gradient finalize");
}

/* This rank's term of a sum over all ranks. The sum is 0 where each rank has the same number of
 * elements of each span as its representative: every rank subtracts the hash of its own count, and
 * a representative adds the hash of its count once for each rank that it represents. Sums wrap. */
static uint64_t weigh_counts(const span_call *call)
{
    const mimo_gradient *gradient = call->gradient;
    uint64_t sum = 0;
    for (int i = 0; i < call->n; i++) {
        const mimo_gradient_span *span = &call->spans[i];
        const mimo_grid *grid = gradient->grid[span->module];
        unsigned shard = call->rules[i].shard;
        uint64_t hash = mimo_hash_int(mimo_hash_int(MIMO_HASH_START, i), span->count);
        if (!mimo_grid_contains(grid, gradient->comm->rank))
            continue;
        sum -= hash;
        if (mimo_rule_is_representative(shard, grid, gradient->comm->rank))
            sum += hash * (uint64_t)mimo_rule_ranks(~shard & (MIMO_RULE_MASKS - 1), grid);
    }
    return sum;
}

/* The communicator that sums span i; NULL where no sum is needed, or this rank is outside. */
static mimo_comm *group_of(const span_call *call, int i)
{
    return call->gradient->group[call->spans[i].module][mimo_rule_sum(&call->rules[i])];
}

/* Memory for sums that are guarded. */
static mimo_status prepare_sums(const span_call *call)
{
    for (int i = 0; i < call->n; i++) {
        const mimo_gradient_span *span = &call->spans[i];
        if (group_of(call, i))
            MIMO_TRY(mimo_guard_prepare(group_of(call, i), call->guarded, span->count,
                                        (int64_t)mimo_dtype_size(span->dtype)));
    }
    return MIMO_OK;
}

/* Compare each rank's count of a span with its representative's, in rank order. All ranks read the
 * same counts, so all return the same. */
static mimo_status compare_counts(const span_call *call, int i)
{
    char dims[16];
    const mimo_span_rule *rule = &call->rules[i];
    const mimo_gradient_span *span = &call->spans[i];
    const mimo_grid *grid = call->gradient->grid[span->module];
    for (int rank = 0; rank < call->gradient->comm->size; rank++) {
        int64_t first = mimo_rule_representative(rule->shard, grid, rank);
        MIMO_CHECK(first < 0 || call->shares[rank].count == call->shares[first].count,
                   MIMO_ERR_MISMATCH,
                   "gradient span '%s' has %" PRId64 " elements on rank %d and %" PRId64
                   " on rank %" PRId64 ", and along %s ranks hold the same ones",
                   span->name, call->shares[rank].count, rank, call->shares[first].count, first,
                   mimo_rule_text(mimo_rule_same(rule), dims));
    }
    return MIMO_OK;
}

/* Ranks that are summed over, or hold copies, must have the same number of elements of a span.
 * Where they differ, the sentence names the first such span. Ranks are numbered as in the
 * communicator. */
static mimo_status agree_on_counts(const span_call *call)
{
    uint64_t sum = 0;
    bool wanted;
    const mimo_comm *comm = call->gradient->comm;
    MIMO_TRY(mimo_agreement_wanted(&wanted, comm, MIMO_AGREE_CALL));
    if (!wanted || comm->size == 1)
        return MIMO_OK;
    MIMO_TRY(gather_counts(call, (int64_t)weigh_counts(call)));
    for (int rank = 0; rank < comm->size; rank++)
        sum += (uint64_t)call->shares[rank].count;
    for (int i = 0; i < call->n && sum != 0; i++) {
        MIMO_TRY(gather_counts(call, call->spans[i].count));
        MIMO_TRY(compare_counts(call, i));
    }
    return MIMO_OK;
}

static mimo_status sum_span(const span_call *call, int i, mimo_stream stream)
{
    const mimo_gradient_span *span = &call->spans[i];
    mimo_comm *group = group_of(call, i);
    mimo_request *request = NULL;
    char text[MIMO_CALL_TEXT];
    if (!group || span->count == 0)
        return MIMO_OK;
    if (span->module == MIMO_SRC && MIMO_MUTATED("no-encoder-sum"))
        return MIMO_OK;
    const mimo_reduction sum = {span->grad, span->count, span->dtype,
                                MIMO_SUM,   false,       call->guarded};
    if (call->rules[i].partial && MIMO_MUTATED("partial-mean"))
        MIMO_TRY(group->device->scale(
            span->grad, span->count, span->dtype,
            1.0 / mimo_rule_ranks(call->rules[i].partial, call->gradient->grid[span->module]),
            stream));
    MIMO_TRY(group->backend->allreduce_start(&request, group, &sum, stream));
    snprintf(text, sizeof text, "sum of gradient span '%s'", span->name);
    return mimo_wait(group, &request, text);
}

/* For a mutation: as if every rank had divided by its own tokens, and the sum by the ranks. */
static mimo_status divide_by_own_count(const span_call *call, int i, mimo_stream stream)
{
    const mimo_gradient *gradient = call->gradient;
    const mimo_gradient_span *span = &call->spans[i];
    const mimo_grid *llm = gradient->grid[MIMO_DST];
    double ranks = (double)(mimo_grid_dim_size(llm, "cp") * mimo_grid_dim_size(llm, "dp"));
    double own = (double)(gradient->tokens > 0 ? gradient->tokens : 1);
    return gradient->comm->device->scale(span->grad, span->count, span->dtype,
                                         (double)gradient->total / (own * ranks), stream);
}

static mimo_status sum_and_scale(const span_call *call, mimo_stream stream)
{
    const mimo_gradient *gradient = call->gradient;
    double factor = 1.0 / (double)(gradient->total > 0 ? gradient->total : 1);
    if (MIMO_MUTATED("dp-mean"))
        factor /= (double)mimo_grid_dim_size(gradient->grid[MIMO_DST], "dp");
    for (int i = 0; i < call->n && MIMO_MUTATED("local-count"); i++)
        MIMO_TRY(divide_by_own_count(call, i, stream));
    for (int i = 0; i < call->n; i++)
        MIMO_TRY(sum_span(call, i, stream));
    for (int i = 0; i < call->n; i++)
        MIMO_TRY(gradient->comm->device->scale(call->spans[i].grad, call->spans[i].count,
                                               call->spans[i].dtype, factor, stream));
    return MIMO_OK;
}

/* On a device the host must not wait in every step. So spans that all ranks agreed on are not
 * compared again, unless MIMO_CHECK=calls asks for it. A mistake of one rank is then known to that
 * rank only (`local`), as in any call that moves tensors. */
static mimo_status is_known(bool *out, const span_call *call, mimo_status local)
{
    int64_t checks;
    const mimo_gradient *gradient = call->gradient;
    MIMO_TRY(mimo_env_get(MIMO_ENV_CHECK, &checks));
    *out = gradient->comm->device->enqueues && !(checks & MIMO_CHECK_CALLS) &&
           gradient->has_agreed && (local != MIMO_OK || gradient->agreed == hash_call(call));
    return MIMO_OK;
}

/* Agree on the spans, and make the groups that they need. */
static mimo_status agree_and_group(const span_call *call, mimo_status local)
{
    mimo_gradient *gradient = call->gradient;
    MIMO_TRY(agree(call, local, MIMO_CALL_GRADIENT_FINALIZE, "gradient finalize"));
    MIMO_TRY(agree_on_counts(call));
    MIMO_TRY(make_groups(call));
    MIMO_TRY(mimo_agree(gradient->comm, prepare_sums(call),
                        mimo_signature_start(MIMO_CALL_GRADIENT_GROUPS), "gradient finalize"));
    gradient->agreed = hash_call(call);
    gradient->has_agreed = true;
    return MIMO_OK;
}

mimo_status mimo_gradient_finalize(mimo_gradient *gradient, const mimo_gradient_span *spans, int n,
                                   mimo_stream stream)
{
    span_call call = {gradient, spans, n, NULL, NULL, false};
    mimo_status status;
    MIMO_CHECK(gradient, MIMO_ERR_ARGUMENT, "mimo_gradient_finalize: gradient is NULL");
    bool known = false;
    call.guarded = mimo_is_guarding(gradient->comm);
    status = prepare(&call);
    MIMO_KEEP_FIRST(status, is_known(&known, &call, status));
    if (!known)
        status = agree_and_group(&call, status);
    if (status == MIMO_OK)
        status = sum_and_scale(&call, stream);
    release(&call);
    return status;
}

/* ------------------------------------------ norm ----------------------------------------- */

/* The sum of the squares of the elements that this rank represents. */
static mimo_status sum_own_squares(const span_call *call, double *sum, mimo_stream stream)
{
    const mimo_comm *comm = call->gradient->comm;
    *sum = 0;
    for (int i = 0; i < call->n; i++) {
        const mimo_gradient_span *span = &call->spans[i];
        double squares;
        if (!mimo_rule_is_representative(call->rules[i].shard, call->gradient->grid[span->module],
                                         comm->rank) &&
            !MIMO_MUTATED("norm-of-copies"))
            continue;
        MIMO_TRY(comm->device->sum_squares(&squares, span->grad, span->count, span->dtype, stream));
        *sum += squares;
    }
    return MIMO_OK;
}

mimo_status mimo_gradient_norm(mimo_gradient *gradient, const mimo_gradient_span *spans, int n,
                               double *norm, mimo_stream stream)
{
    span_call call = {gradient, spans, n, NULL, NULL, false};
    mimo_share mine = {0, 0}, sum;
    mimo_status status;
    MIMO_CHECK(gradient, MIMO_ERR_ARGUMENT, "mimo_gradient_norm: gradient is NULL");
    status = prepare(&call);
    if (status == MIMO_OK && !norm)
        status = mimo_fail(MIMO_ERR_ARGUMENT, "mimo_gradient_norm: norm is NULL");
    /* Sums on the stream may wait for a rank, so the wait for them is under the deadline. */
    if (status == MIMO_OK)
        status = mimo_comm_synchronize(gradient->comm, stream);
    if (status == MIMO_OK)
        status = sum_own_squares(&call, &mine.value, stream);
    MIMO_TRY_GOTO(status, done, agree(&call, status, MIMO_CALL_GRADIENT_NORM, "gradient norm"));
    MIMO_TRY_GOTO(status, done, mimo_gradient_sum_shares(&sum, gradient, mine, call.shares));
    *norm = sqrt(sum.value);
done:
    release(&call);
    return status;
}
