#include "bridge/plan_cache.h"

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
    mimo_layout_desc sides[2];
    int64_t rank;
    uint64_t uses;
    cached_plan kept[PLANS_KEPT];
};

mimo_status mimo_plan_cache_create(mimo_plan_cache **out, const mimo_layout_desc *sides,
                                   int64_t rank)
{
    mimo_plan_cache *cache;
    MIMO_TRY(mimo_reserve(&cache, 1, sizeof *cache));
    cache->sides[MIMO_SRC] = sides[MIMO_SRC];
    cache->sides[MIMO_DST] = sides[MIMO_DST];
    cache->rank = rank;
    *out = cache;
    return MIMO_OK;
}

void mimo_plan_cache_destroy(mimo_plan_cache *cache)
{
    if (!cache)
        return;
    for (int i = 0; i < PLANS_KEPT; i++)
        mimo_plan_destroy(cache->kept[i].plan);
    mimo_release(cache);
}

static bool same_key(const mimo_plan_key *a, const mimo_plan_key *b)
{
    return a->backward == b->backward && a->order[MIMO_SRC] == b->order[MIMO_SRC] &&
           a->order[MIMO_DST] == b->order[MIMO_DST] && a->batch == b->batch && a->seq == b->seq &&
           a->cut == b->cut;
}

static mimo_status side_layout(mimo_layout **out, const mimo_plan_cache *cache, mimo_side side,
                               const mimo_plan_key *key)
{
    mimo_layout_desc desc = cache->sides[side];
    desc.order = key->order[side];
    desc.batch = key->batch;
    desc.seq = key->seq;
    desc.samples = key->samples[side];
    return mimo_layout_create(out, &desc);
}

static mimo_status make_plan(mimo_plan **out, const mimo_plan_cache *cache,
                             const mimo_plan_key *key)
{
    mimo_layout *from = NULL, *to = NULL;
    mimo_side source = key->backward ? MIMO_DST : MIMO_SRC;
    mimo_side target = key->backward ? MIMO_SRC : MIMO_DST;
    mimo_status status = side_layout(&from, cache, source, key);
    if (status == MIMO_OK)
        status = side_layout(&to, cache, target, key);
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
