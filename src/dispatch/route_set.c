/* Setting a route: all ranks agree, then the executor finds out where rows lie. */
#include <inttypes.h>
#include <stdio.h>

#include "comm/agreement.h"
#include "comm/calls.h"
#include "core/check.h"
#include "core/hash.h"
#include "device/profile.h"
#include "dispatch/dispatch_executor.h"

/* The ranks agree on setting a route of this number; 0: this rank can't. */
static mimo_status agree(const mimo_mover *mover, int64_t number, mimo_status local,
                         const char *call)
{
    uint64_t signature = mimo_hash_int(mover->id, MIMO_CALL_ROUTE_SET);
    return mimo_agree_as(mover->parent, MIMO_AGREE_CALL, mimo_mover_prefix_error(mover, local),
                         mimo_hash_int(signature, number), call);
}

static mimo_status set(mimo_route *route, const mimo_route_desc *desc)
{
    char call[MIMO_CALL_TEXT];
    mimo_mover *mover = &route->dispatch->mover;
    const mimo_dispatch_executor *executor = route->dispatch->executor;
    snprintf(call, sizeof call, "%s set of route %" PRId64, mover->title, route->number);
    MIMO_TRY(agree(mover, route->number, executor->set_prepare(route, desc), call));
    if (route->moving > 0) /* these move by what is overwritten now */
        mimo_mover_finish(mover);
    return executor->set(route, call);
}

mimo_status mimo_dispatch_refuse_route(mimo_dispatch *dispatch, mimo_status local)
{
    MIMO_RANGE();
    char call[MIMO_CALL_TEXT];
    MIMO_CHECK(dispatch, MIMO_ERR_ARGUMENT, "dispatch refuse route: dispatch is NULL");
    MIMO_ENTER(dispatch->mover.parent, "dispatch refuse route");
    snprintf(call, sizeof call, "%s set of a route", dispatch->mover.title);
    return agree(&dispatch->mover, 0, mimo_refused_status(local, "dispatch refuse route"), call);
}

mimo_status mimo_route_set(mimo_route *route, const mimo_route_desc *desc, mimo_stream stream)
{
    (void)stream;
    MIMO_RANGE();
    MIMO_CHECK(route, MIMO_ERR_ARGUMENT, "mimo_route_set: route is NULL");
    MIMO_ENTER(route->dispatch->mover.parent, "route set");
    return set(route, desc);
}
