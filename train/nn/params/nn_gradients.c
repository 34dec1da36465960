#include "train/nn/params/nn_gradients.h"

#include <math.h>

#include "core/mutation.h"
#include "train/nn/ops/nn_fixed.h"
#include "train/nn/params/nn_support.h"

/* The buckets of all stores, for one call. */
typedef struct bucket_list {
    mimo_gradient_bucket buckets[NN_MOST_STORES * NN_RULES];
    int n;
} bucket_list;

static mimo_status list_buckets(bucket_list *list, const nn_gradients *step)
{
    list->n = 0;
    MIMO_CHECK(step->n >= 0 && step->n <= NN_MOST_STORES, MIMO_ERR_ARGUMENT,
               "gradients of %d stores, at most %d", step->n, NN_MOST_STORES);
    for (int s = 0; s < step->n; s++) {
        const mimo_gradient_bucket *buckets;
        int n;
        MIMO_TRY(nn_params_buckets(step->stores[s], &buckets, &n));
        for (int i = 0; i < n; i++)
            list->buckets[list->n++] = buckets[i];
    }
    return MIMO_OK;
}

/* ------------------------------------------ range ----------------------------------------- */

/* |sum| of each parameter must stay below 2^63 / ranks, so that no sum over the ranks overflows.
 * The last parameter comes first, as in backward: what is no number there spreads to those before.
 */
static mimo_status check_largest(const nn_params *params, const double *largest, int64_t ranks)
{
    const double most = fmin(0x1p63 / (double)ranks, NN_FIXED_END);
    for (int i = nn_params_count(params) - 1; i >= 0; i--) {
        const char *name = nn_params_at(params, i)->name;
        MIMO_CHECK(largest[i] < -(double)NN_FIXED_BROKEN, MIMO_ERR_OVERFLOW,
                   "gradient of \"%s\": a sum of this rank has a term that is no number, or left "
                   "the range of fixed point, %.0f: a lower learning rate may help",
                   name, NN_FIXED_END / NN_FIXED_ONE);
        MIMO_CHECK(largest[i] < most, MIMO_ERR_OVERFLOW,
                   "gradient of \"%s\": a sum of this rank is %.0f, and %" PRId64
                   " ranks add theirs in fixed point: each must stay below %.0f; a lower learning "
                   "rate may help",
                   name, largest[i] / NN_FIXED_ONE, ranks, most / NN_FIXED_ONE);
    }
    return MIMO_OK;
}

static mimo_status find_largest(double *host, double *room, const nn_params *params)
{
    const nn_runtime *runtime = nn_params_runtime(params);
    for (int i = 0; i < nn_params_count(params); i++) {
        const nn_param *param = nn_params_at(params, i);
        if (!param->frozen && param->held)
            MIMO_TRY(runtime->ops->fixed_largest(runtime, room + i, param->sums, param->count));
    }
    return nn_runtime_read(runtime, host, room, nn_params_count(params) * (int64_t)sizeof *room);
}

/* Room for one number of each block, on the host and in the runtime's memory, where it is zeros. */
typedef struct block_rooms {
    double *host, *room;
} block_rooms;

static mimo_status reserve_blocks(block_rooms *rooms, const nn_params *params, int64_t count)
{
    const nn_runtime *runtime = nn_params_runtime(params);
    int64_t bytes = count * (int64_t)sizeof *rooms->room;
    MIMO_TRY(mimo_reserve(&rooms->host, count, sizeof *rooms->host));
    MIMO_TRY(nn_runtime_workspace(runtime, &rooms->room, bytes));
    return nn_runtime_zero(runtime, rooms->room, bytes);
}

static mimo_status check_sums(const nn_params *params, int64_t ranks)
{
    block_rooms rooms = {0};
    MIMO_TRY(nn_params_check_unsettled(params));
    mimo_status status = reserve_blocks(&rooms, params, nn_params_count(params));
    if (status == MIMO_OK)
        status = find_largest(rooms.host, rooms.room, params);
    if (status == MIMO_OK)
        status = check_largest(params, rooms.host, ranks);
    mimo_release(rooms.host);
    return status;
}

/* ------------------------------------------- norm ----------------------------------------- */

static int64_t blocks_of(const nn_params *params, const nn_param *param)
{
    return param->rule == NN_SHARDED ? nn_params_shards(params) : 1;
}

/* A gradient as a batch of `blocks` matrices along its cut. */
static nn_matrix blocks_of_gradient(const nn_param *param, int64_t blocks)
{
    int64_t rows = param->local[0], columns = param->local[1];
    nn_matrix x = nn_matrix_of(param->grad, rows, columns, columns);
    if (param->placement.cut == 0) {
        x.rows /= blocks;
        x.step = x.rows * columns;
    } else if (param->placement.cut == 1) {
        x.columns /= blocks;
        x.step = x.columns;
    }
    return x;
}

/* Whether this rank speaks for a parameter: all do for their parts of what tp cuts, and for their
 * experts; for the rest tp rank 0. */
static bool speaks_for(const nn_params *params, const nn_param *param)
{
    bool own = param->rule == NN_SHARDED || param->rule >= NN_EXPERT_REPLICATED;
    return param->held && !param->frozen && (own || nn_params_tp_rank(params) == 0);
}

