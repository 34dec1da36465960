/* The routed executor's own: the layouts of both sides, and the calls that it has prepared. */
#ifndef MIMO_BRIDGE_ROUTED_TYPES_H
#define MIMO_BRIDGE_ROUTED_TYPES_H

#include "bridge/bridge_op_types.h"
#include "bridge/routed/routed_batch.h"
#include "bridge/routed/routed_phase.h"
#include "comm/buffer_state.h"
#include "partition/packed_rule.h"

typedef struct mimo_routed {
    /* By mimo_endpoint, whose first two are those of mimo_side. */
    mimo_partition_rule rules[MIMO_ENDPOINTS];
    mimo_layout_desc layouts[MIMO_ENDPOINTS]; /* without order, batch and seq */

    /* By mimo_side. */
    int32_t *packed[2];        /* the lengths that a thd rule points to */
    int64_t sequence_ranks[2]; /* ranks that share one sequence */
    mimo_layout *roles[2];     /* layouts with batch 0: they only say which ranks hold rows */

    int64_t shards; /* into how many a partition over cp would cut a full dst tile; 1: not at all */
    bool can_push;  /* rows can be pushed into buffers: ranks share memory */
    mimo_push_rule push_rule;

    int64_t first_batch;        /* as the descriptor gave it; -1: not given */
    mimo_routed_batch *batches; /* batches[bridge->batch_count], given by the last update */
    int64_t given_bytes;        /* of what a rank gives an update: see given_batches.c */
} mimo_routed;

/* What it keeps of an operation. */
typedef struct mimo_routed_op {
    int64_t seq;                         /* S of the full sequences; 1 where all tiles are flat */
    struct mimo_prepared_call *prepared; /* NULL until the batch split is known */
    int64_t *samples; /* this rank's samples of either side, then those of all ranks */
} mimo_routed_op;

extern const mimo_executor_table mimo_routed_executor;

static inline mimo_routed *mimo_routed_of(const mimo_bridge *bridge)
{
    return bridge->state[MIMO_ALGORITHM_ROUTED];
}

static inline mimo_routed_op *mimo_routed_op_of(const mimo_op *op)
{
    return mimo_bridge_op_of(op)->own[MIMO_ALGORITHM_ROUTED];
}

/* Functions of its table: see mimo_executor_table. */
mimo_status mimo_routed_create(mimo_bridge *bridge, const mimo_bridge_desc *desc);
mimo_status mimo_routed_connect(mimo_bridge *bridge);
void mimo_routed_destroy(mimo_bridge *bridge);
mimo_layout_desc mimo_routed_side_layout(const mimo_bridge *bridge, mimo_side side);
mimo_status mimo_routed_read_sequence(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from,
                                      int n);
mimo_status mimo_routed_read(mimo_tile_pair *out, const mimo_op *op, const mimo_tensor *src,
                             const mimo_tensor *dst);
uint64_t mimo_routed_sign(uint64_t hash, const mimo_tile_pair *tiles);
mimo_status mimo_routed_staging(mimo_staging_bytes *out, const mimo_staged_pass *pass);

/* Bytes of a tensor at an endpoint. Its tile there is `tile`; shards are cut from the dst tile. */
static inline int64_t mimo_routed_bytes_at(const mimo_routed *own, mimo_endpoint end,
                                           const mimo_tile *tile)
{
    return mimo_tile_bytes(tile) / (end == MIMO_AT_SHARDS ? own->shards : 1);
}

/* The micro-batch that an operation moves, and the one that the next calls move. */
static inline mimo_routed_batch *mimo_routed_batch_of(const mimo_op *op)
{
    return &mimo_routed_of(mimo_bridge_of(op))->batches[mimo_bridge_op_of(op)->batch];
}

static inline const mimo_routed_batch *mimo_routed_batch_now(const mimo_bridge *bridge)
{
    return &mimo_routed_of(bridge)->batches[bridge->selected];
}

#endif
