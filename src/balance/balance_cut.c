/* The best cut of items in their order, by bisection over the longest lane. */
#include "balance/balance_types.h"

#include "core/memory.h"

/* What a lane may have at most: weight and rows. */
typedef struct lane_limit {
    const int64_t *weight;
    int64_t most;
} lane_limit;

/* Fill lanes from the last one with all that fits: first[l] is the least item with which lane l can
 * begin. True where lane 0 can begin with item 0. */
static bool fill_from_the_end(int64_t *first, const mimo_balance_input *input,
                              const lane_limit *limit)
{
    int64_t item = input->desc.items;
    for (int64_t l = input->desc.lanes; l-- > 0;) {
        int64_t load = 0, rows = 0;
        for (; item > 0; item--) {
            if (limit->weight[item - 1] > limit->most - load ||
                !mimo_lane_has_room(input, rows + input->desc.rows[item - 1]))
                break;
            load += limit->weight[item - 1];
            rows += input->desc.rows[item - 1];
        }
        first[l] = item;
    }
    return item == 0;
}

/* The least `most` with which the items fit. `highest`, the weight of all, fits. */
static int64_t least_limit(int64_t *first, const mimo_balance_input *input, const int64_t *weight,
                           int64_t highest)
{
    int64_t low = highest / input->desc.lanes - 1, high = highest; /* low does not fit */
    while (high - low > 1) {
        lane_limit limit = {weight, low + (high - low) / 2};
        if (fill_from_the_end(first, input, &limit))
            high = limit.most;
        else
            low = limit.most;
    }
    return high;
}

/* Each lane takes what must not be left to those behind it, and then items while it stays below its
 * even share of the rest. Claim: no lane exceeds the limit. Why: a lane begins at or behind
 * first[l], from where the items up to first[l + 1] are within it. The rest fits the lanes that are
 * left, so their even share is within it as well. */
static void spread(int64_t *lane, const mimo_balance_input *input, const int64_t *first,
                   const lane_limit *limit)
{
    const mimo_balance_desc *desc = &input->desc;
    int64_t rest = 0, item = 0;
    for (int64_t i = 0; i < desc->items; i++)
        rest += limit->weight[i];
    for (int64_t l = 0; l < desc->lanes; l++) {
        int64_t load = 0, rows = 0, left = desc->lanes - l;
        int64_t until = l + 1 < desc->lanes ? first[l + 1] : desc->items;
        int64_t share = rest / left + (rest % left > 0);
        for (; item < desc->items; item++) {
            bool fits = limit->weight[item] <= share - load &&
                        mimo_lane_has_room(input, rows + desc->rows[item]);
            if (item >= until && !fits)
                break;
            load += limit->weight[item];
            rows += desc->rows[item];
            lane[item] = l;
        }
        rest -= load;
    }
}

mimo_status mimo_balance_cut(mimo_assignment *out, const mimo_balance_input *input)
{
    mimo_balance_input unlimited = *input;
    const mimo_balance_desc *desc = &input->desc;
    int64_t *first;
    MIMO_TRY(mimo_reserve(&first, desc->lanes, sizeof *first));
    unlimited.desc.max_rows = 0;
    lane_limit limit = {desc->cost, input->cost};
    if (!fill_from_the_end(first, input, &limit)) { /* memory is what counts */
        limit = (lane_limit){desc->rows, input->rows};
        input = &unlimited;
    }
    limit.most = least_limit(first, input, limit.weight, limit.most);
    fill_from_the_end(first, input, &limit);
    spread(out->lane, input, first, &limit);
    mimo_release(first);
    return MIMO_OK;
}
