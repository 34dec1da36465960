/* The public calls that move tensors. */
#include <inttypes.h>

#include "comm/agreement.h"
#include "comm/calls.h"
#include "core/check.h"
#include "device/profile.h"
#include "dispatch/dispatch_op.h"

static mimo_op_request request_of(mimo_route *route, bool combines, const mimo_move_desc *move)
{
    return (mimo_op_request){.backward = combines, .move = *move, .subject = route};
}

static mimo_status begin(mimo_op **out, mimo_route *route, bool combines,
                         const mimo_move_desc *move)
{
    const char *call = mimo_dispatch_hooks.pass[combines];
    MIMO_CHECK(out && route, MIMO_ERR_ARGUMENT, "dispatch %s: %s is NULL", call,
               out ? "route" : "out");
    MIMO_ENTER(route->dispatch->mover.comm, call);
    const mimo_op_request request = request_of(route, combines, move);
    return mimo_mover_begin(out, &route->dispatch->mover, &request);
}

/* One call from the start to the end. */
static mimo_status finish(mimo_mover *mover, const mimo_op_request *request)
{
    MIMO_ENTER(mover->parent, mover->hooks->pass[request->backward]);
    return mimo_mover_run(mover, request);
}

static mimo_status move_whole(mimo_route *route, bool combines, const mimo_move_desc *move)
{
    MIMO_CHECK(route, MIMO_ERR_ARGUMENT, "dispatch %s: route is NULL",
               mimo_dispatch_hooks.pass[combines]);
    const mimo_op_request request = request_of(route, combines, move);
    return finish(&route->dispatch->mover, &request);
}

mimo_status mimo_dispatch_refuse(mimo_dispatch *dispatch, bool combine, mimo_status local)
{
    MIMO_RANGE();
    MIMO_CHECK(dispatch, MIMO_ERR_ARGUMENT, "dispatch refuse: dispatch is NULL");
    mimo_op_request request = request_of(NULL, combine, &(mimo_move_desc)MIMO_MOVE_DESC_INIT);
    request.read = mimo_refused_status(local, "dispatch refuse");
    return finish(&dispatch->mover, &request);
}

mimo_status mimo_dispatch_rows_start(mimo_op **out, mimo_route *route, const mimo_tensor *to,
                                     const mimo_tensor *from, int n, mimo_stream stream)
{
    MIMO_RANGE();
    return begin(out, route, false, &(mimo_move_desc){0, to, from, n, 1, stream});
}

mimo_status mimo_dispatch_combine_start(mimo_op **out, mimo_route *route, const mimo_tensor *to,
                                        const mimo_tensor *from, int n, mimo_stream stream)
{
    MIMO_RANGE();
    return begin(out, route, true, &(mimo_move_desc){0, to, from, n, 1, stream});
}

mimo_status mimo_dispatch_rows(mimo_route *route, const mimo_tensor *to, const mimo_tensor *from,
                               int n, mimo_stream stream)
{
    MIMO_RANGE();
    return move_whole(route, false, &(mimo_move_desc){0, to, from, n, 1, stream});
}

mimo_status mimo_dispatch_combine(mimo_route *route, const mimo_tensor *to, const mimo_tensor *from,
                                  int n, mimo_stream stream)
{
    MIMO_RANGE();
    return move_whole(route, true, &(mimo_move_desc){0, to, from, n, 1, stream});
}
