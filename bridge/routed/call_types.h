/* Prepared calls of the routed executor, and calls in making: what the files that make and keep
 * them share. */
#ifndef MIMO_BRIDGE_CALL_TYPES_H
#define MIMO_BRIDGE_CALL_TYPES_H

#include "bridge/routed/routed_phase.h"
#include "bridge/routed/routed_types.h"
#include "move/prepared_call.h"

enum { MIMO_PHASES = 2 };

/* An operation made ready for tensors of fixed shapes, all of them together. */
typedef struct mimo_routed_call {
    mimo_prepared_call common;
    bool guarded;       /* it was made under a deadline: its messages are guarded */
    bool pushes;        /* rows whose destination lies in a buffer are pushed */
    mimo_buffer *fifos; /* that its messages are staged through; NULL: they are not */

    uint64_t split;        /* the hash of the batch split */
    mimo_tile_pair *pairs; /* pairs[common.count], the tensors that this was made for */

    mimo_phase phases[MIMO_PHASES];
    int phase_count;
    int chunks; /* of each phase, moved one after the other */
} mimo_routed_call;

/* A call in making. */
typedef struct mimo_call_maker {
    mimo_op *op;
    const mimo_batch_split *split;
    mimo_routed_call *call;
    mimo_endpoints ends[MIMO_PHASES]; /* of each phase */
} mimo_call_maker;

/* The tile of an endpoint. Shards look like the dst tile that they are cut from. */
static inline const mimo_tile *mimo_call_tile(const mimo_routed_call *call, mimo_endpoint end,
                                              int i)
{
    return end == MIMO_AT_SRC ? &call->pairs[i].src : &call->pairs[i].dst;
}

static inline int64_t mimo_call_bytes(const mimo_call_maker *maker, mimo_endpoint end, int i)
{
    return mimo_routed_bytes_at(mimo_routed_of(mimo_bridge_of(maker->op)), end,
                                mimo_call_tile(maker->call, end, i));
}

#endif
