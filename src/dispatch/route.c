/* Routes: their memory, and what they know. */
#include <string.h>

#include "comm/calls.h"
#include "core/checked.h"
#include "core/descriptor.h"
#include "core/memory.h"
#include "device/profile.h"
#include "dispatch/messages/dispatch_call.h"

MIMO_DEFINE_INIT(mimo_route_counts, MIMO_ROUTE_COUNTS_INIT)

/* ------------------------------------- its life ------------------------------------- */

static mimo_status reserve(mimo_route *route, const mimo_dispatch *dispatch)
{
    int64_t bytes = mimo_route_record_bytes(dispatch), ranks = dispatch->shape.ranks, all;
    MIMO_TRY(mimo_mul(&all, bytes, ranks));
    MIMO_TRY(mimo_reserve(&route->own, bytes, 1));
    MIMO_TRY(mimo_reserve(&route->records, all, 1));
    MIMO_TRY(mimo_reserve(&route->tokens, ranks, sizeof *route->tokens));
    MIMO_TRY(mimo_reserve(&route->capacity, ranks, sizeof *route->capacity));
    MIMO_TRY(mimo_reserve(&route->rows, ranks, sizeof *route->rows));
    route->ids = (mimo_route_ids){
        (const mimo_route_id *)(const void *)(route->records + sizeof(mimo_route_record)),
        bytes / (int64_t)sizeof(mimo_route_id), route->tokens, route->capacity};
    return mimo_route_map_reserve(&route->map, &dispatch->shape, dispatch->mover.comm->rank,
                                  dispatch->desc.max_tokens);
}

static void release(mimo_route *route)
{
    mimo_dispatch_calls_release(route);
    mimo_route_map_release(&route->map);
    mimo_release(route->own);
    mimo_release(route->records);
    mimo_release(route->tokens);
    mimo_release(route->capacity);
    mimo_release(route->rows);
    mimo_release(route);
}

mimo_status mimo_route_create(mimo_route **out, mimo_dispatch *dispatch)
{
    mimo_route *route;
    MIMO_CHECK(out && dispatch, MIMO_ERR_ARGUMENT, "mimo_route_create: %s is NULL",
               out ? "dispatch" : "out");
    MIMO_TRY(mimo_reserve(&route, 1, sizeof *route));
    route->dispatch = dispatch;
    mimo_status status = reserve(route, dispatch);
    if (status != MIMO_OK) {
        release(route);
        return mimo_mover_prefix_error(&dispatch->mover, status);
    }
    route->number = ++dispatch->made;
    route->overflowing = -1;
    dispatch->routes++;
    *out = route;
    return MIMO_OK;
}

void mimo_route_release_unused(mimo_route *route)
{
    if (route->destroyed && route->moving == 0)
        release(route);
}

/* The number of the newest route, where it was never set. A first set can fail because another rank
 * called something else, and made no route. So the next ones have equal numbers again. */
static void give_number_back(const mimo_route *route)
{
    if (route->state == MIMO_ROUTE_NEVER_SET && route->number == route->dispatch->made)
        route->dispatch->made--;
}

void mimo_route_destroy(mimo_route *route)
{
    MIMO_RANGE();
    MIMO_CALL_SCOPE(scope);
    if (!route || !mimo_release_enter(&scope, route->dispatch->mover.parent))
        return;
    mimo_dispatch *dispatch = route->dispatch;
    give_number_back(route);
    route->destroyed = true;
    mimo_route_release_unused(route);
    dispatch->routes--;
    mimo_dispatch_release_unused(dispatch);
}

/* ----------------------------------- what it knows ---------------------------------- */

static mimo_status check_known(const mimo_route *route)
{
    MIMO_CHECK(route->state != MIMO_ROUTE_NEVER_SET, MIMO_ERR_STATE,
               "%s: route %" PRId64 " was never set", route->dispatch->mover.title, route->number);
    return MIMO_OK;
}

mimo_status mimo_route_check_set(const mimo_route *route)
{
    int64_t rank = route->overflowing;
    MIMO_TRY(check_known(route));
    MIMO_CHECK(rank < 0, MIMO_ERR_SHAPE,
               "%s: rank %" PRId64 " needs %" PRId64 " rows for its experts, its tile has %" PRId64,
               route->dispatch->mover.title, rank, route->rows[rank], route->capacity[rank]);
    return MIMO_OK;
}

mimo_status mimo_route_ends(const int32_t **out, const mimo_route *route)
{
    MIMO_CHECK(out && route, MIMO_ERR_ARGUMENT, "mimo_route_ends: %s is NULL",
               out ? "route" : "out");
    MIMO_TRY(check_known(route));
    *out = route->map.ends;
    return MIMO_OK;
}

mimo_status mimo_route_read(mimo_route_counts *out, mimo_route *route)
{
    mimo_route_counts counts = MIMO_ROUTE_COUNTS_INIT;
    MIMO_CHECK(out && route, MIMO_ERR_ARGUMENT, "mimo_route_read: %s is NULL",
               out ? "route" : "out");
    MIMO_TRY(check_known(route));
    counts.ranks = route->map.shape.ranks;
    counts.rows = route->rows;
    for (int64_t rank = 0; rank < counts.ranks; rank++)
        counts.overflows += route->capacity[rank] >= 0 && route->rows[rank] > route->capacity[rank];
    return mimo_write_descriptor(out, &counts, sizeof counts, "route counts");
}
