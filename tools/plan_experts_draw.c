/* Ids by chance, as a race. An expert of weight w arrives after -log(u) / w, where u is uniform,
 * and a token takes the first k. Why: that is the same as drawing k of them one after the other,
 * each time in proportion to the weights of those that are left. */
#include <math.h>

#include "core/checked.h"
#include "core/hash.h"
#include "core/memory.h"
#include "plan_experts.h"

typedef struct race {
    double *rate;    /* [experts]: 1 / weight */
    double *arrival; /* [experts] */
    int64_t experts, top_k;
} race;

/* A number in (0, 1) that depends on the seed and the index alone. */
static double uniform(uint64_t seed, int64_t index)
{
    return ((double)(mimo_hash_int(seed, index) >> 12) + 0.5) / (double)(INT64_C(1) << 52);
}

/* Where a likely expert lies: where chance puts it, with a shuffle of the seed. */
static void set_rates(race *it, const plan_experts_request *request)
{
    const uint64_t seed = mimo_hash_int(MIMO_HASH_START, ~request->seed);
    for (int64_t e = 0; e < it->experts; e++)
        it->rate[e] = pow((double)(e + 1), request->zipf);
    for (int64_t e = it->experts - 1; request->shuffled && e > 0; e--) {
        int64_t other = (int64_t)(uniform(seed, e) * (double)(e + 1));
        double kept = it->rate[e];
        it->rate[e] = it->rate[other];
        it->rate[other] = kept;
    }
}

/* The experts of one token, the first to arrive first. */
static void run_race(int32_t *ids, const race *it, uint64_t seed, int64_t token)
{
    int64_t count = 0;
    for (int64_t e = 0; e < it->experts; e++) {
        int64_t at = count;
        it->arrival[e] = -log(uniform(seed, token * it->experts + e)) * it->rate[e];
        if (count == it->top_k && it->arrival[e] >= it->arrival[ids[count - 1]])
            continue;
        if (count < it->top_k)
            count++;
        else
            at--;
        for (; at > 0 && it->arrival[ids[at - 1]] > it->arrival[e]; at--)
            ids[at] = ids[at - 1];
        ids[at] = (int32_t)e;
    }
}

mimo_status plan_experts_draw(plan_experts *plan)
{
    const plan_experts_request *request = plan->request;
    int64_t tokens, ids;
    race it = {.experts = request->experts, .top_k = request->top_k};
    MIMO_TRY(mimo_mul(&tokens, plan->etp * plan->ep, request->tokens));
    MIMO_TRY(mimo_mul(&ids, tokens, request->top_k));
    MIMO_TRY(mimo_reserve(&plan->ids, ids, sizeof *plan->ids));
    mimo_status status = mimo_reserve(&it.rate, it.experts, sizeof *it.rate);
    if (status == MIMO_OK)
        status = mimo_reserve(&it.arrival, it.experts, sizeof *it.arrival);
    if (status == MIMO_OK)
        set_rates(&it, request);
    for (int64_t token = 0; status == MIMO_OK && token < tokens; token++)
        run_race(plan->ids + token * request->top_k, &it,
                 mimo_hash_int(MIMO_HASH_START, request->seed), token);
    mimo_release(it.rate);
    mimo_release(it.arrival);
    return status;
}
