#include "plan/plan_cache.h"

#include "core/check.h"
#include "core/memory.h"
#include "core/recent.h"

/* Every pair of row orders, forward and backward, of a few shapes. */
enum { PLANS_KEPT = 16 };

typedef struct cached_plan {
    mimo_recent_entry entry;
    mimo_plan_key key;
    mimo_plan *plan;
} cached_plan;

struct mimo_plan_cache {
    mimo_layout_desc layouts[MIMO_ENDPOINTS];
    int64_t rank;
    mimo_recent plans;
};

static void release_plan(mimo_recent_entry *entry, void *context)
{
    (void)context;
    mimo_plan_destroy(((cached_plan *)entry)->plan);
    mimo_release(entry);
}

static const mimo_recent_kind plan_kind = {NULL, release_plan};

mimo_status mimo_plan_cache_create(mimo_plan_cache **out, const mimo_layout_desc *layouts,
                                   int64_t rank)
{
    mimo_plan_cache *cache;
    MIMO_TRY(mimo_reserve(&cache, 1, sizeof *cache));
    cache->rank = rank;
    mimo_plan_cache_renew(cache, layouts);
    *out = cache;
    return MIMO_OK;
}

void mimo_plan_cache_renew(mimo_plan_cache *cache, const mimo_layout_desc *layouts)
{
    mimo_recent_clear(&cache->plans, &plan_kind, NULL);
    for (int at = 0; at < MIMO_ENDPOINTS; at++)
        cache->layouts[at] = layouts[at];
}

void mimo_plan_cache_destroy(mimo_plan_cache *cache)
{
    if (!cache)
        return;
    mimo_recent_clear(&cache->plans, &plan_kind, NULL);
    mimo_release(cache);
}

static bool has_key(const mimo_recent_entry *entry, const void *context)
{
    const mimo_plan_key *a = &((const cached_plan *)entry)->key, *b = context;
    return a->ends.from == b->ends.from && a->ends.to == b->ends.to && a->order[0] == b->order[0] &&
           a->order[1] == b->order[1] && a->batch == b->batch && a->seq == b->seq &&
           a->split == b->split;
}

static mimo_status make_layout(mimo_layout **out, const mimo_layout_desc *layouts,
                               const mimo_plan_key *key, mimo_endpoint at)
{
    mimo_layout_desc desc = layouts[at];
    desc.order = key->order[at == key->ends.to];
    desc.batch = key->batch;
    desc.seq = key->seq;
    desc.samples = key->samples[at];
    return mimo_layout_create(out, &desc);
}

mimo_status mimo_plan_of_key(mimo_plan **out, const mimo_layout_desc *layouts,
                             const mimo_plan_key *key, int64_t rank)
{
    mimo_layout *from = NULL, *to = NULL;
    mimo_status status = make_layout(&from, layouts, key, key->ends.from);
    if (status == MIMO_OK)
        status = make_layout(&to, layouts, key, key->ends.to);
    if (status == MIMO_OK)
        status = mimo_plan_create(out, from, to, rank);
    mimo_layout_destroy(from);
    mimo_layout_destroy(to);
    return status;
}

static mimo_status make_entry(cached_plan **out, const mimo_plan_cache *cache,
                              const mimo_plan_key *key)
{
    cached_plan *made;
    MIMO_TRY(mimo_reserve(&made, 1, sizeof *made));
    made->key = *key;
    mimo_status status = mimo_plan_of_key(&made->plan, cache->layouts, key, cache->rank);
    if (status == MIMO_OK)
        *out = made;
    else
        mimo_release(made);
    return status;
}

mimo_status mimo_plan_cache_get(const mimo_plan **out, mimo_plan_cache *cache,
                                const mimo_plan_key *key)
{
    cached_plan *plan = (cached_plan *)mimo_recent_take(&cache->plans, has_key, key);
    if (!plan)
        MIMO_TRY(make_entry(&plan, cache, key));
    mimo_recent_put(&cache->plans, &plan->entry);
    mimo_recent_trim(&cache->plans, PLANS_KEPT, &plan_kind, NULL);
    *out = plan->plan;
    return MIMO_OK;
}
