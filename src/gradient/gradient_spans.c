/* The spans of a call: read and checked on this rank, then compared between all ranks. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/address.h"
#include "core/checked.h"
#include "core/hash.h"
#include "core/memory.h"
#include "gradient/gradient_state.h"

/* ----------------------------------------- reading ---------------------------------------- */

static mimo_status read_span(mimo_span_rule *rule, const mimo_gradient *gradient,
                             const mimo_gradient_bucket *span, int i)
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
                                     const mimo_gradient_bucket *spans, int n)
{
    for (int i = 0; i < n; i++)
        MIMO_TRY(read_span(&rules[i], gradient, &spans[i], i));
    return MIMO_OK;
}

mimo_status mimo_span_call_prepare(mimo_span_call *call)
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

void mimo_span_call_release(mimo_span_call *call)
{
    mimo_release(call->rules);
    mimo_release(call->shares);
}

/* ---------------------------------------- agreement --------------------------------------- */

/* What every rank must pass alike of a span: name, module, dims and dtype. */
static uint64_t hash_span(uint64_t hash, const mimo_span_call *call, int i)
{
    const mimo_gradient_bucket *span = &call->spans[i];
    hash = mimo_hash_bytes(hash, span->name, strlen(span->name));
    hash = mimo_hash_int(mimo_hash_int(hash, span->module), span->dtype);
    return mimo_hash_int(mimo_hash_int(hash, call->rules[i].partial), call->rules[i].shard);
}

uint64_t mimo_span_call_hash(const mimo_span_call *call)
{
    uint64_t hash = mimo_hash_int(MIMO_HASH_START, call->n);
    for (int i = 0; i < call->n; i++)
        hash = hash_span(hash, call, i);
    return hash;
}

/* The spans differ between ranks: agree on one after the other, so that the sentence names the
 * first that differs. */
static mimo_status name_span(const mimo_span_call *call, const char *verb)
{
    char text[MIMO_CALL_TEXT], partial[16], shard[16];
    for (int i = 0; i < call->n; i++) {
        const mimo_gradient_bucket *span = &call->spans[i];
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
mimo_status mimo_span_call_agree(const mimo_span_call *call, mimo_status local, mimo_call_kind kind,
                                 const char *verb)
{
    char text[MIMO_CALL_TEXT];
    mimo_comm *comm = call->gradient->comm;
    uint64_t hash = mimo_hash_int(mimo_signature_start(kind), call->n);
    snprintf(text, sizeof text, "%s of %d spans", verb, call->n);
    MIMO_TRY(mimo_agree(comm, local, hash, text));
    hash = mimo_hash_int(hash, (int64_t)mimo_span_call_hash(call));
    mimo_status status = mimo_agree(comm, MIMO_OK, hash, text);
    if (status == MIMO_ERR_MISMATCH)
        MIMO_TRY(name_span(call, verb));
    return status;
}
