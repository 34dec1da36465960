/* What stays of a dispatch. */
#ifndef MIMO_DISPATCH_DISPATCH_TYPES_H
#define MIMO_DISPATCH_DISPATCH_TYPES_H

#include <mimo/dispatch.h>

#include "dispatch/route/route_shape.h"
#include "move/mover.h"

struct mimo_dispatch {
    mimo_mover mover;
    mimo_dispatch_desc desc; /* its name is in the mover's title */
    mimo_route_shape shape;
    const struct mimo_dispatch_executor *executor;
    mimo_buffer
        *flags;     /* the executor's, of rows that are written into buffers: see buffer_state.h;
                           NULL: none are */
    int64_t made;   /* the number of the newest route */
    int64_t routes; /* that were not destroyed */
    bool destroyed; /* by the caller */
    mimo_dispatch_counts counts;
};

/* Release a dispatch; and one that the caller has destroyed, where neither a route nor an operation
 * needs it any more (dispatch_end.c). */
void mimo_dispatch_release(mimo_dispatch *dispatch);
void mimo_dispatch_release_unused(void *dispatch);

#endif
