/* The plans of one rank of a bridge, made when a batch is first seen and kept. Pure. */
#ifndef MIMO_BRIDGE_PLAN_CACHE_H
#define MIMO_BRIDGE_PLAN_CACHE_H

#include <mimo/pairing.h>
#include <mimo/plan.h>

/* Where rows can be: the tiles of either side, or shards that a partition would cut from the dst
 * tiles, one rank's each. */
typedef enum mimo_place {
    MIMO_AT_SRC = MIMO_SRC,
    MIMO_AT_DST = MIMO_DST,
    MIMO_AT_SHARDS,
    MIMO_PLACES,
} mimo_place;

typedef struct mimo_hop {
    mimo_place from, to;
} mimo_hop;

/* What a plan depends on beside the bridge. */
typedef struct mimo_plan_key {
    mimo_hop hop;
    mimo_row_order order[2]; /* from, to */
    int64_t batch, seq;
    uint64_t cut;                        /* tells samples apart */
    const int64_t *samples[MIMO_PLACES]; /* as in mimo_layout_desc; read when the plan is made */
} mimo_plan_key;

typedef struct mimo_plan_cache mimo_plan_cache;

/* places[MIMO_PLACES] are the bridge's layouts but for order, batch and seq; what they point to
 * outlives the cache. */
mimo_status mimo_plan_cache_create(mimo_plan_cache **out, const mimo_layout_desc *places,
                                   int64_t rank);
void mimo_plan_cache_destroy(mimo_plan_cache *cache);

/* Forget all plans: the layouts are others now. */
void mimo_plan_cache_renew(mimo_plan_cache *cache, const mimo_layout_desc *places);

/* The plan for a key. It stays until the cache has made several others. Errors of
 * mimo_layout_create and mimo_plan_create. */
mimo_status mimo_plan_cache_get(const mimo_plan **out, mimo_plan_cache *cache,
                                const mimo_plan_key *key);

#endif
