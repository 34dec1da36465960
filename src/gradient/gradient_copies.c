/* MIMO_CHECK=replicas for gradients: ranks that hold the same elements have the same norm of them.
 * A dimension that a bucket should have named, such as pp, shows here. */
#include <inttypes.h>
#include <math.h>

#include "core/check.h"
#include "gradient/gradient_state.h"

/* Ranks may have computed copies in other orders of additions, so their norms differ by rounding,
 * in 16 bits by up to some 2^-8. */
static bool agree(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return a == b || fabs(a - b) <= ldexp(fmax(a, b), -8);
}

/* Compare each rank's norm of a bucket with its representative's, in rank order. All ranks read the
 * same numbers, so all return the same. */
static mimo_status compare_norms(const mimo_bucket_call *call, int i)
{
    char dims[MIMO_GRID_TEXT];
    const mimo_share *shares = call->shares;
    const mimo_grid *grid = mimo_bucket_home(call, i)->grid;
    mimo_dim_set same = mimo_rule_same(&call->rules[i]);
    for (int rank = 0; rank < call->gradient->comm->size; rank++) {
        int64_t first = mimo_dim_set_first(same, grid, rank);
        if (first < 0 || agree(sqrt(shares[rank].value), sqrt(shares[first].value)))
            continue;
        mimo_dim_set_text(dims, mimo_dim_set_between(grid, rank, first), grid);
        return mimo_fail(
            MIMO_ERR_MISMATCH,
            "gradient bucket '%s' has norm %g on rank %d and %g on rank %" PRId64
            ". They differ along %s alone: where they hold other elements, `shard` has "
            "to name it, and where each holds a part of the gradient, `partial`",
            call->buckets[i].name, sqrt(shares[rank].value), rank, sqrt(shares[first].value), first,
            dims);
    }
    return MIMO_OK;
}

mimo_status mimo_gradient_check_copies(const mimo_bucket_call *call)
{
    for (int i = 0; i < call->n && call->gradient->check_copies; i++) {
        MIMO_TRY(mimo_gradient_gather_shares(call->shares, call->gradient,
                                             (mimo_share){call->squares[i], 0}, "gradient norm"));
        MIMO_TRY(compare_norms(call, i));
    }
    return MIMO_OK;
}
