/* The views of a call of a dispatch. */
#ifndef MIMO_DISPATCH_DISPATCH_VIEWS_H
#define MIMO_DISPATCH_DISPATCH_VIEWS_H

#include "dispatch/dispatch_op_types.h"

/* Read and check a pair of views. */
mimo_status mimo_dispatch_read_pair(mimo_tile_pair *out, const mimo_op *op, const mimo_tensor *src,
                                    const mimo_tensor *dst);

/* "tk" and "t": a value for each pair. */
static inline bool mimo_dispatch_by_pair(const mimo_tile_pair *pair)
{
    return pair->src.view.letters[1] == 'k';
}

/* The buffer that tensor i of an operation is written straight into, or NULL. */
mimo_buffer *mimo_dispatch_target(const mimo_op *op, int i);

#endif
