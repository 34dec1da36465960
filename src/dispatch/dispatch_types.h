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
    /* The executor's buffer, under whose flags ranks write into each other's memory
     * (buffer_state.h); NULL: they do not, and no call writes into a buffer of the parent. */
    mimo_buffer *flags;
    void *own;      /* the executor's */
    int64_t made;   /* the number of the newest route */
    int64_t routes; /* that were not destroyed */
    bool destroyed; /* by the caller */
    mimo_dispatch_counts counts;
};

#endif
