/* The buckets of a call: read and checked on this rank, then compared between all ranks. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/address.h"
#include "core/checked.h"
#include "core/descriptor.h"
#include "core/hash.h"
#include "core/memory.h"
#include "core/mutation.h"
#include "gradient/gradient_state.h"

/* ----------------------------------------- reading ---------------------------------------- */

static mimo_status read_bucket(mimo_bucket_rule *rule, const mimo_gradient *gradient,
                               const mimo_gradient_bucket *bucket, int i)
{
    int64_t bytes;
    char what[MIMO_CALL_TEXT];
    MIMO_CHECK(bucket->name, MIMO_ERR_ARGUMENT, "gradient bucket %d has no name", i);
    MIMO_CHECK(bucket->module == MIMO_SRC || bucket->module == MIMO_DST, MIMO_ERR_ARGUMENT,
               "gradient bucket '%s': unknown module %d", bucket->name, (int)bucket->module);
    MIMO_CHECK(mimo_dtype_size(bucket->dtype) > 0, MIMO_ERR_ARGUMENT,
               "gradient bucket '%s': unknown dtype %d", bucket->name, (int)bucket->dtype);
    MIMO_CHECK(bucket->dtype == MIMO_F32 || bucket->dtype == MIMO_F64 ||
                   bucket->dtype == MIMO_F16 || bucket->dtype == MIMO_BF16 ||
                   bucket->dtype == MIMO_I64,
               MIMO_ERR_UNSUPPORTED, "gradient bucket '%s': dtype %s is none that can be summed",
               bucket->name, mimo_dtype_name(bucket->dtype));
    MIMO_CHECK(bucket->count >= 0, MIMO_ERR_ARGUMENT, "gradient bucket '%s': %" PRId64 " elements",
               bucket->name, bucket->count);
    MIMO_TRY(mimo_mul(&bytes, bucket->count, (int64_t)mimo_dtype_size(bucket->dtype)));
    MIMO_CHECK(bucket->grad || bucket->count == 0, MIMO_ERR_ARGUMENT,
               "gradient bucket '%s': grad is NULL for %" PRId64 " elements", bucket->name,
               bucket->count);
    snprintf(what, sizeof what, "gradient bucket '%s': grad", bucket->name);
    MIMO_TRY(mimo_check_address(what, bucket->grad, bucket->count, bucket->dtype));
    rule->home = (int)bucket->module;
    if (bucket->grid)
        rule->home = mimo_gradient_find_grid(gradient, bucket->grid);
    MIMO_CHECK(rule->home >= 0, MIMO_ERR_NOT_FOUND,
               "gradient bucket '%s': no grid '%s' was added (mimo_gradient_add_grid)",
               bucket->name, bucket->grid);
    const mimo_gradient_grid *home = &gradient->grids[rule->home];
    MIMO_CHECK(mimo_grid_contains(home->grid, gradient->comm->rank) || bucket->count == 0,
               MIMO_ERR_GRID,
               "gradient bucket '%s': rank %d is outside the %s grid and has %" PRId64 " elements",
               bucket->name, gradient->comm->rank, home->name, bucket->count);
    MIMO_TRY(mimo_bucket_rule_of(rule, home, bucket));
    if (MIMO_MUTATED("experts-over-dp"))
        rule->data |= mimo_dim_set_of(home->grid, home->shard);
    return MIMO_OK;
}

mimo_status mimo_gradient_read_buckets(mimo_gradient_bucket *own, mimo_bucket_rule *rules,
                                       const mimo_gradient *gradient,
                                       const mimo_gradient_bucket *buckets, int n)
{
    char what[32];
    for (int i = 0; i < n; i++) {
        snprintf(what, sizeof what, "gradient bucket %d", i);
        own[i] = (mimo_gradient_bucket)MIMO_GRADIENT_BUCKET_INIT;
        MIMO_TRY(mimo_read_element(&own[i], sizeof *own, buckets, i, what));
        MIMO_TRY(read_bucket(&rules[i], gradient, &own[i], i));
    }
    return MIMO_OK;
}

