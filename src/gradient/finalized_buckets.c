/* Which buckets were finalized since the count. A second finalize of one would sum sums. */
#include <string.h>

#include "core/check.h"
#include "core/hash.h"
#include "core/memory.h"
#include "gradient/gradient_state.h"

/* A bucket is its grid and its name. */
static uint64_t hash_name(const mimo_bucket_call *call, int i)
{
    const char *name = call->buckets[i].name;
    uint64_t hash = mimo_hash_int(MIMO_HASH_START, call->rules[i].home);
    return mimo_hash_bytes(hash, name, strlen(name));
}

static bool is_done(const mimo_gradient *gradient, uint64_t hash)
{
    for (int64_t i = 0; i < gradient->done_count; i++)
        if (gradient->done[i] == hash)
            return true;
    return false;
}

/* Buckets of one call may have equal names: each is summed once. */
mimo_status mimo_finalized_check(const mimo_bucket_call *call)
{
    mimo_gradient *gradient = call->gradient;
    int64_t needed = gradient->done_count + call->n;
    for (int i = 0; i < call->n; i++)
        MIMO_CHECK(!is_done(gradient, hash_name(call, i)), MIMO_ERR_STATE,
                   "gradient bucket '%s' was finalized twice since the count",
                   call->buckets[i].name);
    if (needed <= gradient->done_capacity)
        return MIMO_OK;
    MIMO_TRY(mimo_regrow(&gradient->done, gradient->done_capacity, needed, sizeof *gradient->done));
    gradient->done_capacity = needed;
    return MIMO_OK;
}

void mimo_finalized_note(const mimo_bucket_call *call)
{
    mimo_gradient *gradient = call->gradient;
    for (int i = 0; i < call->n; i++)
        gradient->done[gradient->done_count++] = hash_name(call, i);
    gradient->finalized = gradient->finalized || call->n > 0;
}
