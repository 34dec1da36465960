#include "bridge/plan/plan_cache.h"

#include "core/check.h"
#include "core/memory.h"

/* Plans kept: every pair of row orders, forward and backward, of a few shapes. */
enum { PLANS_KEPT = 16 };

typedef struct cached_plan {
    mimo_plan_key key;
    mimo_plan *plan; /* NULL: an empty place */
    uint64_t used;   /* the larger, the later */
} cached_plan;

struct mimo_plan_cache {
    mimo_layout_desc places[MIMO_PLACES];
    int64_t rank;
    uint64_t uses;
    cached_plan kept[PLANS_KEPT];
};

mimo_status mimo_plan_cache_create(mimo_plan_cache **out, const mimo_layout_desc *places,
                                   int64_t rank)
{
    mimo_plan_cache *cache;
    MIMO_TRY(mimo_reserve(&cache, 1, sizeof *cache));
    cache->rank = rank;
    mimo_plan_cache_renew(cache, places);
    *out = cache;
    return MIMO_OK;
}

static void forget(mimo_plan_cache *cache)
{
    for (int i = 0; i < PLANS_KEPT; i++) {
        mimo_plan_destroy(cache->kept[i].plan);
        cache->kept[i].plan = NULL;
    }
}

void mimo_plan_cache_renew(mimo_plan_cache *cache, const mimo_layout_desc *places)
{
    forget(cache);
    for (int place = 0; place < MIMO_PLACES; place++)
        cache->places[place] = places[place];
}

void mimo_plan_cache_destroy(mimo_plan_cache *cache)
{
    if (!cache)
        return;
    forget(cache);
    mimo_release(cache);
}

static bool same_key(const mimo_plan_key *a, const mimo_plan_key *b)
{
    return a->hop.from == b->hop.from && a->hop.to == b->hop.to && a->order[0] == b->order[0] &&
           a->order[1] == b->order[1] && a->batch == b->batch && a->seq == b->seq &&
           a->cut == b->cut;
}

static mimo_status make_layout(mimo_layout **out, const mimo_plan_cache *cache,
                               const mimo_plan_key *key, mimo_place place)
{
    mimo_layout_desc desc = cache->places[place];
    desc.order = key->order[place == key->hop.to];
    desc.batch = key->batch;
    desc.seq = key->seq;
    desc.samples = key->samples[place];
    return mimo_layout_create(out, &desc);
}

static mimo_status make_plan(mimo_plan **out, const mimo_plan_cache *cache,
                             const mimo_plan_key *key)
{
    mimo_layout *from = NULL, *to = NULL;
    mimo_status status = make_layout(&from, cache, key, key->hop.from);
    if (status == MIMO_OK)
        status = make_layout(&to, cache, key, key->hop.to);
    if (status == MIMO_OK)
        status = mimo_plan_create(out, from, to, cache->rank);
    mimo_layout_destroy(from);
    mimo_layout_destroy(to);
    return status;
}

mimo_status mimo_plan_cache_get(const mimo_plan **out, mimo_plan_cache *cache,
                                const mimo_plan_key *key)
{
    cached_plan *oldest = &cache->kept[0];
    for (int i = 0; i < PLANS_KEPT; i++) {
        cached_plan *kept = &cache->kept[i];
        if (kept->plan && same_key(&kept->key, key)) {
            kept->used = ++cache->uses;
            *out = kept->plan;
            return MIMO_OK;
        }
        if (kept->used < oldest->used)
            oldest = kept;
    }
    mimo_plan *made;
    MIMO_TRY(make_plan(&made, cache, key));
    mimo_plan_destroy(oldest->plan);
    *oldest = (cached_plan){*key, made, ++cache->uses};
    *out = made;
    return MIMO_OK;
}