mimo_status mimo_bucket_call_prepare(mimo_bucket_call *call)
{
    const mimo_gradient *gradient = call->gradient;
    MIMO_CHECK(call->n >= 0 && (call->buckets || call->n == 0), MIMO_ERR_ARGUMENT,
               "gradient: %d buckets at %p", call->n, (const void *)call->buckets);
    MIMO_CHECK(gradient->counted || call->before_count, MIMO_ERR_STATE,
               "gradient: mimo_gradient_count was not called since the last add (%" PRId64
               " tokens here)",
               gradient->tokens);
    MIMO_TRY(mimo_reserve(&call->rules, call->n, sizeof *call->rules));
    MIMO_TRY(mimo_reserve(&call->shares, gradient->comm->size, sizeof *call->shares));
    MIMO_TRY(mimo_reserve(&call->squares, call->n, sizeof *call->squares));
    MIMO_TRY(mimo_reserve(&call->own, call->n, sizeof *call->own));
    MIMO_TRY(mimo_gradient_read_buckets(call->own, call->rules, gradient, call->buckets, call->n));
    call->buckets = call->own;
    return MIMO_OK;
}

void mimo_bucket_call_release(mimo_bucket_call *call)
{
    mimo_release(call->rules);
    mimo_release(call->shares);
    mimo_release(call->squares);
    mimo_release(call->own);
}

/* ---------------------------------------- agreement --------------------------------------- */

/* What every rank must pass alike of a bucket: name, grid, dims and dtype. */
static uint64_t hash_bucket(uint64_t hash, const mimo_bucket_call *call, int i)
{
    const mimo_gradient_bucket *bucket = &call->buckets[i];
    hash = mimo_hash_bytes(hash, bucket->name, strlen(bucket->name));
    hash = mimo_hash_int(mimo_hash_int(hash, call->rules[i].home), bucket->dtype);
    return mimo_hash_int(mimo_hash_int(hash, call->rules[i].partial), call->rules[i].shard);
}

uint64_t mimo_bucket_call_hash(const mimo_bucket_call *call)
{
    uint64_t hash = mimo_hash_int(MIMO_HASH_START, call->n);
    for (int i = 0; i < call->n; i++)
        hash = hash_bucket(hash, call, i);
    return hash;
}

/* The buckets differ between ranks: agree on one after the other, so that the sentence names the
 * first that differs. */
static mimo_status name_bucket(const mimo_bucket_call *call, const char *verb)
{
    char text[MIMO_CALL_TEXT], partial[MIMO_GRID_TEXT], shard[MIMO_GRID_TEXT];
    for (int i = 0; i < call->n; i++) {
        const mimo_gradient_bucket *bucket = &call->buckets[i];
        const mimo_gradient_grid *home = mimo_bucket_home(call, i);
        snprintf(text, sizeof text, "%s with bucket %d '%s' %s %s partial '%s' shard '%s'", verb, i,
                 bucket->name, home->name, mimo_dtype_name(bucket->dtype),
                 mimo_dim_set_text(partial, call->rules[i].partial, home->grid),
                 mimo_dim_set_text(shard, call->rules[i].shard, home->grid));
        MIMO_TRY(mimo_agree_as(call->gradient->comm, MIMO_AGREE_CALL, MIMO_OK,
                               hash_bucket(MIMO_HASH_START, call, i), text));
    }
    return MIMO_OK;
}

/* Agree on this rank's status and on the call, then on the buckets. Ranks may compare buckets one
 * by one only if all of them are known to be in the same call with the same number of buckets. */
mimo_status mimo_bucket_call_agree(const mimo_bucket_call *call, mimo_status local,
                                   mimo_call_kind kind, const char *verb)
{
    char text[MIMO_CALL_TEXT];
    mimo_comm *comm = call->gradient->comm;
    uint64_t hash = mimo_hash_int(mimo_signature_start(kind), call->n);
    snprintf(text, sizeof text, "%s of %d buckets", verb, call->n);
    MIMO_TRY(mimo_agree_as(comm, MIMO_AGREE_CALL, local, hash, text));
    hash = mimo_hash_int(hash, (int64_t)mimo_bucket_call_hash(call));
    mimo_status status = mimo_agree_as(comm, MIMO_AGREE_CALL, MIMO_OK, hash, text);
    if (status == MIMO_ERR_MISMATCH)
        MIMO_TRY(name_bucket(call, verb));
    return status;
}
