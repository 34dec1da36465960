#include "train/nn/exchange/nn_dispatch.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/check.h"
#include "core/checked.h"
#include "core/memory.h"
#include "device/device.h"
#include "train/nn/ops/nn_ops.h"

struct nn_dispatch {
    mimo_dispatch *dispatch;
    const nn_runtime *runtime;
    mimo_stream sets, moves;
    mimo_comm *comm;
    mimo_dispatch_desc sizes;
    mimo_route **routes;
    int64_t *rows;  /* of each route, on this rank: where moves stay local */
    int32_t **ends; /* of each route: room for those that products take from the host */
    int64_t n;
    bool local;
    mimo_dispatch_counts counts; /* of checks, for the next report */
    mimo_dispatch_counts last;   /* of the last of these alone */
    bool unchecked; /* whether tiles of routes were large enough, since the last check */
    int64_t least;  /* capacity of these */
};

static mimo_status reserve(nn_dispatch **made, const nn_runtime *runtime, mimo_comm *comm,
                           const mimo_dispatch_desc *desc)
{
    const nn_exchange exchange = {.comm = comm, .runtime = runtime};
    MIMO_TRY(nn_exchange_check(&exchange, "dispatch"));
    MIMO_TRY(mimo_reserve(made, 1, sizeof **made));
    **made = (nn_dispatch){
        .runtime = runtime, .comm = comm, .sizes = *desc, .counts = MIMO_DISPATCH_COUNTS_INIT};
    nn_dispatch_use_streams(*made, runtime->stream, runtime->stream);
    (*made)->sizes.row_bytes = desc->hidden * (int64_t)sizeof(nn_real);
    return MIMO_OK;
}

mimo_status nn_dispatch_create(nn_dispatch **out, const nn_runtime *runtime, mimo_comm *comm,
                               const mimo_dispatch_desc *desc)
{
    nn_dispatch *made = NULL;
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "dispatch: no group of ranks that share the experts");
    mimo_status status = reserve(&made, nn_runtime_or_host(runtime), comm, desc);
    status = mimo_comm_agree(comm, status);
    if (status == MIMO_OK)
        status = mimo_dispatch_create(&made->dispatch, comm, &made->sizes);
    if (status != MIMO_OK) {
        nn_dispatch_destroy(made);
        return status;
    }
    made->sizes.name = NULL; /* the caller's */
    *out = made;
    return MIMO_OK;
}

void nn_dispatch_use_streams(nn_dispatch *dispatch, mimo_stream sets, mimo_stream moves)
{
    dispatch->sets = sets;
    dispatch->moves = moves;
}

/* Of this rank. */
static int64_t experts_of(const nn_dispatch *dispatch)
{
    return dispatch->sizes.experts * dispatch->sizes.etp / mimo_comm_size(dispatch->comm);
}

const mimo_dispatch_desc *nn_dispatch_sizes(const nn_dispatch *dispatch)
{
    return &dispatch->sizes;
}

mimo_comm *nn_dispatch_comm(const nn_dispatch *dispatch)
{
    return dispatch->comm;
}

void nn_dispatch_destroy(nn_dispatch *dispatch)
{
    if (!dispatch)
        return;
    for (int64_t i = 0; i < dispatch->n; i++) {
        mimo_route_destroy(dispatch->routes[i]);
        mimo_release(dispatch->ends[i]);
    }
    mimo_dispatch_destroy(dispatch->dispatch);
    mimo_release(dispatch->routes);
    mimo_release(dispatch->rows);
    mimo_release(dispatch->ends);
    mimo_release(dispatch);
}

mimo_status nn_dispatch_add_route(mimo_route **out, int32_t **ends, nn_dispatch *dispatch)
{
    int64_t n = dispatch->n;
    MIMO_TRY(mimo_regrow(&dispatch->routes, n, n + 1, sizeof *dispatch->routes));
    MIMO_TRY(mimo_regrow(&dispatch->rows, n, n + 1, sizeof *dispatch->rows));
    MIMO_TRY(mimo_regrow(&dispatch->ends, n, n + 1, sizeof *dispatch->ends));
    MIMO_TRY(mimo_reserve(&dispatch->ends[n], experts_of(dispatch), sizeof *dispatch->ends[n]));
    mimo_status status = mimo_route_create(&dispatch->routes[n], dispatch->dispatch);
    if (status != MIMO_OK) {
        mimo_release(dispatch->ends[n]);
        return status;
    }
    dispatch->n++;
    *out = dispatch->routes[n];
    *ends = dispatch->ends[n];
    return MIMO_OK;
}

