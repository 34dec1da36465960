/* All lanes of all stages at once: when each node runs, and how many multiprocessors it has. */
#include "schedule/node_types.h"

#include "core/checked.h"
#include "core/memory.h"
#include "core/mutation.h"

enum { NOT_YET = -1 };

/* A call of the bridge, of one direction: it ends when all stages have begun it. */
typedef struct group_call {
    int64_t begun, latest; /* how many stages have begun it, and when the last one did */
} group_call;

typedef struct walk {
    const mimo_nodes *nodes;
    mimo_node_mode mode;
    mimo_node_time *const *times;
    int64_t *at, *free;   /* [stage * MIMO_NODE_LANES + lane]: the next place in the list, and when
                             the lane is free */
    int64_t *hops[2];     /* [chunk of the model * M + micro-batch]: when its result is there */
    group_call *calls[2]; /* of each group */
    int64_t *call_at[2];  /* [group * pp + stage]: the place of the call */
    int64_t bridge;       /* when the last call ended */
    uint8_t **beside; /* beside[stage][i]: lanes that move while the node computes, a bit each */
} walk;

/* ------------------------------------------- lanes ------------------------------------------- */

bool mimo_node_lane_used(const mimo_nodes *nodes, int64_t stage, mimo_node_lane lane)
{
    for (int64_t i = 0; i < nodes->stages[stage].count; i++)
        if (mimo_node_lane_of(nodes->stages[stage].nodes[i].part) == lane)
            return true;
    return false;
}

/* A stage sends to and takes from this number of neighbours, each in one direction. */
static int64_t hops_of(const mimo_nodes *nodes, int64_t stage)
{
    const mimo_schedule *schedule = nodes->schedule;
    int64_t pp = schedule->desc.stages, boundaries = 0;
    int64_t ways = schedule->desc.kind == MIMO_SCHEDULE_FORWARD ? 1 : 2;
    for (int64_t other = 0; other < pp; other++)
        for (int towards = -1; other != stage && towards <= 1; towards += 2) {
            bool found = false;
            for (int64_t n = 0; n < mimo_model_chunks(schedule); n++) {
                int64_t next = n + towards;
                found |= schedule->stage_of[n] == stage && next >= 0 &&
                         next < mimo_model_chunks(schedule) && schedule->stage_of[next] == other;
            }
            boundaries += found ? 1 : 0;
        }
    return nodes->alone ? 4 : ways * boundaries;
}

int64_t mimo_node_lanes_need(const mimo_nodes *nodes, int64_t stage)
{
    int64_t need = nodes->desc.lanes[MIMO_NODE_LANE_COMPUTE];
    for (int lane = MIMO_NODE_LANE_EXCHANGES; lane < MIMO_NODE_LANES; lane++) {
        int64_t times = lane == MIMO_NODE_LANE_HOPS ? hops_of(nodes, stage) : 1;
        if (mimo_node_lane_used(nodes, stage, (mimo_node_lane)lane))
            need += times * nodes->desc.lanes[lane];
    }
    return need;
}

static mimo_node_lane lane_of(const walk *own, const mimo_node *node)
{
    mimo_node_lane lane = mimo_node_lane_of(node->part);
    return own->mode == MIMO_NODES_SERIAL && lane == MIMO_NODE_LANE_EXCHANGES
               ? MIMO_NODE_LANE_COMPUTE
               : lane;
}

/* ------------------------------------------- costs ------------------------------------------- */

/* Whether what a chunk gives goes to another stage. */
static bool leaves(const mimo_nodes *nodes, int64_t stage, const mimo_node *node)
{
    const mimo_schedule *schedule = nodes->schedule;
    int64_t here = mimo_step_number(schedule, stage, node->chunk);
    int64_t to = node->pass == MIMO_NODE_FORWARD ? here + 1 : here - 1;
    if (nodes->alone)
        return true;
    return to >= 0 && to < mimo_model_chunks(schedule) && schedule->stage_of[to] != stage;
}

/* A chunk without embedding or head has nothing to compute in front of its layers or behind. */
static bool is_there(const mimo_nodes *nodes, int64_t stage, const mimo_node *node)
{
    uint32_t has = mimo_node_chunk_of(nodes, stage, node->chunk)->has;
    switch (node->part) {
    case MIMO_NODE_PRE_PROCESS:
        return nodes->alone || has & MIMO_CHUNK_EMBEDDING;
    case MIMO_NODE_POST_PROCESS:
        return nodes->alone || has & (MIMO_CHUNK_FINAL_NORM | MIMO_CHUNK_HEAD);
    case MIMO_NODE_SEND_RECV:
        return leaves(nodes, stage, node);
    default:
        return true;
    }
}

