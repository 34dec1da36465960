#include "balance/balance_types.h"

#include <string.h>

/* A round looks at all items, so their number is bounded. */
enum { MOST_ROUNDS = 64 };

typedef struct lane_pair {
    const mimo_balance_input *input;
    mimo_assignment *now;
    const int64_t *order;
    int64_t longest, shortest;         /* lanes */
    int64_t *of_longest, *of_shortest; /* their items by descending cost; of_shortest ends with -1,
                                          no item, whose cost and rows are 0 */
    int64_t longest_count, shortest_count;
} lane_pair;

/* Item `a` of the longest lane for item `b` of the shortest, and how much then moves. */
typedef struct lane_swap {
    int64_t a, b, cost;
} lane_swap;

static void find_lanes(lane_pair *own)
{
    const int64_t *cost = own->now->cost;
    own->longest = own->shortest = 0;
    for (int64_t l = 1; l < own->input->desc.lanes; l++) {
        if (cost[l] > cost[own->longest])
            own->longest = l;
        if (cost[l] < cost[own->shortest])
            own->shortest = l;
    }
}

static void list_items(lane_pair *own)
{
    own->longest_count = own->shortest_count = 0;
    for (int64_t i = 0; i < own->input->desc.items; i++) {
        int64_t item = own->order[i], lane = own->now->lane[item];
        if (lane == own->longest)
            own->of_longest[own->longest_count++] = item;
        else if (lane == own->shortest)
            own->of_shortest[own->shortest_count++] = item;
    }
    own->of_shortest[own->shortest_count++] = -1;
}

static int64_t cost_of(const lane_pair *own, int64_t item)
{
    return item < 0 ? 0 : own->input->desc.cost[item];
}

static int64_t rows_of(const lane_pair *own, int64_t item)
{
    return item < 0 ? 0 : own->input->desc.rows[item];
}

/* Where the longer one of both lanes would stand. */
static int64_t longer_after(const lane_pair *own, int64_t cost)
{
    int64_t a = own->now->cost[own->longest] - cost, b = own->now->cost[own->shortest] + cost;
    return a > b ? a : b;
}

static bool fits(const lane_pair *own, int64_t a, int64_t b)
{
    int64_t rows = rows_of(own, a) - rows_of(own, b);
    return mimo_lane_has_room(own->input, own->now->rows[own->longest] - rows) &&
           mimo_lane_has_room(own->input, own->now->rows[own->shortest] + rows);
}

static void consider(lane_swap *best, const lane_pair *own, int64_t a, int64_t b)
{
    int64_t gap = own->now->cost[own->longest] - own->now->cost[own->shortest];
    int64_t cost = cost_of(own, a) - cost_of(own, b);
    if (cost <= 0 || cost >= gap || !fits(own, a, b))
        return;
    if (best->cost == 0 || longer_after(own, cost) < longer_after(own, best->cost))
        *best = (lane_swap){a, b, cost};
}

/* The swap that leaves both lanes the most equal: half of their gap should move. Items of both
 * lists descend, so the partner that fits best descends as well. */
static lane_swap best_swap(const lane_pair *own)
{
    int64_t half = (own->now->cost[own->longest] - own->now->cost[own->shortest]) / 2;
    lane_swap best = {-1, -1, 0};
    int64_t j = 0;
    for (int64_t i = 0; i < own->longest_count; i++) {
        int64_t a = own->of_longest[i];
        while (j + 1 < own->shortest_count &&
               cost_of(own, own->of_shortest[j]) > cost_of(own, a) - half)
            j++;
        consider(&best, own, a, own->of_shortest[j]);
        if (j > 0)
            consider(&best, own, a, own->of_shortest[j - 1]);
    }
    return best;
}

static void apply(const lane_pair *own, const lane_swap *swap)
{
    own->now->lane[swap->a] = own->shortest;
    if (swap->b >= 0)
        own->now->lane[swap->b] = own->longest;
    mimo_assignment_measure(own->now, own->input);
}

/* Make swaps. Other lanes may be as long as the longest: only where all of them have become shorter
 * was it worth what moves, so `best` follows then alone. */
static void make_swaps(lane_pair *own, int64_t *best, int64_t target)
{
    int64_t shortest_yet = own->now->longest;
    size_t bytes = (size_t)own->input->desc.items * sizeof *best;
    memcpy(best, own->now->lane, bytes);
    for (int round = 0; round < MOST_ROUNDS && own->now->longest > target; round++) {
        find_lanes(own);
        list_items(own);
        lane_swap swap = best_swap(own);
        if (swap.cost == 0)
            break;
        apply(own, &swap);
        if (own->now->longest < shortest_yet)
            memcpy(best, own->now->lane, bytes);
        shortest_yet = own->now->longest < shortest_yet ? own->now->longest : shortest_yet;
    }
    memcpy(own->now->lane, best, bytes);
    mimo_assignment_measure(own->now, own->input);
}

void mimo_shorten_longest(mimo_assignment *assignment, mimo_dealer *dealer, int64_t target)
{
    int64_t items = dealer->input->desc.items;
    lane_pair own = {.input = dealer->input,
                     .now = assignment,
                     .order = dealer->order,
                     .of_longest = dealer->swaps,
                     .of_shortest = dealer->swaps + items};
    if (assignment->longest > target)
        make_swaps(&own, dealer->swaps + 2 * items + 1, target);
}
