/* What becomes of a route, and what may be asked of it. */
#ifndef MIMO_DISPATCH_ROUTE_STATE_H
#define MIMO_DISPATCH_ROUTE_STATE_H

#include "dispatch/route_types.h"

/* Release a route that the caller has destroyed, where no operation needs it. */
void mimo_route_release_unused(mimo_route *route);

/* Read what this rank brings to a set. */
mimo_status mimo_route_read_desc(mimo_route_desc *out, const mimo_dispatch *dispatch,
                                 const mimo_route_desc *desc);

/* The caller has waited for an operation that sets the route. */
void mimo_route_end_set(mimo_route *route);

/* MIMO_ERR_STATE where an operation that sets the route was not waited for. */
mimo_status mimo_route_check_settled(const mimo_route *route);

/* The same where it was never set, and the error of one that overflowed. */
mimo_status mimo_route_check_set(const mimo_route *route);

/* The route is set, with these sizes. The error of one that overflowed. */
mimo_status mimo_route_take(mimo_route *route, const mimo_route_sizes *sizes);

#endif
