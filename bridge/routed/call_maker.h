/* How a prepared call is made: its phases are planned, its tensors placed, and then compiled. */
#ifndef MIMO_BRIDGE_CALL_MAKER_H
#define MIMO_BRIDGE_CALL_MAKER_H

#include "bridge/routed/routed_types.h"

/* A place is a base and an offset behind it. The bases: staging, and for tensor i its src tile
 * (TILES + 2 i) and its dst tile (TILES + 2 i + 1). A fixed call has in place of the tiles one base
 * that is NULL: offsets behind it are addresses, those of the keys. */
enum { MIMO_BASE_STAGING, MIMO_BASE_TILES, MIMO_BASE_ANYWHERE = MIMO_BASE_TILES };

/* A call in making. */
typedef struct mimo_call_maker {
    mimo_op *op;
    const mimo_batch_split *split;
    mimo_prepared_call *call;
    mimo_endpoints ends[MIMO_PHASES]; /* of each phase */
} mimo_call_maker;

/* The tile of an endpoint. Shards look like the dst tile that they are cut from. */
static inline const mimo_tile *mimo_call_tile(const mimo_prepared_call *call, mimo_endpoint end,
                                              int i)
{
    return end == MIMO_AT_SRC ? &call->pairs[i].src : &call->pairs[i].dst;
}

static inline int64_t mimo_call_bytes(const mimo_call_maker *maker, mimo_endpoint end, int i)
{
    return mimo_routed_bytes_at(mimo_routed_of(mimo_bridge_of(maker->op)), end,
                                mimo_call_tile(maker->call, end, i));
}

/* Find the phases and plan their transfers (call_phases.c). */
mimo_status mimo_call_plan(mimo_call_maker *maker);

/* Place both ends of each transfer behind bases, and say how much staging that takes
 * (call_places.c). Then the bases: those of an operation, with its staging. */
mimo_status mimo_call_reserve_bases(mimo_prepared_call *call, const mimo_comm_backend *backend);
mimo_status mimo_call_place(const mimo_call_maker *maker);
void mimo_call_set_bases(const mimo_prepared_call *call, const mimo_op *op, char *staging);

/* A call for the tensors of an operation (call_maker.c). NULL can be destroyed. */
mimo_status mimo_call_make(mimo_prepared_call **out, mimo_op *op, const mimo_batch_split *split);
void mimo_call_destroy(mimo_bridge *bridge, mimo_prepared_call *call);

/* How the rows of an operation travel (call_transport.c): whether those that go to a buffer are
 * pushed; the buffer that tensor i is pushed into, or NULL, and the tensor's key; what messages are
 * staged through, or NULL. */
bool mimo_call_pushes(const mimo_op *op);
mimo_buffer *mimo_call_target(const mimo_op *op, int i);
mimo_address_key mimo_call_key(const mimo_op *op, int i, bool fixed);
mimo_buffer *mimo_call_fifos(const mimo_op *op);

#endif
