/* What a dispatch keeps in an operation. Its forward moves rows, its backward combines; src is the
 * token side and dst the expert side of each pair of tensors. */
#ifndef MIMO_DISPATCH_DISPATCH_OP_TYPES_H
#define MIMO_DISPATCH_DISPATCH_OP_TYPES_H

#include "dispatch/route_types.h"
#include "move/op_types.h"

typedef struct mimo_dispatch_op {
    mimo_op op;
    mimo_route *route; /* NULL: this rank can't make the call */
    void *own;         /* the executor's; NULL until it is prepared */
} mimo_dispatch_op;

static inline mimo_dispatch_op *mimo_dispatch_op_of(const mimo_op *op)
{
    return op->own;
}

static inline mimo_route *mimo_route_of(const mimo_op *op)
{
    return mimo_dispatch_op_of(op)->route;
}

#endif