mimo_status nn_dispatch_set_start(mimo_op **out, const nn_dispatch *dispatch, mimo_route *route,
                                  const int32_t *ids, int64_t tokens, int64_t capacity)
{
    mimo_route_desc desc = MIMO_ROUTE_DESC_INIT;
    *out = NULL;
    if (dispatch->local)
        return MIMO_OK;
    desc.ids = ids;
    desc.tokens = tokens;
    desc.capacity = capacity;
    desc.memory = dispatch->runtime->memory;
    return mimo_route_set_start(out, route, &desc, dispatch->sets);
}

/* On a device a set does not say it. */
static mimo_status check_capacity(mimo_route *route, int64_t capacity)
{
    mimo_route_counts counts = MIMO_ROUTE_COUNTS_INIT;
    MIMO_TRY(mimo_route_read(&counts, route));
    for (int64_t rank = 0; rank < counts.ranks; rank++)
        MIMO_CHECK(counts.rows[rank] <= capacity, MIMO_ERR_SHAPE,
                   "dispatch: rank %" PRId64 " needs %" PRId64
                   " rows for its experts, its tile has %" PRId64,
                   rank, counts.rows[rank], capacity);
    return MIMO_OK;
}

/* BLAS takes sizes from the host, and cuBLAS does. */
static mimo_status download_ends(const int32_t **out, const nn_dispatch *dispatch,
                                 mimo_route *route, int32_t *room, int64_t capacity)
{
    const int32_t *from;
    MIMO_TRY(check_capacity(route, capacity));
    MIMO_TRY(mimo_route_ends(&from, route));
    MIMO_TRY(dispatch->runtime->device->download(
        room, from, experts_of(dispatch) * (int64_t)sizeof *room, dispatch->sets));
    *out = room;
    return MIMO_OK;
}

mimo_status nn_dispatch_ends(const int32_t **out, nn_dispatch *dispatch, mimo_route *route,
                             int32_t *room, int64_t capacity)
{
    const nn_runtime *runtime = dispatch->runtime;
    if (runtime->memory == MIMO_MEMORY_HOST)
        return mimo_route_ends(out, route);
    if (runtime->order == NN_ORDER_FAST)
        return download_ends(out, dispatch, route, room, capacity);
    if (!dispatch->unchecked || capacity < dispatch->least)
        dispatch->least = capacity;
    dispatch->unchecked = true;
    return mimo_route_ends(out, route);
}

static mimo_status take_report(nn_dispatch *dispatch)
{
    mimo_dispatch_counts now = MIMO_DISPATCH_COUNTS_INIT, *all = &dispatch->counts;
    MIMO_TRY(mimo_dispatch_report(&now, dispatch->dispatch));
    dispatch->last = now;
    all->routes += now.routes;
    all->overflows += now.overflows;
    all->rows = mimo_larger(all->rows, now.rows);
    return MIMO_OK;
}

/* Which rank needed that number of rows, as far as routes that were not set again still know it;
 * otherwise -1. */
static int64_t rank_that_needs(const nn_dispatch *dispatch, int64_t rows)
{
    for (int64_t i = 0; i < dispatch->n; i++) {
        mimo_route_counts counts = MIMO_ROUTE_COUNTS_INIT;
        if (mimo_route_read(&counts, dispatch->routes[i]) != MIMO_OK)
            continue; /* never set */
        for (int64_t rank = 0; rank < counts.ranks; rank++)
            if (counts.rows[rank] == rows)
                return rank;
    }
    return -1;
}

static mimo_status refuse_lost_rows(const nn_dispatch *dispatch)
{
    const mimo_dispatch_counts *last = &dispatch->last;
    char who[32] = "a rank";
    int64_t rank = rank_that_needs(dispatch, last->rows);
    if (rank >= 0)
        snprintf(who, sizeof who, "rank %" PRId64, rank);
    return mimo_fail(MIMO_ERR_SHAPE,
                     "dispatch: %s needs %" PRId64 " rows for its experts, its tile has %" PRId64
                     ": in %" PRId64 " of %" PRId64 " routes tokens lost a row, and are no numbers",
                     who, last->rows, dispatch->least, last->overflows, last->routes);
}

mimo_status nn_dispatch_check(nn_dispatch *dispatch)
{
    if (!dispatch->unchecked)
        return MIMO_OK;
    MIMO_TRY(take_report(dispatch));
    dispatch->unchecked = false;
    return dispatch->last.overflows == 0 ? MIMO_OK : refuse_lost_rows(dispatch);
}

mimo_status nn_dispatch_report(mimo_dispatch_counts *out, nn_dispatch *dispatch)
{
    MIMO_TRY(take_report(dispatch));
    dispatch->counts.size = out->size;
    *out = dispatch->counts;
    dispatch->counts = (mimo_dispatch_counts)MIMO_DISPATCH_COUNTS_INIT;
    return MIMO_OK;
}

/* ---------------------------------------- moves that stay ------------------------------------- */