int64_t mimo_node_encoder_cost(const mimo_nodes *nodes, const mimo_node *node)
{
    int64_t whole = mimo_group_size(nodes->schedule, node->micro_batch) *
                    nodes->costs.of[MIMO_NODE_ENCODER][node->pass];
    if (nodes->pieces == 0)
        return whole;
    return whole * node->layer / nodes->pieces - whole * (node->layer - 1) / nodes->pieces;
}

static int64_t cost_of(const walk *own, int64_t stage, const mimo_node *node)
{
    const mimo_nodes *nodes = own->nodes;
    const mimo_node_costs *costs = &nodes->costs;
    mimo_node_lane lane = mimo_node_lane_of(node->part);
    if (!is_there(nodes, stage, node))
        return 0;
    if (own->mode == MIMO_NODES_LOCAL && lane == MIMO_NODE_LANE_EXCHANGES)
        return 0;
    if (mimo_node_of_layer(node->part))
        costs = &mimo_node_chunk_of(nodes, stage, node->chunk)->layers[node->layer].costs;
    return node->part == MIMO_NODE_ENCODER ? mimo_node_encoder_cost(nodes, node)
                                           : costs->of[node->part][node->pass];
}

/* What lanes that move beside a node leave to it. 0: multiprocessors are not counted. */
static int64_t left_by(const mimo_nodes *nodes, unsigned beside)
{
    int64_t left = nodes->desc.multiprocessors;
    for (int lane = 0; left > 0 && lane < MIMO_NODE_LANES; lane++)
        if (beside & 1u << lane)
            left -= nodes->desc.lanes[lane];
    return left;
}

static int64_t duration_of(const walk *own, int64_t stage, int64_t i)
{
    const mimo_node *node = &own->nodes->stages[stage].nodes[i];
    int64_t cost = cost_of(own, stage, node), all = own->nodes->desc.multiprocessors;
    int64_t left = left_by(own->nodes, own->beside[stage][i]);
    if (left <= 0 || MIMO_MUTATED("lanes-cost-nothing"))
        return cost;
    return (cost * all + left - 1) / left;
}

/* ------------------------------------------- waits ------------------------------------------- */

/* Where the chunk before or behind lies on another stage: when its result is there. */
static int64_t brought(const walk *own, int64_t stage, const mimo_node *node)
{
    const mimo_schedule *schedule = own->nodes->schedule;
    bool forward = node->pass == MIMO_NODE_FORWARD;
    int64_t here = mimo_step_number(schedule, stage, node->chunk);
    int64_t from = forward ? here - 1 : here + 1;
    if (own->nodes->alone ||
        node->part != (forward ? MIMO_NODE_PRE_PROCESS : MIMO_NODE_POST_PROCESS))
        return 0;
    if (from < 0 || from >= mimo_model_chunks(schedule) || schedule->stage_of[from] == stage)
        return 0;
    return own->hops[!forward][from * schedule->desc.micro_batches + node->micro_batch];
}

/* When node i may begin, or NOT_YET. */
static int64_t ready_at(const walk *own, int64_t stage, int64_t i)
{
    const mimo_stage_nodes *list = &own->nodes->stages[stage];
    const mimo_node *node = &list->nodes[i];
    int64_t ready = brought(own, stage, node);
    for (int lane = 0; ready != NOT_YET && lane < MIMO_NODE_LANES; lane++) {
        int64_t input = list->waits[i * MIMO_NODE_LANES + lane];
        int64_t end = input < 0 ? 0 : own->times[stage][input].end;
        ready = end == NOT_YET ? NOT_YET : mimo_larger(ready, end);
    }
    return ready;
}

/* The last stage that begins a call lets it end; calls of a bridge end one after the other. */
static void begin_call(walk *own, int64_t stage, int64_t i)
{
    const mimo_node *node = &own->nodes->stages[stage].nodes[i];
    int64_t pp = own->nodes->schedule->desc.stages, group = node->micro_batch;
    int way = node->pass != MIMO_NODE_FORWARD;
    group_call *call = &own->calls[way][group];
    call->latest = mimo_larger(call->latest, own->times[stage][i].begin);
    own->call_at[way][group * pp + stage] = i;
    if (++call->begun < pp)
        return;
    own->bridge = mimo_larger(own->bridge, call->latest) + cost_of(own, stage, node);
    for (int64_t p = 0; p < pp; p++)
        own->times[p][own->call_at[way][group * pp + p]].end = own->bridge;
}

