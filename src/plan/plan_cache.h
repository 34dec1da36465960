/* The plans of one rank of a bridge, each made from what it depends on, and kept. Pure. */
#ifndef MIMO_PLAN_PLAN_CACHE_H
#define MIMO_PLAN_PLAN_CACHE_H

#include <mimo/pairing.h>
#include <mimo/plan.h>

/* Where rows can be: in the tiles of either side, or in shards. A shard is the part of the dst tile
 * that a partition over cp would leave to one rank. */
typedef enum mimo_endpoint {
    MIMO_AT_SRC = MIMO_SRC,
    MIMO_AT_DST = MIMO_DST,
    MIMO_AT_SHARDS,
    MIMO_ENDPOINTS,
} mimo_endpoint;

typedef struct mimo_endpoints {
    mimo_endpoint from, to;
} mimo_endpoints;

/* What a plan of a bridge depends on. */
typedef struct mimo_plan_key {
    mimo_endpoints ends;
    mimo_row_order order[2]; /* from, to */
    int64_t batch, seq;
    uint64_t split;                         /* the hash of the batch split */
    const int64_t *samples[MIMO_ENDPOINTS]; /* as in mimo_layout_desc; read when the plan is made */
} mimo_plan_key;

/* A rank's plan for a key. layouts[MIMO_ENDPOINTS] are the bridge's; order, batch, seq and samples
 * come from the key. The caller owns *out. Errors of mimo_layout_create and mimo_plan_create. */
mimo_status mimo_plan_of_key(mimo_plan **out, const mimo_layout_desc *layouts,
                             const mimo_plan_key *key, int64_t rank);

typedef struct mimo_plan_cache mimo_plan_cache;

/* The layouts are those of mimo_plan_of_key. What they point to outlives the cache. */
mimo_status mimo_plan_cache_create(mimo_plan_cache **out, const mimo_layout_desc *layouts,
                                   int64_t rank);
void mimo_plan_cache_destroy(mimo_plan_cache *cache);

/* Forget all plans: the layouts have changed. */
void mimo_plan_cache_renew(mimo_plan_cache *cache, const mimo_layout_desc *layouts);

/* The plan for a key. It is valid until the cache has made several others. Errors of
 * mimo_plan_of_key. */
mimo_status mimo_plan_cache_get(const mimo_plan **out, mimo_plan_cache *cache,
                                const mimo_plan_key *key);

#endif
