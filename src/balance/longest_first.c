#include "balance/balance_types.h"

#include <string.h>

#include "core/memory.h"
#include "core/mutation.h"

mimo_status mimo_dealer_open(mimo_dealer *out, const mimo_balance_input *input,
                             const int64_t *weight)
{
    int64_t items = input->desc.items, lanes = input->desc.lanes;
    mimo_dealer own = {.input = input, .weight = weight};
    mimo_status status = MIMO_OK;
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&own.order, items, sizeof *own.order));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&own.rest, items, sizeof *own.rest));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&own.load, lanes, sizeof *own.load));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&own.rows, lanes, sizeof *own.rows));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&own.heap, lanes, sizeof *own.heap));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&own.swaps, 3 * items + 1, sizeof *own.swaps));
    MIMO_TRY_GOTO(status, fail, mimo_item_order(own.order, weight, items));
    *out = own;
    return MIMO_OK;
fail:
    mimo_dealer_close(&own);
    return status;
}

void mimo_dealer_close(mimo_dealer *dealer)
{
    mimo_release(dealer->order);
    mimo_release(dealer->rest);
    mimo_release(dealer->load);
    mimo_release(dealer->rows);
    mimo_release(dealer->heap);
    mimo_release(dealer->swaps);
}

/* -------------------------------------- the lane with the least ----------------------------- */

static inline bool comes_before(const mimo_dealer *own, int64_t a, int64_t b)
{
    return own->load[a] != own->load[b] ? own->load[a] < own->load[b] : a < b;
}

/* Put the heap in order below a place whose lane has become longer. */
static void sift_down(mimo_dealer *own, int64_t place)
{
    int64_t lanes = own->input->desc.lanes, lane = own->heap[place];
    for (int64_t child; (child = 2 * place + 1) < lanes; place = child) {
        if (child + 1 < lanes && comes_before(own, own->heap[child + 1], own->heap[child]))
            child++;
        if (comes_before(own, lane, own->heap[child]))
            break;
        own->heap[place] = own->heap[child];
    }
    own->heap[place] = lane;
}

static void order_lanes(mimo_dealer *own)
{
    for (int64_t i = 0; i < own->input->desc.lanes; i++)
        own->heap[i] = i;
    for (int64_t place = own->input->desc.lanes / 2; place-- > 0;)
        sift_down(own, place);
}

static inline bool has_room(const mimo_dealer *own, int64_t lane, int64_t item)
{
    return mimo_lane_has_room(own->input, own->rows[lane] + own->input->desc.rows[item]);
}

/* Whether lane `a` is the better one for an item that the lane with the least has no room for: of
 * lanes with room the one with the least, of the others the one with the fewest rows. */
static bool is_better(const mimo_dealer *own, int64_t a, int64_t b, int64_t item)
{
    bool room = has_room(own, a, item);
    if (room != has_room(own, b, item))
        return room;
    if (!room && own->rows[a] != own->rows[b])
        return own->rows[a] < own->rows[b];
    return comes_before(own, a, b);
}

/* The place in the heap of the lane that takes an item: the first one, unless it has no room. */
static int64_t place_for(const mimo_dealer *own, int64_t item)
{
    int64_t best = 0;
    if (has_room(own, own->heap[0], item))
        return 0;
    for (int64_t place = 1; place < own->input->desc.lanes; place++)
        if (is_better(own, own->heap[place], own->heap[best], item))
            best = place;
    return best;
}

/* -------------------------------------------- deals ----------------------------------------- */

static inline void give(int64_t *lane_of, mimo_dealer *own, int64_t item, int64_t lane)
{
    lane_of[item] = lane;
    own->load[lane] += MIMO_MUTATED("cost-ignored") ? 1 : own->weight[item];
    own->rows[lane] += own->input->desc.rows[item];
}

/* Returns the number of items in `rest`. */
static int64_t keep_at_home(int64_t *lane_of, mimo_dealer *own, int64_t level)
{
    const mimo_balance_desc *desc = &own->input->desc;
    int64_t count = 0;
    for (int64_t i = 0; i < desc->items; i++) {
        int64_t item = own->order[i], home = level >= 0 && desc->home ? desc->home[item] : -1;
        if (home >= 0 && own->weight[item] <= level - own->load[home] && has_room(own, home, item))
            give(lane_of, own, item, home);
        else
            own->rest[count++] = item;
    }
    return count;
}

/* What lanes have at home. */
static void stay_at_home(int64_t *lane_of, mimo_dealer *own)
{
    for (int64_t i = 0; i < own->input->desc.items; i++) {
        lane_of[i] = own->input->desc.home[i];
        if (lane_of[i] >= 0)
            give(lane_of, own, i, lane_of[i]);
    }
}

static void leave(int64_t *lane_of, mimo_dealer *own, int64_t item)
{
    own->load[lane_of[item]] -= own->weight[item];
    own->rows[lane_of[item]] -= own->input->desc.rows[item];
    lane_of[item] = -1;
}

/* Lanes give away what they have above the level: their largest items that are not more than that,
 * then the smallest one that covers the rest of it. Returns the number of items in `rest`. */
static int64_t leave_home(int64_t *lane_of, mimo_dealer *own, int64_t level)
{
    int64_t items = own->input->desc.items, count = 0;
    stay_at_home(lane_of, own);
    for (int64_t i = 0; i < items; i++) {
        int64_t item = own->order[i], lane = lane_of[item], weight = own->weight[item];
        if (lane >= 0 && weight > 0 && weight <= own->load[lane] - level)
            leave(lane_of, own, item);
    }
    for (int64_t i = items; i-- > 0;) {
        int64_t item = own->order[i], lane = lane_of[item];
        if (lane >= 0 && own->weight[item] > 0 && own->load[lane] > level)
            leave(lane_of, own, item);
    }
    for (int64_t i = 0; i < items; i++)
        if (lane_of[own->order[i]] < 0)
            own->rest[count++] = own->order[i];
    return count;
}

void mimo_deal(mimo_assignment *out, mimo_dealer *dealer, mimo_deal_kind kind, int64_t level)
{
    size_t bytes = (size_t)dealer->input->desc.lanes * sizeof *dealer->load;
    memset(dealer->load, 0, bytes);
    memset(dealer->rows, 0, bytes);
    int64_t count = kind == MIMO_DEAL_LEAVE ? leave_home(out->lane, dealer, level)
                                            : keep_at_home(out->lane, dealer, level);
    order_lanes(dealer);
    for (int64_t i = 0; i < count; i++) {
        int64_t place = place_for(dealer, dealer->rest[i]);
        give(out->lane, dealer, dealer->rest[i], dealer->heap[place]);
        sift_down(dealer, place);
    }
    mimo_assignment_measure(out, dealer->input);
}

void mimo_bring_home(mimo_assignment *assignment, const mimo_dealer *dealer, int64_t limit)
{
    const mimo_balance_desc *desc = &dealer->input->desc;
    for (int64_t i = 0; i < desc->items; i++) {
        int64_t item = dealer->order[i], home = desc->home[item], lane = assignment->lane[item];
        if (home < 0 || home == lane || assignment->cost[home] > limit - desc->cost[item] ||
            !mimo_lane_has_room(dealer->input, assignment->rows[home] + desc->rows[item]))
            continue;
        assignment->lane[item] = home;
        assignment->cost[home] += desc->cost[item];
        assignment->rows[home] += desc->rows[item];
        assignment->cost[lane] -= desc->cost[item];
        assignment->rows[lane] -= desc->rows[item];
    }
    mimo_assignment_measure(assignment, dealer->input);
}
