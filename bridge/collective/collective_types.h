/* The collective executor's own: what it asks of tiles, and its groups. */
#ifndef MIMO_BRIDGE_COLLECTIVE_TYPES_H
#define MIMO_BRIDGE_COLLECTIVE_TYPES_H

#include "bridge/bridge_types.h"

/* What a pair of tiles must fit. */
typedef struct mimo_tile_rules {
    mimo_pairing pairing;
    mimo_memory memory;
    const mimo_partition *partition; /* NULL: dst holds full sequences */
    int64_t cuts;                    /* ranks that share one sequence: cp, times tp under sp */
} mimo_tile_rules;

typedef struct mimo_collective {
    mimo_tile_rules rules;
    mimo_partition *partition; /* NULL where the dst tile holds full sequences */
    mimo_partition_rule rule;  /* that it was made by */
    int64_t cp;                /* of dst */
    bool sp;                   /* the partition cuts along dst tp */
    mimo_comm *gather;         /* the gather group; NULL where EQUAL */
    mimo_comm *cp_sum;         /* dst cp; NULL where cp = 1 */
    mimo_comm *sp_join;        /* dst tp, where a partition cuts along it */
} mimo_collective;

/* Read and check both views of one tensor's move. MIMO_ERR_SHAPE prints both views and what is
 * needed. MIMO_ERR_OVERFLOW: a size, that of the dst tile with full sequences included, does not
 * fit 64 bits; the functions of tile.h need no check of their own then. */
mimo_status mimo_tile_pair_of(mimo_tile_pair *out, const mimo_tile_rules *rules,
                              const mimo_tensor *src, const mimo_tensor *dst);

extern const mimo_executor_table mimo_collective_executor;

/* What it keeps of a bridge; NULL where it moves neither pass. */
static inline mimo_collective *mimo_collective_of(const mimo_bridge *bridge)
{
    return bridge->state[MIMO_ALGORITHM_COLLECTIVE];
}

/* Functions of its table: see mimo_executor_table. */
mimo_status mimo_collective_create(mimo_bridge *bridge, const mimo_bridge_desc *desc);
mimo_status mimo_collective_connect(mimo_bridge *bridge);
void mimo_collective_disconnect(mimo_bridge *bridge);
void mimo_collective_destroy(mimo_bridge *bridge);
mimo_layout_desc mimo_collective_side_layout(const mimo_bridge *bridge, mimo_side side);
mimo_status mimo_collective_staging(mimo_staging_bytes *out, const mimo_staged_pass *pass);

#endif
