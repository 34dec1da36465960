/* The numbers of elements of buckets: the same on all ranks that hold the same shard. */
#include <inttypes.h>

#include "core/check.h"
#include "core/hash.h"
#include "gradient/gradient_state.h"

/* Gather every rank's number into call->shares, in rank order. */
static mimo_status gather_counts(const mimo_bucket_call *call, int64_t mine)
{
    return mimo_gradient_gather_shares(call->shares, call->gradient, (mimo_share){0, mine},
                                       "gradient finalize");
}

/* This rank's term of a sum over all ranks. The sum is 0 where each rank has the same number of
 * elements of each bucket as its representative: every rank subtracts the hash of its own count,
 * and a representative adds the hash of its count once for each rank that it represents. Sums wrap.
 * */
static uint64_t weigh_counts(const mimo_bucket_call *call)
{
    const mimo_gradient *gradient = call->gradient;
    uint64_t sum = 0;
    for (int i = 0; i < call->n; i++) {
        const mimo_gradient_bucket *bucket = &call->buckets[i];
        const mimo_grid *grid = mimo_bucket_home(call, i)->grid;
        const mimo_bucket_rule *rule = &call->rules[i];
        uint64_t hash = mimo_hash_int(mimo_hash_int(MIMO_HASH_START, i), bucket->count);
        if (!mimo_grid_contains(grid, gradient->comm->rank))
            continue;
        sum -= hash;
        if (mimo_rule_is_representative(rule, grid, gradient->comm->rank))
            sum += hash * (uint64_t)mimo_dim_set_ranks(mimo_rule_same(rule), grid);
    }
    return sum;
}

/* Compare each rank's count of a bucket with its representative's, in rank order. All ranks read
 * the same counts, so all return the same. */
static mimo_status compare_counts(const mimo_bucket_call *call, int i)
{
    char dims[MIMO_GRID_TEXT];
    mimo_dim_set same = mimo_rule_same(&call->rules[i]);
    const mimo_gradient_bucket *bucket = &call->buckets[i];
    const mimo_grid *grid = mimo_bucket_home(call, i)->grid;
    for (int rank = 0; rank < call->gradient->comm->size; rank++) {
        int64_t first = mimo_dim_set_first(same, grid, rank);
        MIMO_CHECK(first < 0 || call->shares[rank].count == call->shares[first].count,
                   MIMO_ERR_MISMATCH,
                   "gradient bucket '%s' has %" PRId64 " elements on rank %d and %" PRId64
                   " on rank %" PRId64 ", and along %s ranks hold the same ones",
                   bucket->name, call->shares[rank].count, rank, call->shares[first].count, first,
                   mimo_dim_set_text(dims, same, grid));
    }
    return MIMO_OK;
}

mimo_status mimo_gradient_agree_on_counts(const mimo_bucket_call *call)
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
        MIMO_TRY(gather_counts(call, call->buckets[i].count));
        MIMO_TRY(compare_counts(call, i));
    }
    return MIMO_OK;
}
