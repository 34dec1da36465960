/* What a dispatch keeps in an operation. Its forward moves rows, its backward combines; src is the
 * token side and dst the expert side of each pair of tensors. */
#ifndef MIMO_DISPATCH_DISPATCH_OP_H
#define MIMO_DISPATCH_DISPATCH_OP_H

#include "comm/buffer_state.h"
#include "dispatch/dispatch_types.h"
#include "move/op_types.h"

typedef struct mimo_dispatch_op {
    mimo_op op;
    mimo_route *route;               /* NULL: this rank can't make the call */
    struct mimo_dispatch_call *call; /* NULL until it is prepared */
} mimo_dispatch_op;

static inline mimo_dispatch_op *mimo_dispatch_op_of(const mimo_op *op)
{
    return op->own;
}

static inline mimo_route *mimo_route_of(const mimo_op *op)
{
    return mimo_dispatch_op_of(op)->route;
}

/* What its mover asks of a dispatch (dispatch_op.c). */
extern const mimo_mover_hooks mimo_dispatch_hooks;

/* "tk" and "t": a value for each pair. */
static inline bool mimo_dispatch_by_pair(const mimo_tile_pair *pair)
{
    return pair->src.view.letters[1] == 'k';
}

/* The buffer that tensor i of an operation is written straight into, or NULL (dispatch_views.c). */
mimo_buffer *mimo_dispatch_target(const mimo_op *op, int i);

/* Read and check a pair of views of a call (dispatch_views.c). */
mimo_status mimo_dispatch_read_pair(mimo_tile_pair *out, const mimo_op *op, const mimo_tensor *src,
                                    const mimo_tensor *dst);

/* The steps of both moves (dispatch_steps.c). */
extern const mimo_mover_step mimo_dispatch_rows_steps[], mimo_dispatch_combine_steps[];

#endif
