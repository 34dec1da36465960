/* The public calls that move tensors. */
#include "core/check.h"
#include "device/profile.h"
#include "dispatch/dispatch_op.h"
#include "dispatch/route_types.h"

static mimo_op_request of_route(mimo_route *route, mimo_op_request request)
{
    request.subject = route;
    return request;
}

static mimo_status begin(mimo_op **out, mimo_route *route, mimo_op_request pass)
{
    MIMO_CHECK(out && route, MIMO_ERR_ARGUMENT, "dispatch %s: %s is NULL",
               mimo_dispatch_hooks.pass[pass.backward], out ? "route" : "out");
    const mimo_op_request request = of_route(route, pass);
    return mimo_mover_start(out, &route->dispatch->mover, &request);
}

static mimo_status move(mimo_route *route, mimo_op_request pass)
{
    MIMO_CHECK(route, MIMO_ERR_ARGUMENT, "dispatch %s: route is NULL",
               mimo_dispatch_hooks.pass[pass.backward]);
    const mimo_op_request request = of_route(route, pass);
    return mimo_mover_move(&route->dispatch->mover, &request);
}

mimo_status mimo_dispatch_refuse(mimo_dispatch *dispatch, bool combine, mimo_status local)
{
    MIMO_RANGE();
    const mimo_op_request request = mimo_whole_pass(combine, NULL, NULL, 0, NULL);
    MIMO_CHECK(dispatch, MIMO_ERR_ARGUMENT, "dispatch refuse: dispatch is NULL");
    return mimo_mover_refuse(&dispatch->mover, &request, local, "dispatch refuse");
}

mimo_status mimo_dispatch_rows_start(mimo_op **out, mimo_route *route, const mimo_tensor *to,
                                     const mimo_tensor *from, int n, mimo_stream stream)
{
    MIMO_RANGE();
    return begin(out, route, mimo_whole_pass(false, to, from, n, stream));
}

mimo_status mimo_dispatch_combine_start(mimo_op **out, mimo_route *route, const mimo_tensor *to,
                                        const mimo_tensor *from, int n, mimo_stream stream)
{
    MIMO_RANGE();
    return begin(out, route, mimo_whole_pass(true, to, from, n, stream));
}

mimo_status mimo_dispatch_rows(mimo_route *route, const mimo_tensor *to, const mimo_tensor *from,
                               int n, mimo_stream stream)
{
    MIMO_RANGE();
    return move(route, mimo_whole_pass(false, to, from, n, stream));
}

mimo_status mimo_dispatch_combine(mimo_route *route, const mimo_tensor *to, const mimo_tensor *from,
                                  int n, mimo_stream stream)
{
    MIMO_RANGE();
    return move(route, mimo_whole_pass(true, to, from, n, stream));
}
