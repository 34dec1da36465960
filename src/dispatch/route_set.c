/* The public calls that set a route: an operation in the turn of a move. All ranks agree on it,
 * then the executor finds out where rows lie. */
#include "comm/calls.h"
#include "core/check.h"
#include "device/profile.h"
#include "dispatch/dispatch_executor.h"
#include "dispatch/route_state.h"
#include "move/op_types.h"

/* Without a route this rank can't make the call. */
static mimo_op_request request_of(mimo_route *route, mimo_status read, mimo_stream stream)
{
    return (mimo_op_request){.instead = MIMO_CALL_ROUTE_SET,
                             .move = {0, NULL, NULL, 0, 1, stream},
                             .subject = route,
                             .read = read};
}

static mimo_status read_desc(mimo_route *route, const mimo_route_desc *desc)
{
    MIMO_TRY(mimo_route_check_settled(route));
    return route->dispatch->executor->set_prepare(route, desc);
}

mimo_status mimo_dispatch_refuse_route(mimo_dispatch *dispatch, mimo_status local)
{
    MIMO_RANGE();
    MIMO_CHECK(dispatch, MIMO_ERR_ARGUMENT, "dispatch refuse route: dispatch is NULL");
    const mimo_op_request request = request_of(NULL, MIMO_OK, NULL);
    return mimo_mover_refuse(&dispatch->mover, &request, local, "dispatch refuse route");
}

mimo_status mimo_route_set_start(mimo_op **out, mimo_route *route, const mimo_route_desc *desc,
                                 mimo_stream stream)
{
    MIMO_RANGE();
    MIMO_CHECK(out && route, MIMO_ERR_ARGUMENT, "mimo_route_set_start: %s is NULL",
               out ? "route" : "out");
    MIMO_ENTER(route->dispatch->mover.comm, "route set");
    const mimo_op_request request = request_of(route, read_desc(route, desc), stream);
    return mimo_mover_begin(out, &route->dispatch->mover, &request);
}

mimo_status mimo_route_set(mimo_route *route, const mimo_route_desc *desc, mimo_stream stream)
{
    MIMO_RANGE();
    MIMO_CHECK(route, MIMO_ERR_ARGUMENT, "mimo_route_set: route is NULL");
    MIMO_ENTER(route->dispatch->mover.parent, "route set");
    const mimo_op_request request = request_of(route, read_desc(route, desc), stream);
    return mimo_mover_run(&route->dispatch->mover, &request);
}
