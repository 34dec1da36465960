/* Prepared calls, and calls in making: what the files that make and keep them share. */
#ifndef MIMO_BRIDGE_CALL_TYPES_H
#define MIMO_BRIDGE_CALL_TYPES_H

#include "bridge/routed/routed_phase.h"
#include "bridge/routed/routed_types.h"
#include "core/recent.h"
#include "move/address_key.h"

enum { MIMO_PHASES = 2, MIMO_STAGING_ALIGNMENT = 64 /* of what a call stages */ };

/* An operation made ready for tensors of fixed shapes, all of them together. It serves one
 * operation at a time, and is kept for the next one with tensors like these, wherever they lie:
 * only their keys are the same. What a graph or a prepare needs stays until an update or the end of
 * the bridge; of the others, the last ones. */
typedef struct mimo_prepared_call {
    mimo_recent_entry entry; /* while it is idle */
    bool backward;
    bool guarded;       /* it was made under a deadline: its messages are guarded */
    bool pushes;        /* rows whose destination lies in a buffer are pushed */
    mimo_buffer *fifos; /* that its messages are staged through; NULL: they are not */
    bool recorded;      /* a graph replays it */
    bool asked;         /* a prepare made it, for a call that may come in a capture */
    bool failed;        /* it can't be started again */
    bool fixed;         /* it has more tensors than the backend has bases: keys are exact */

    uint64_t split; /* the hash of the batch split */
    int count;
    mimo_tile_pair *pairs;  /* pairs[count], the tensors that this was made for */
    mimo_address_key *keys; /* keys[count]: of these */

    mimo_phase phases[MIMO_PHASES];
    int phase_count;
    int chunks;            /* of each phase, moved one after the other */
    int64_t staging_bytes; /* contributions, and sums between two phases */
    mimo_bases bases;      /* of the operation that it serves */
} mimo_prepared_call;

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

#endif