/* Run the next node of a lane, if what it waits for is there. */
static bool advance(walk *own, int64_t stage, mimo_node_lane lane)
{
    const mimo_stage_nodes *list = &own->nodes->stages[stage];
    int64_t slot = stage * MIMO_NODE_LANES + (int64_t)lane;
    int64_t *at = &own->at[slot], m = own->nodes->schedule->desc.micro_batches;
    while (*at < list->count && lane_of(own, &list->nodes[*at]) != lane)
        ++*at;
    int64_t ready = *at < list->count ? ready_at(own, stage, *at) : NOT_YET;
    if (ready == NOT_YET)
        return false;
    const mimo_node *node = &list->nodes[*at];
    mimo_node_time *time = &own->times[stage][*at];
    time->begin = mimo_larger(ready, own->free[slot]);
    if (node->part == MIMO_NODE_CALL)
        begin_call(own, stage, *at);
    else
        time->end = time->begin + duration_of(own, stage, *at);
    if (node->part == MIMO_NODE_SEND_RECV)
        own->hops[node->pass != MIMO_NODE_FORWARD]
                 [mimo_step_number(own->nodes->schedule, stage, node->chunk) * m +
                  node->micro_batch] = time->end;
    own->free[slot] = node->part == MIMO_NODE_CALL ? time->begin : time->end;
    ++*at;
    return true;
}

static bool advance_stage(walk *own, int64_t stage)
{
    bool moved = false;
    for (int lane = 0; lane < MIMO_NODE_LANES; lane++)
        while (advance(own, stage, (mimo_node_lane)lane))
            moved = true;
    return moved;
}

static void forget(walk *own)
{
    const mimo_schedule *schedule = own->nodes->schedule;
    int64_t pp = schedule->desc.stages, all = mimo_model_chunks(schedule);
    own->bridge = 0;
    for (int64_t p = 0; p < pp; p++)
        for (int64_t i = 0; i < own->nodes->stages[p].count; i++)
            own->times[p][i] = (mimo_node_time){NOT_YET, NOT_YET, 0};
    for (int64_t i = 0; i < pp * MIMO_NODE_LANES; i++)
        own->at[i] = own->free[i] = 0;
    for (int way = 0; way < 2; way++) {
        for (int64_t i = 0; i < all * schedule->desc.micro_batches; i++)
            own->hops[way][i] = NOT_YET;
        for (int64_t g = 0; g < schedule->groups; g++)
            own->calls[way][g] = (group_call){0};
    }
}

static void run_all(walk *own)
{
    forget(own);
    for (bool moved = true; moved;) {
        moved = false;
        for (int64_t p = 0; p < own->nodes->schedule->desc.stages; p++)
            while (advance_stage(own, p))
                moved = true;
    }
}

/* ------------------------------------ what moves beside a node ------------------------------- */

/* When a node of another lane uses its multiprocessors: a call that waits for others does not. */
static int64_t moves_from(const walk *own, int64_t stage, int64_t i)
{
    const mimo_node *node = &own->nodes->stages[stage].nodes[i];
    const mimo_node_time *time = &own->times[stage][i];
    return node->part == MIMO_NODE_CALL ? time->end - cost_of(own, stage, node) : time->begin;
}

/* The next node of a lane from place i on, or the count. */
static int64_t next_in(const walk *own, int64_t stage, mimo_node_lane lane, int64_t i)
{
    const mimo_stage_nodes *list = &own->nodes->stages[stage];
    while (i < list->count && lane_of(own, &list->nodes[i]) != lane)
        i++;
    return i;
}

/* Note for each node of COMPUTE that it runs beside this lane. Both lanes are in the order of their
 * times. Whether anything is new. */
static bool note_lane(walk *own, int64_t stage, mimo_node_lane lane)
{
    const mimo_stage_nodes *list = &own->nodes->stages[stage];
    const mimo_node_time *times = own->times[stage];
    int64_t j = next_in(own, stage, lane, 0);
    bool changed = false;
    for (int64_t i = next_in(own, stage, MIMO_NODE_LANE_COMPUTE, 0); i < list->count;
         i = next_in(own, stage, MIMO_NODE_LANE_COMPUTE, i + 1)) {
        while (j < list->count &&
               (times[j].end <= times[i].begin || moves_from(own, stage, j) == times[j].end))
            j = next_in(own, stage, lane, j + 1);
        if (j == list->count)
            break;
        bool overlaps = moves_from(own, stage, j) < times[i].end && times[i].begin < times[i].end;
        bool computes = mimo_node_lane_of(list->nodes[i].part) == MIMO_NODE_LANE_COMPUTE;
        if (!overlaps || !computes || own->beside[stage][i] & 1u << lane)
            continue;
        own->beside[stage][i] |= (uint8_t)(1u << lane);
        changed = true;
    }
    return changed;
}

static bool note_lanes(walk *own)
{
    bool changed = false;
    for (int64_t p = 0;
         own->nodes->desc.multiprocessors > 0 && p < own->nodes->schedule->desc.stages; p++)
        for (int lane = MIMO_NODE_LANE_EXCHANGES; lane < MIMO_NODE_LANES; lane++)
            changed |= note_lane(own, p, (mimo_node_lane)lane);
    return changed;
}