mimo_status nn_dispatch_set_local(nn_dispatch *dispatch, bool local)
{
    int rank = nn_comm_rank(dispatch->comm);
    for (int64_t i = 0; local && i < dispatch->n; i++) {
        mimo_route_counts counts = MIMO_ROUTE_COUNTS_INIT;
        MIMO_TRY(mimo_route_read(&counts, dispatch->routes[i]));
        dispatch->rows[i] = counts.rows[rank];
    }
    dispatch->local = local;
    return MIMO_OK;
}

/* `to` gets `count` rows, over and over those of `from`, which has `there`. */
static mimo_status copy_rows(const nn_dispatch *it, nn_real *to, const nn_real *from, int64_t count,
                             int64_t room, int64_t there)
{
    int64_t width = it->sizes.hidden, most = there < room ? there : room;
    nn_runtime lane = *it->runtime;
    lane.stream = it->moves;
    for (int64_t i = 0; most > 0 && i < count; i += most) {
        int64_t rows = count - i < most ? count - i : most, at = i + rows <= room ? i : 0;
        MIMO_TRY(it->sizes.ctas > 0 ? lane.ops->copy_narrow(&lane, to + at * width, from,
                                                            rows * width, it->sizes.ctas)
                                    : nn_runtime_copy(&lane, to + at * width, from,
                                                      rows * width * (int64_t)sizeof *to));
    }
    return MIMO_OK;
}

static int64_t rows_here(const nn_dispatch *it, const mimo_route *route)
{
    for (int64_t i = 0; i < it->n; i++)
        if (it->routes[i] == route)
            return it->rows[i];
    return 0;
}

/* ------------------------------------------- moves ------------------------------------------- */

/* The views of a move: the rows, and behind them the values of pairs and the numbers. */
typedef struct move_views {
    mimo_tensor tokens[3], experts[3];
    int n;
} move_views;

static void add_views(move_views *views, mimo_memory memory, mimo_tensor tokens,
                      mimo_tensor experts)
{
    tokens.memory = experts.memory = memory;
    views->tokens[views->n] = tokens;
    views->experts[views->n++] = experts;
}

static move_views views_of(const nn_dispatch *it, const nn_dispatch_move *move)
{
    move_views views = {.n = 0};
    mimo_memory memory = it->runtime->memory;
    int64_t tokens = move->tokens, rows = move->capacity;
    add_views(&views, memory,
              mimo_tensor_2d(move->token_rows, NN_DTYPE, "th", tokens, it->sizes.hidden),
              mimo_tensor_2d(move->rows, NN_DTYPE, "th", rows, it->sizes.hidden));
    if (move->values)
        add_views(&views, memory,
                  mimo_tensor_2d(move->values, NN_DTYPE, "tk", tokens, it->sizes.top_k),
                  mimo_tensor_2d(move->row_values, NN_DTYPE, "t", rows, 1));
    if (move->numbers)
        add_views(&views, memory, mimo_tensor_2d(move->numbers, MIMO_I64, "th", tokens, 1),
                  mimo_tensor_2d(move->row_numbers, MIMO_I64, "th", rows, 1));
    return views;
}

static void count_move(const nn_dispatch *it, nn_exchange_kind kind, const nn_dispatch_move *move)
{
    int64_t width = it->sizes.hidden + (move->values ? it->sizes.top_k : 0);
    if (!move->counts)
        return;
    move->counts->calls[kind]++;
    move->counts->bytes[kind] += move->tokens * width * (int64_t)sizeof *move->rows;
}

mimo_status nn_dispatch_rows_start(mimo_op **out, const nn_dispatch *dispatch,
                                   const nn_dispatch_move *move)
{
    const move_views views = views_of(dispatch, move);
    int64_t rows = dispatch->local ? rows_here(dispatch, move->route) : 0;
    *out = NULL;
    if (dispatch->local)
        return copy_rows(dispatch, move->rows, move->token_rows, rows, move->capacity,
                         move->tokens);
    count_move(dispatch, NN_EXCHANGE_ROWS, move);
    return mimo_dispatch_rows_start(out, move->route, views.experts, views.tokens, views.n,
                                    dispatch->moves);
}

mimo_status nn_dispatch_combine_start(mimo_op **out, const nn_dispatch *dispatch,
                                      const nn_dispatch_move *move)
{
    const move_views views = views_of(dispatch, move);
    *out = NULL;
    if (dispatch->local)
        return copy_rows(dispatch, move->token_rows, move->rows,
                         move->tokens * dispatch->sizes.top_k, move->tokens,
                         rows_here(dispatch, move->route));
    count_move(dispatch, NN_EXCHANGE_COMBINE, move);
    return mimo_dispatch_combine_start(out, move->route, views.tokens, views.experts, views.n,
                                       dispatch->moves);
}
