/* The plans of one rank of a bridge, made when a batch is first seen and kept. Pure. */
#ifndef MIMO_BRIDGE_PLAN_CACHE_H
#define MIMO_BRIDGE_PLAN_CACHE_H

#include <mimo/pairing.h>
#include <mimo/plan.h>

/* What a plan depends on beside the bridge. */
typedef struct mimo_plan_key {
    bool backward;
    mimo_row_order order[2]; /* by mimo_side */
    int64_t batch, seq;
    uint64_t cut;              /* tells samples apart */
    const int64_t *samples[2]; /* by mimo_side, as in mimo_layout_desc; read when it is made */
} mimo_plan_key;

typedef struct mimo_plan_cache mimo_plan_cache;

/* sides[2], by mimo_side, are the bridge's two layouts but for order, batch and seq; what they
 * point to outlives the cache. */
mimo_status mimo_plan_cache_create(mimo_plan_cache **out, const mimo_layout_desc *sides,
                                   int64_t rank);
void mimo_plan_cache_destroy(mimo_plan_cache *cache);

/* The plan for a key. It stays until the cache has made several others. Errors of
 * mimo_layout_create and mimo_plan_create. */
mimo_status mimo_plan_cache_get(const mimo_plan **out, mimo_plan_cache *cache,
                                const mimo_plan_key *key);

#endif