static void note_multiprocessors(walk *own)
{
    const mimo_nodes_desc *desc = &own->nodes->desc;
    for (int64_t p = 0; p < own->nodes->schedule->desc.stages; p++)
        for (int64_t i = 0; i < own->nodes->stages[p].count; i++) {
            mimo_node_lane lane = mimo_node_lane_of(own->nodes->stages[p].nodes[i].part);
            own->times[p][i].multiprocessors =
                lane == MIMO_NODE_LANE_COMPUTE
                    ? left_by(own->nodes, own->beside[p][i])
                    : (desc->multiprocessors > 0 ? desc->lanes[lane] : 0);
        }
}

static void find_stuck(const walk *own, int64_t *stuck, int64_t *at)
{
    *stuck = -1;
    *at = 0;
    for (int64_t p = 0; p < own->nodes->schedule->desc.stages; p++)
        for (int64_t i = 0; i < own->nodes->stages[p].count; i++)
            if (own->times[p][i].end == NOT_YET) {
                *stuck = p;
                *at = i;
                return;
            }
}

/* --------------------------------------------- life ------------------------------------------ */

static mimo_status reserve_walk(walk *own)
{
    const mimo_schedule *schedule = own->nodes->schedule;
    int64_t pp = schedule->desc.stages, results = mimo_model_chunks(schedule);
    results *= schedule->desc.micro_batches;
    MIMO_TRY(mimo_reserve(&own->at, pp * MIMO_NODE_LANES, sizeof *own->at));
    MIMO_TRY(mimo_reserve(&own->free, pp * MIMO_NODE_LANES, sizeof *own->free));
    MIMO_TRY(mimo_reserve(&own->beside, pp, sizeof *own->beside));
    for (int64_t p = 0; p < pp; p++)
        MIMO_TRY(mimo_reserve(&own->beside[p], own->nodes->stages[p].count, sizeof **own->beside));
    for (int way = 0; way < 2; way++) {
        MIMO_TRY(mimo_reserve(&own->hops[way], results, sizeof *own->hops[way]));
        MIMO_TRY(mimo_reserve(&own->calls[way], schedule->groups, sizeof *own->calls[way]));
        MIMO_TRY(mimo_reserve(&own->call_at[way], schedule->groups * pp, sizeof(int64_t)));
    }
    return MIMO_OK;
}

static void release_walk(walk *own)
{
    for (int64_t p = 0; own->beside && p < own->nodes->schedule->desc.stages; p++)
        mimo_release(own->beside[p]);
    mimo_release(own->beside);
    mimo_release(own->at);
    mimo_release(own->free);
    for (int way = 0; way < 2; way++) {
        mimo_release(own->hops[way]);
        mimo_release(own->calls[way]);
        mimo_release(own->call_at[way]);
    }
}

/* A node that gets fewer multiprocessors takes longer, and may then run beside more. What was found
 * beside it stays, so this ends; the rounds are bounded, as each takes as long as the lists. */
mimo_status mimo_nodes_walk(mimo_node_time *const *times, int64_t *stuck, int64_t *at,
                            const mimo_nodes *nodes, mimo_node_mode mode)
{
    enum { MOST_ROUNDS = 16 };
    walk own = {.nodes = nodes, .mode = mode, .times = times};
    mimo_status status = reserve_walk(&own);
    if (status == MIMO_OK) {
        int rounds = 0;
        do
            run_all(&own);
        while (++rounds < MOST_ROUNDS && note_lanes(&own));
        note_multiprocessors(&own);
        find_stuck(&own, stuck, at);
    }
    release_walk(&own);
    return status;
}

int64_t mimo_nodes_time_of(const mimo_nodes *nodes, mimo_node_time *const *times)
{
    int64_t time = 0;
    for (int64_t p = 0; p < nodes->schedule->desc.stages; p++)
        for (int64_t i = 0; i < nodes->stages[p].count; i++)
            time = mimo_larger(time, times[p][i].end);
    return time;
}

mimo_status mimo_node_times_open(mimo_node_time ***out, const mimo_nodes *nodes)
{
    mimo_node_time **times;
    int64_t pp = nodes->schedule->desc.stages;
    MIMO_TRY(mimo_reserve(&times, pp, sizeof *times));
    for (int64_t p = 0; p < pp; p++) {
        mimo_status status = mimo_reserve(&times[p], nodes->stages[p].count, sizeof **times);
        if (status != MIMO_OK) {
            mimo_node_times_close(times, nodes);
            return status;
        }
    }
    *out = times;
    return MIMO_OK;
}

void mimo_node_times_close(mimo_node_time **times, const mimo_nodes *nodes)
{
    for (int64_t p = 0; p < nodes->schedule->desc.stages; p++)
        mimo_release(times[p]);
    mimo_release(times);
}
