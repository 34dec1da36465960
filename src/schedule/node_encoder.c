/*
 * The encoder in what exchanges leave idle. E and EB of a group are cut into pieces. Where a stage
 * computes nothing because it waits for an exchange, pieces stand: those of the next groups, before
 * the step E or between it and the call BF, and those of groups that came back, behind the step EB.
 *
 * All else stays as the schedule has it: calls of the bridge, the order of groups, and L. A group
 * is alive from its first piece to the last one of its backward. A group's first piece stands where
 * fewer than L are alive. So the executor needs the same memory.
 *
 * A piece that is moved is not always a gain: another stage may wait for what comes behind it. So
 * the lists are walked with and without, and the fastest ones stay.
 */
#include "schedule/node_types.h"

#include "core/memory.h"
#include "core/mutation.h"

/* A stage's list that is written anew. */
typedef struct filling {
    const mimo_nodes *nodes;
    const mimo_stage_nodes *old;
    mimo_stage_nodes list;
    bool late; /* pieces may come later than their step, those of E up to the call BF */
    int64_t held;
    int64_t encoded, piece; /* the group and the piece that come next */
    int64_t returned, back; /* the same backward */
    int64_t came_back;      /* groups whose step EB was reached */
    int64_t computed;       /* when the lane COMPUTE is free */
} filling;

/* ------------------------------------------- pieces ------------------------------------------ */

static mimo_node next_front(const filling *own, int64_t step)
{
    return (mimo_node){MIMO_NODE_ENCODER, MIMO_NODE_FORWARD, step, own->encoded, 0, own->piece};
}

static mimo_node next_back(const filling *own, int64_t step)
{
    return (mimo_node){MIMO_NODE_ENCODER, MIMO_NODE_INPUTS, step, own->returned, 0, own->back};
}

static bool has_room(const filling *own)
{
    int64_t most = own->nodes->schedule->limit;
    return own->piece > 1 || own->held < most + (MIMO_MUTATED("piece-over-the-limit") ? 1 : 0);
}

static mimo_status put_front(filling *own, int64_t step)
{
    MIMO_TRY(mimo_nodes_append(&own->list, next_front(own, step)));
    own->held += own->piece == 1;
    if (own->piece++ < own->nodes->pieces)
        return MIMO_OK;
    own->encoded++;
    own->piece = 1;
    return MIMO_OK;
}

static mimo_status put_back(filling *own, int64_t step)
{
    MIMO_TRY(mimo_nodes_append(&own->list, next_back(own, step)));
    own->held -= own->back == 1;
    if (own->back-- > 1)
        return MIMO_OK;
    own->returned++;
    own->back = own->nodes->pieces;
    return MIMO_OK;
}

static mimo_status put_all_back(filling *own, int64_t step)
{
    while (own->returned < own->came_back)
        MIMO_TRY(put_back(own, step));
    return MIMO_OK;
}

/* -------------------------------------------- gaps ------------------------------------------- */

/* How long the stage computes nothing before node i, because an exchange is not over. */
static int64_t gap_before(const filling *own, int64_t i)
{
    const mimo_node_time *times = own->old->times;
    int64_t move = own->old->waits[i * MIMO_NODE_LANES + (int64_t)MIMO_NODE_LANE_EXCHANGES];
    bool exposed = move >= 0 && times[move].end == times[i].begin;
    return exposed ? times[i].begin - own->computed : 0;
}

/* What came back goes first: that frees a group. */
static mimo_status fill(filling *own, int64_t gap, int64_t step)
{
    while (gap > 0) {
        const mimo_node front = next_front(own, step), back = next_back(own, step);
        bool returns = own->returned < own->came_back;
        bool encodes = own->encoded < own->nodes->schedule->groups && has_room(own);
        int64_t of_back = returns ? mimo_node_encoder_cost(own->nodes, &back) : 0;
        int64_t of_front = encodes ? mimo_node_encoder_cost(own->nodes, &front) : 0;
        if (returns && of_back <= gap) {
            MIMO_TRY(put_back(own, step));
            gap -= of_back;
        } else if (encodes && of_front <= gap) {
            MIMO_TRY(put_front(own, step));
            gap -= of_front;
        } else {
            return MIMO_OK;
        }
    }
    return MIMO_OK;
}

/* -------------------------------------------- lists ------------------------------------------ */

/* What is left of the E of groups up to this one. */
static mimo_status put_front_up_to(filling *own, int64_t group, int64_t step)
{
    while (own->encoded <= group) {
        while (!has_room(own) && own->returned < own->came_back)
            MIMO_TRY(put_back(own, step));
        MIMO_TRY(put_front(own, step));
    }
    return MIMO_OK;
}

