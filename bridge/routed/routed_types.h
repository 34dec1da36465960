/* The routed executor's own: what it keeps of a bridge, of a micro-batch and of an operation. */
#ifndef MIMO_BRIDGE_ROUTED_TYPES_H
#define MIMO_BRIDGE_ROUTED_TYPES_H

#include "bridge/batch/bridge_batch.h"
#include "bridge/batch/bridge_sides.h"
#include "bridge/routed/routed_phase.h"
#include "comm/buffer_state.h"
#include "partition/packed_rule.h"
#include "plan/plan_cache.h"

typedef struct mimo_routed {
    /* Shards are cut from full dst tiles, as a partition over cp would. */
    mimo_partition_rule shard_rule;
    mimo_layout_desc shard_layout; /* without order, batch and seq */
    int64_t shards;                /* into how many; 1: not at all */

    bool can_push; /* rows can be pushed into buffers: ranks share memory */
    mimo_push_rule push_rule;
} mimo_routed;

/* What it keeps of a micro-batch. */
typedef struct mimo_routed_batch {
    mimo_plan_cache *plans; /* NULL until a call asks for one */
    mimo_recent prepared;   /* calls that are idle */
} mimo_routed_batch;

/* What it keeps of an operation. */
typedef struct mimo_routed_op {
    int64_t seq;                       /* S of the full sequences; 1 where all tiles are flat */
    struct mimo_routed_call *prepared; /* NULL until the batch split is known */
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

static inline mimo_routed_batch *mimo_routed_batch_of(const mimo_bridge_batch *batch)
{
    return batch->own[MIMO_ALGORITHM_ROUTED];
}

/* The layouts of a batch at all endpoints (routed_create.c). */
void mimo_routed_layouts(mimo_layout_desc out[MIMO_ENDPOINTS], const mimo_bridge *bridge,
                         const mimo_bridge_batch *batch);

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

#endif
