/* mimo_gradient_norm: the norm of all buckets, each element counted once. */
#include <math.h>

#include "comm/calls.h"
#include "core/check.h"
#include "core/mutation.h"
#include "device/profile.h"
#include "gradient/gradient_state.h"

static bool is_counted(const mimo_bucket_call *call, int i)
{
    if (MIMO_MUTATED("norm-of-copies"))
        return true;
    return mimo_rule_is_representative(&call->rules[i], mimo_bucket_home(call, i)->grid,
                                       call->gradient->comm->rank);
}

/* The sum of the squares of each bucket that this rank represents, or that is compared. */
static mimo_status square_buckets(const mimo_bucket_call *call, mimo_stream stream)
{
    const mimo_gradient *gradient = call->gradient;
    for (int i = 0; i < call->n; i++) {
        const mimo_gradient_bucket *bucket = &call->buckets[i];
        if (is_counted(call, i) || gradient->check_copies)
            MIMO_TRY(gradient->comm->device->sum_squares(&call->squares[i], bucket->grad,
                                                         bucket->count, bucket->dtype, stream));
    }
    return MIMO_OK;
}

/* The sum of the squares of the elements that this rank represents. */
static double sum_own_squares(const mimo_bucket_call *call)
{
    double sum = 0;
    for (int i = 0; i < call->n; i++)
        if (is_counted(call, i))
            sum += call->squares[i];
    return sum;
}

/* All ranks add in the same order and get the same bits. */
static double sum_shares(const mimo_bucket_call *call)
{
    double sum = 0;
    for (int rank = 0; rank < call->gradient->comm->size; rank++)
        sum += call->shares[rank].value;
    return sum;
}

/* Whole numbers are sums in fixed point: only their owner knows the gradient in them. */
static mimo_status check_floats(const mimo_bucket_call *call)
{
    for (int i = 0; i < call->n; i++)
        MIMO_CHECK(call->buckets[i].dtype != MIMO_I64, MIMO_ERR_UNSUPPORTED,
                   "gradient bucket '%s': no norm of whole numbers (dtype %s)",
                   call->buckets[i].name, mimo_dtype_name(call->buckets[i].dtype));
    return MIMO_OK;
}

mimo_status mimo_gradient_norm(double *norm, mimo_gradient *gradient,
                               const mimo_gradient_bucket *buckets, int n, mimo_stream stream)
{
    MIMO_RANGE();
    mimo_bucket_call call = {.gradient = gradient, .buckets = buckets, .n = n};
    mimo_status status;
    MIMO_CHECK(gradient, MIMO_ERR_ARGUMENT, "mimo_gradient_norm: gradient is NULL");
    MIMO_ENTER(gradient->comm, "mimo_gradient_norm");
    status = mimo_bucket_call_prepare(&call);
    if (status == MIMO_OK && !norm)
        status = mimo_fail(MIMO_ERR_ARGUMENT, "mimo_gradient_norm: norm is NULL");
    if (status == MIMO_OK)
        status = check_floats(&call);
    /* Sums on the stream may wait for a rank, so the wait for them is under the deadline. */
    if (status == MIMO_OK)
        status = mimo_comm_synchronize(gradient->comm, stream);
    if (status == MIMO_OK)
        status = square_buckets(&call, stream);
    MIMO_TRY_GOTO(status, done,
                  mimo_bucket_call_agree(&call, status, MIMO_CALL_GRADIENT_NORM, "gradient norm"));
    MIMO_TRY_GOTO(status, done, mimo_gradient_check_copies(&call));
    const mimo_share mine = {sum_own_squares(&call), 0};
    MIMO_TRY_GOTO(status, done,
                  mimo_gradient_gather_shares(call.shares, gradient, mine, "gradient norm"));
    *norm = sqrt(sum_shares(&call));
done:
    mimo_bucket_call_release(&call);
    return status;
}