/* The step E or EB itself: what is left stands there, unless it may come later. */
static mimo_status take_encoder(filling *own, const mimo_node *node)
{
    bool forward = node->pass == MIMO_NODE_FORWARD;
    if (!forward)
        own->came_back = node->micro_batch + 1;
    if (own->late)
        return MIMO_OK;
    return forward ? put_front_up_to(own, node->micro_batch, node->step)
                   : put_all_back(own, node->step);
}

/* Nothing of a group's E comes behind the call that takes its rows. */
static mimo_status take_node(filling *own, int64_t i)
{
    const mimo_node *node = &own->old->nodes[i];
    bool computes = mimo_node_lane_of(node->part) == MIMO_NODE_LANE_COMPUTE;
    if (node->part == MIMO_NODE_CALL && node->pass == MIMO_NODE_FORWARD)
        MIMO_TRY(put_front_up_to(own, node->micro_batch, node->step));
    if (computes && node->part != MIMO_NODE_ENCODER)
        MIMO_TRY(fill(own, gap_before(own, i), node->step));
    if (computes && own->old->times[i].end > own->computed)
        own->computed = own->old->times[i].end;
    return node->part == MIMO_NODE_ENCODER ? take_encoder(own, node)
                                           : mimo_nodes_append(&own->list, *node);
}

static mimo_status fill_stage(mimo_nodes *nodes, int64_t stage, bool late)
{
    mimo_stage_nodes *list = &nodes->stages[stage];
    filling own = {.nodes = nodes, .old = list, .late = late, .piece = 1, .back = nodes->pieces};
    mimo_status status = MIMO_OK;
    for (int64_t i = 0; status == MIMO_OK && i < list->count; i++)
        status = take_node(&own, i);
    if (status == MIMO_OK && list->count > 0)
        status = put_all_back(&own, list->nodes[list->count - 1].step);
    if (status != MIMO_OK) {
        mimo_release(own.list.nodes);
        return status;
    }
    mimo_release(list->nodes);
    list->nodes = own.list.nodes;
    list->count = own.list.count;
    list->capacity = own.list.capacity;
    return MIMO_OK;
}

/* ------------------------------------------- choice ------------------------------------------ */

typedef enum way { WHOLE, EARLY, EARLY_AND_LATE, WAYS } way;

typedef struct choice {
    mimo_nodes *nodes;
    way *of; /* of[pp]: each stage's */
    int64_t time;
} choice;

/* From the schedule's steps to lists that are filled as chosen, and the time that they take. */
static mimo_status take(int64_t *time, const choice *own)
{
    mimo_nodes *nodes = own->nodes;
    MIMO_TRY(mimo_nodes_cut(nodes));
    MIMO_TRY(mimo_nodes_find_times(nodes));
    for (int64_t p = 0; p < nodes->schedule->desc.stages; p++)
        if (own->of[p] != WHOLE)
            MIMO_TRY(fill_stage(nodes, p, own->of[p] == EARLY_AND_LATE));
    MIMO_TRY(mimo_nodes_find_waits(nodes));
    MIMO_TRY(mimo_nodes_find_times(nodes));
    *time = mimo_nodes_planned_time(nodes);
    return MIMO_OK;
}

/* Try each way on the stages [first, end), and keep the fastest for all of them. */
static mimo_status choose(choice *own, int64_t first, int64_t end)
{
    way best = own->of[first];
    for (int by = EARLY; by < WAYS; by++) {
        int64_t time;
        for (int64_t p = first; p < end; p++)
            own->of[p] = (way)by;
        MIMO_TRY(take(&time, own));
        best = time < own->time ? (way)by : best;
        own->time = time < own->time ? time : own->time;
    }
    for (int64_t p = first; p < end; p++)
        own->of[p] = best;
    return MIMO_OK;
}

/* All stages alike, and then one after the other: what lies between two stages waits for both. */
static mimo_status choose_all(choice *own)
{
    int64_t pp = own->nodes->schedule->desc.stages, time;
    MIMO_TRY(take(&own->time, own));
    MIMO_TRY(choose(own, 0, pp));
    for (int64_t p = 0; pp > 1 && p < pp; p++)
        MIMO_TRY(choose(own, p, p + 1));
    return take(&time, own);
}

mimo_status mimo_nodes_fill(mimo_nodes *nodes)
{
    choice own = {.nodes = nodes};
    if (nodes->pieces == 0 || !mimo_schedule_encoder_learns(nodes->schedule))
        return MIMO_OK;
    MIMO_TRY(mimo_reserve(&own.of, nodes->schedule->desc.stages, sizeof *own.of));
    mimo_status status = choose_all(&own);
    mimo_release(own.of);
    return status;
}
