/*
 * A prepared call of a route (move/prepared_call.h): what one move sends and receives, for tensors
 * of certain widths. It is kept until the route is set anew.
 *
 * Messages move parts of the operation's staging, one for each tensor and peer. So a guarded
 * operation needs nothing more: nothing in flight refers to the caller's memory.
 */
#ifndef MIMO_DISPATCH_DISPATCH_CALL_H
#define MIMO_DISPATCH_DISPATCH_CALL_H

#include "comm/buffer_state.h"
#include "dispatch/dispatch_op_types.h"
#include "dispatch/route/route_map.h"
#include "move/prepared_call.h"

/* How one tensor moves. */
typedef struct mimo_dispatch_part {
    bool by_pair; /* "tk" and "t"; otherwise by token */
    int64_t row_bytes;
    mimo_dtype dtype, wire; /* of its rows; of a message's, which differs in a combine alone */
    int64_t wire_bytes;     /* of a message's row */
    mimo_buffer *buffer;    /* whose rows are written straight into it; NULL: none are */
    int64_t sent, received; /* where its messages' rows begin in the staging */
} mimo_dispatch_part;

typedef struct mimo_dispatch_call {
    mimo_prepared_call common;
    mimo_dispatch_part *parts; /* [common.count] */
    mimo_exchange *exchange;
} mimo_dispatch_call;

/* Of an operation; NULL until it is prepared. */
static inline mimo_dispatch_call *mimo_dispatch_call_of(const mimo_op *op)
{
    return mimo_dispatch_op_of(op)->own;
}

/* Rows [first, first + count) of what a rank sends to a peer, or receives from it. */
typedef struct mimo_dispatch_block {
    int64_t first, count;
} mimo_dispatch_block;

/* Both count the rows of all peers, one after the other; pairs where they move by pair. */
mimo_dispatch_block mimo_dispatch_sent(const mimo_route_map *map, bool combines, bool by_pair,
                                       int64_t peer);
mimo_dispatch_block mimo_dispatch_received(const mimo_route_map *map, bool combines, bool by_pair,
                                           int64_t peer);

/* Whether rows to and from a peer are written straight into the tensor. Both ends know. */
static inline bool mimo_dispatch_pushes(const mimo_dispatch_part *part, const mimo_route_map *map,
                                        int64_t peer)
{
    return part->buffer && peer != map->rank && part->buffer->data[peer];
}

/* Give the operation a call for its tensors, with staging, bound to where they lie. Local. */
mimo_status mimo_dispatch_call_get(mimo_op *op);

/* The operation has ended: give its call back. */
void mimo_dispatch_call_put_back(mimo_op *op);

/* The steps of both moves (dispatch_steps.c). */
extern const mimo_mover_step mimo_dispatch_rows_steps[], mimo_dispatch_combine_steps[];

#endif
