/* Routes: their memory, and what they know. */
#include <inttypes.h>

#include "comm/calls.h"
#include "core/descriptor.h"
#include "core/memory.h"
#include "device/profile.h"
#include "dispatch/dispatch_end.h"
#include "dispatch/dispatch_executor.h"
#include "dispatch/route_state.h"

MIMO_DEFINE_INIT(mimo_route_counts, MIMO_ROUTE_COUNTS_INIT)

/* ------------------------------------- its life ------------------------------------- */

static void release(mimo_route *route)
{
    route->dispatch->executor->route_destroy(route);
    mimo_release(route);
}

mimo_status mimo_route_create(mimo_route **out, mimo_dispatch *dispatch)
{
    mimo_route *route;
    MIMO_CHECK(out && dispatch, MIMO_ERR_ARGUMENT, "mimo_route_create: %s is NULL",
               out ? "dispatch" : "out");
    MIMO_ON_DEVICE_OF(dispatch->mover.comm);
    MIMO_TRY(mimo_reserve(&route, 1, sizeof *route));
    route->dispatch = dispatch;
    mimo_status status = dispatch->executor->route_create(route);
    if (status != MIMO_OK) {
        release(route);
        return mimo_mover_prefix_error(&dispatch->mover, status);
    }
    route->number = ++dispatch->made;
    dispatch->routes++;
    *out = route;
    return MIMO_OK;
}

void mimo_route_release_unused(mimo_route *route)
{
    if (route->destroyed && route->moving == 0 && route->setting == 0)
        release(route);
}

/* The number of the newest route, where it was never set. A first set can fail because another rank
 * called something else, and made no route. So the next ones have equal numbers again. */
static void give_number_back(const mimo_route *route)
{
    if (route->state == MIMO_ROUTE_NEVER_SET && route->number == route->dispatch->made)
        route->dispatch->made--;
}

void mimo_route_end_set(mimo_route *route)
{
    route->setting--;
    if (route->destroyed && route->setting == 0)
        give_number_back(route);
    mimo_route_release_unused(route);
}

void mimo_route_destroy(mimo_route *route)
{
    MIMO_RANGE();
    MIMO_CALL_SCOPE(scope);
    if (!route || !mimo_release_enter(&scope, route->dispatch->mover.parent))
        return;
    mimo_dispatch *dispatch = route->dispatch;
    if (route->setting == 0)
        give_number_back(route);
    route->destroyed = true;
    mimo_route_release_unused(route);
    dispatch->routes--;
    mimo_dispatch_release_unused(dispatch);
}

/* ------------------------------------- a set ---------------------------------------- */

mimo_status mimo_route_read_desc(mimo_route_desc *out, const mimo_dispatch *dispatch,
                                 const mimo_route_desc *desc)
{
    MIMO_TRY(mimo_route_desc_read(out, desc));
    MIMO_CHECK(out->tokens <= dispatch->desc.max_tokens, MIMO_ERR_SHAPE,
               "route: %" PRId64 " tokens, room for %" PRId64 " (max_tokens)", out->tokens,
               dispatch->desc.max_tokens);
    return MIMO_OK;
}

/* ----------------------------------- what it knows ---------------------------------- */

mimo_status mimo_route_check_settled(const mimo_route *route)
{
    MIMO_CHECK(route->setting == 0, MIMO_ERR_STATE,
               "%s: the operation that sets route %" PRId64 " was not waited for",
               route->dispatch->mover.title, route->number);
    return MIMO_OK;
}

static mimo_status check_known(const mimo_route *route)
{
    MIMO_TRY(mimo_route_check_settled(route));
    MIMO_CHECK(route->state != MIMO_ROUTE_NEVER_SET, MIMO_ERR_STATE,
               "%s: route %" PRId64 " was never set", route->dispatch->mover.title, route->number);
    return MIMO_OK;
}

static mimo_status check_fits(const mimo_route *route)
{
    const mimo_route_tile *tile = &route->sizes.overflowed;
    MIMO_CHECK(route->state != MIMO_ROUTE_OVERFLOWED, MIMO_ERR_SHAPE,
               "%s: rank %" PRId64 " needs %" PRId64 " rows for its experts, its tile has %" PRId64,
               route->dispatch->mover.title, tile->rank, tile->needed, tile->capacity);
    return MIMO_OK;
}

mimo_status mimo_route_check_set(const mimo_route *route)
{
    MIMO_TRY(check_known(route));
    MIMO_CHECK(route->sizes.rows >= 0, MIMO_ERR_STATE,
               "%s: route %" PRId64 " has a capacity of -1, and only a read tells its rows",
               route->dispatch->mover.title, route->number);
    return check_fits(route);
}

static void count(mimo_dispatch_counts *counts, const mimo_route_sizes *sizes)
{
    counts->routes++;
    counts->overflows += sizes->overflowed.rank >= 0;
    if (sizes->most_rows > counts->rows)
        counts->rows = sizes->most_rows;
}

mimo_status mimo_route_take(mimo_route *route, const mimo_route_sizes *sizes)
{
    route->sizes = *sizes;
    route->state = sizes->overflowed.rank < 0 ? MIMO_ROUTE_SET : MIMO_ROUTE_OVERFLOWED;
    count(&route->dispatch->counts, sizes);
    return check_fits(route);
}

mimo_status mimo_route_ends(const int32_t **out, const mimo_route *route)
{
    MIMO_CHECK(out && route, MIMO_ERR_ARGUMENT, "mimo_route_ends: %s is NULL",
               out ? "route" : "out");
    MIMO_TRY(check_known(route));
    return route->dispatch->executor->ends(out, route);
}

mimo_status mimo_route_read(mimo_route_counts *out, mimo_route *route)
{
    mimo_route_counts counts = MIMO_ROUTE_COUNTS_INIT;
    MIMO_CHECK(out && route, MIMO_ERR_ARGUMENT, "mimo_route_read: %s is NULL",
               out ? "route" : "out");
    MIMO_TRY(check_known(route));
    MIMO_ON_DEVICE_OF(route->dispatch->mover.comm);
    MIMO_TRY(route->dispatch->executor->read(&counts, route));
    return mimo_write_descriptor(out, &counts, sizeof counts, "route counts");
}