/* Write the squares of the blocks that this rank speaks for, of its stage's parameters. Those of
 * experts lie behind those of all others. The other blocks stay 0, so the sums over tp, or over the
 * ranks that share experts, and over pp add to each one number. */
static mimo_status square_blocks(double *room, const nn_params *params, int64_t count)
{
    const nn_runtime *runtime = nn_params_runtime(params);
    int64_t parts = nn_params_parts(params), rank = nn_params_tp_rank(params);
    if (MIMO_MUTATED("norm-by-rank"))
        parts = 1;
    for (int i = 0; i < nn_params_count(params); i++) {
        const nn_param *param = nn_params_at(params, i);
        bool cut = param->rule == NN_SHARDED, expert = param->rule >= NN_EXPERT_REPLICATED;
        if (speaks_for(params, param)) {
            nn_matrix x = blocks_of_gradient(param, cut ? parts : 1);
            int64_t first = cut ? rank * parts : expert ? count : 0;
            MIMO_TRY(runtime->ops->block_squares(runtime, room + first, &x, cut ? parts : 1));
        }
        room += blocks_of(params, param);
    }
    return MIMO_OK;
}

static mimo_status sum_over_stages(double *room, int64_t count, nn_exchange *pp)
{
    return MIMO_MUTATED("norm-misses-stages") ? MIMO_OK : nn_exchange_sum_f64(pp, room, count);
}

static mimo_status sum_blocks(double *room, int64_t count, const nn_gradients *step, int store)
{
    const nn_runtime *runtime = nn_params_runtime(step->stores[store]);
    nn_exchange tp = {.comm = step->tp[store], .runtime = runtime};
    nn_exchange pp = {.comm = step->pp[store], .runtime = runtime};
    nn_exchange experts = {.comm = step->experts[store], .runtime = runtime};
    MIMO_TRY(nn_exchange_sum_f64(&tp, room, count));
    MIMO_TRY(nn_exchange_sum_f64(&experts, room + count, count));
    if (MIMO_MUTATED("norm-stage-by-stage"))
        for (int64_t b = 2 * count; --b > 0; room[b] = 0)
            room[0] += room[b];
    return sum_over_stages(room, 2 * count, &pp);
}

/* The blocks of all stages, in the order of the module: stage by stage the sum would be another. */
static mimo_status add_squares(double *squares, const nn_gradients *step, int store,
                               const nn_exchange *world)
{
    const nn_params *params = step->stores[store];
    const nn_runtime *runtime = nn_params_runtime(params);
    int64_t count = 0;
    for (int i = 0; i < nn_params_count(params); i++)
        count += blocks_of(params, nn_params_at(params, i));
    block_rooms rooms = {0};
    mimo_status status = nn_exchange_agree(world, reserve_blocks(&rooms, params, 2 * count));
    if (status == MIMO_OK)
        status = square_blocks(rooms.room, params, count);
    if (status == MIMO_OK)
        status = sum_blocks(rooms.room, count, step, store);
    if (status == MIMO_OK)
        status =
            nn_runtime_read(runtime, rooms.host, rooms.room, 2 * count * (int64_t)sizeof(double));
    for (int64_t b = 0; b < count && status == MIMO_OK; b++)
        *squares += rooms.host[b] + rooms.host[count + b];
    mimo_release(rooms.host);
    return status;
}

/* ------------------------------------------ the step --------------------------------------- */

static mimo_status finish_fixed(double *norm, const nn_gradients *step, const bucket_list *list,
                                int64_t tokens)
{
    nn_exchange world = {.comm = step->world};
    mimo_stream stream = nn_params_runtime(step->stores[0])->stream;
    mimo_status status =
        norm ? MIMO_OK : mimo_fail(MIMO_ERR_ARGUMENT, "gradients: no place for the norm");
    double squares = 0;
    for (int s = step->n - 1; s >= 0 && status == MIMO_OK; s--)
        status = check_sums(step->stores[s], nn_exchange_size(&world));
    MIMO_TRY(nn_exchange_agree(&world, status));
    MIMO_TRY(mimo_gradient_finalize(step->gradient, list->buckets, list->n, stream));
    for (int s = 0; s < step->n; s++) {
        MIMO_TRY(nn_params_settle(step->stores[s], tokens));
        MIMO_TRY(add_squares(&squares, step, s, &world));
    }
    *norm = sqrt(squares);
    return MIMO_OK;
}

mimo_status nn_gradients_prepare(const nn_gradients *step)
{
    bucket_list list;
    MIMO_TRY(list_buckets(&list, step));
    return mimo_gradient_prepare(step->gradient, list.buckets, list.n);
}

mimo_status nn_gradients_finish(double *norm, const nn_gradients *step, int64_t tokens)
{
    bucket_list list;
    MIMO_CHECK(step && step->n >= 1, MIMO_ERR_ARGUMENT, "gradients: NULL step, or no store");
    MIMO_TRY(list_buckets(&list, step));
    const nn_runtime *runtime = nn_params_runtime(step->stores[0]);
    if (runtime->order == NN_ORDER_FIXED)
        return finish_fixed(norm, step, &list, tokens);
    if (!MIMO_MUTATED("skip-finalize"))
        MIMO_TRY(mimo_gradient_finalize(step->gradient, list.buckets, list.n, runtime->stream));
    return mimo_gradient_norm(norm, step->gradient, list.buckets, list.n, runtime->stream);
}
