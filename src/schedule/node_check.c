/* The rules of nodes, in mimo_nodes_check's order. */
#include "schedule/node_types.h"

#include "core/checked.h"
#include "core/memory.h"

#define NAME(node) (mimo_node_name_of(node).text)
#define WHERE(nodes, stage, i) (mimo_node_where_of(nodes, stage, i).text)

/* ------------------------------------ the ends of the model ---------------------------------- */

/* What one chunk of a model has: its bits; mtp: the depth instead. */
typedef struct model_end {
    const char *name;
    uint32_t bit; /* 0: multi-token prediction, which a model may do without */
    bool first;   /* belongs to the first chunk, not to the last one */
} model_end;

static bool has_end(const mimo_own_chunk *chunk, const model_end *end)
{
    return end->bit != 0 ? chunk->has & end->bit : chunk->mtp > 0;
}

static mimo_status check_end(const mimo_nodes *nodes, const model_end *end)
{
    int64_t all = mimo_model_chunks(nodes->schedule), found = -1;
    int64_t wanted = end->first ? 0 : all - 1;
    for (int64_t n = 0; n < all; n++) {
        bool has = has_end(&nodes->chunks[n], end);
        MIMO_CHECK(!has || found < 0, MIMO_ERR_ARGUMENT,
                   "schedule: %s in chunks %" PRId64 " and %" PRId64, end->name, found, n);
        found = has ? n : found;
    }
    MIMO_CHECK(found >= 0 || end->bit == 0, MIMO_ERR_ARGUMENT, "schedule: no chunk has the %s",
               end->name);
    MIMO_CHECK(found < 0 || found == wanted, MIMO_ERR_ARGUMENT,
               "schedule: %s in chunk %" PRId64 ", and it belongs to chunk %" PRId64, end->name,
               found, wanted);
    return MIMO_OK;
}

static mimo_status check_ends(const mimo_nodes *nodes)
{
    static const model_end ends[] = {{"embedding", MIMO_CHUNK_EMBEDDING, true},
                                     {"final norm", MIMO_CHUNK_FINAL_NORM, false},
                                     {"head", MIMO_CHUNK_HEAD, false},
                                     {"multi-token prediction", 0, false}};
    for (size_t i = 0; !nodes->alone && i < sizeof ends / sizeof ends[0]; i++)
        MIMO_TRY(check_end(nodes, &ends[i]));
    return MIMO_OK;
}

/* -------------------------------- each node once, in its step -------------------------------- */

typedef struct stage_check {
    const mimo_nodes *nodes;
    int64_t stage, step, i; /* the step, or the node, that is looked at */
    mimo_node_places places;
    bool *wanted; /* wanted[count]: a step has this node */
} stage_check;

static const mimo_stage_nodes *list_of(const stage_check *own)
{
    return &own->nodes->stages[own->stage];
}

static mimo_status check_range(const stage_check *own, const mimo_node *node)
{
    const mimo_schedule *schedule = own->nodes->schedule;
    bool inside = (unsigned)node->part < MIMO_NODE_PARTS &&
                  (unsigned)node->pass < MIMO_NODE_PASSES && node->step >= 0 &&
                  node->step < schedule->lists[own->stage].count && node->micro_batch >= 0 &&
                  node->micro_batch < schedule->desc.micro_batches && node->chunk >= 0 &&
                  node->chunk < schedule->desc.chunks && node->layer >= 0 &&
                  node->layer < own->places.layers;
    MIMO_CHECK(inside, MIMO_ERR_ARGUMENT,
               "schedule: node %" PRId64 " of stage %" PRId64
               " is part %d, pass %d of step %" PRId64 ", micro-batch %" PRId64 ", chunk %" PRId64
               ", layer %" PRId64 ": there is no such",
               own->i, own->stage, (int)node->part, (int)node->pass, node->step, node->micro_batch,
               node->chunk, node->layer);
    return MIMO_OK;
}

static mimo_status record_node(stage_check *own, const mimo_node *node, int64_t step_before)
{
    MIMO_TRY(check_range(own, node));
    int64_t *place = mimo_node_place(&own->places, node);
    MIMO_CHECK(*place == 0, MIMO_ERR_ARGUMENT,
               "schedule: %s at nodes %" PRId64 " and %" PRId64 " %s", NAME(node), *place - 1,
               own->i, WHERE(own->nodes, own->stage, own->i));
    MIMO_CHECK(node->step >= step_before, MIMO_ERR_ARGUMENT,
               "schedule: %s of step %" PRId64 " behind a node of step %" PRId64 " %s", NAME(node),
               node->step, step_before, WHERE(own->nodes, own->stage, own->i));
    *place = own->i + 1;
    return MIMO_OK;
}

static mimo_status record_nodes(stage_check *own)
{
    const mimo_stage_nodes *list = list_of(own);
    int64_t step = 0;
    for (own->i = 0; own->i < list->count; own->i++) {
        MIMO_TRY(record_node(own, &list->nodes[own->i], step));
        step = list->nodes[own->i].step;
    }
    return MIMO_OK;
}

/* A node that the step must have. */
static mimo_status find_node(void *context, const mimo_node *node)
{
    stage_check *own = context;
    int64_t place = *mimo_node_place(&own->places, node) - 1;
    const mimo_schedule_step *step = &own->nodes->schedule->lists[own->stage].steps[own->step];
    MIMO_CHECK(place >= 0, MIMO_ERR_ARGUMENT, "schedule: stage %" PRId64 " has no %s (%s)",
               own->stage, NAME(node), mimo_step_name_of(own->nodes->schedule, step).text);
    bool anywhere = node->part == MIMO_NODE_ENCODER && own->nodes->pieces > 0;
    MIMO_CHECK(anywhere || list_of(own)->nodes[place].step == own->step, MIMO_ERR_ARGUMENT,
               "schedule: %s belongs to step %" PRId64 " %s", NAME(node), own->step,
               WHERE(own->nodes, own->stage, place));
    own->wanted[place] = true;
    return MIMO_OK;
}

static mimo_status check_complete(stage_check *own)
{
    const mimo_stage_nodes *list = list_of(own);
    int64_t steps = own->nodes->schedule->lists[own->stage].count;
    for (own->step = 0; own->step < steps; own->step++)
        MIMO_TRY(mimo_node_each_of_step(own->nodes, own->stage, own->step, find_node, own));
    for (int64_t i = 0; i < list->count; i++)
        MIMO_CHECK(own->wanted[i], MIMO_ERR_ARGUMENT,
                   "schedule: %s %s, which the step does not have", NAME(&list->nodes[i]),
                   WHERE(own->nodes, own->stage, i));
    return MIMO_OK;
}

/* -------------------------------------- behind its inputs ------------------------------------ */

/* What ran before a step that stands alone is in no list. */
static mimo_status check_input(void *context, const mimo_node *input)
{
    const stage_check *own = context;
    int64_t place = *mimo_node_place(&own->places, input) - 1;
    MIMO_CHECK(place < own->i, MIMO_ERR_ARGUMENT, "schedule: %s before %s %s",
               NAME(&list_of(own)->nodes[own->i]), NAME(input),
               WHERE(own->nodes, own->stage, own->i));
    return MIMO_OK;
}

static mimo_status check_inputs(stage_check *own)
{
    const mimo_stage_nodes *list = list_of(own);
    for (own->i = 0; own->i < list->count; own->i++)
        MIMO_TRY(
            mimo_node_each_input(own->nodes, own->stage, &list->nodes[own->i], check_input, own));
    return MIMO_OK;
}

static mimo_status check_list(stage_check *own)
{
    MIMO_TRY(record_nodes(own));
    MIMO_TRY(check_complete(own));
    return check_inputs(own);
}

static mimo_status check_stage(const mimo_nodes *nodes, int64_t stage)
{
    stage_check own = {.nodes = nodes, .stage = stage};
    MIMO_TRY(mimo_node_places_open(&own.places, nodes, stage));
    mimo_status status = mimo_reserve(&own.wanted, nodes->stages[stage].count, sizeof *own.wanted);
    if (status == MIMO_OK)
        status = check_list(&own);
    mimo_release(own.wanted);
    mimo_node_places_close(&own.places);
    return status;
}

/* ---------------------------------------- room for lanes ------------------------------------- */

/* A kernel that waits for a peer and finds no room keeps that peer waiting for ever, where the
 * peer's other kernel waits for this one's. Some are left for what is no lane's. */
static mimo_status check_lanes(const mimo_nodes *nodes, int64_t stage)
{
    enum { LEFT_FREE = 4 };
    int64_t all = nodes->desc.multiprocessors, need = mimo_node_lanes_need(nodes, stage);
    MIMO_CHECK(all == 0 || need <= all - LEFT_FREE, MIMO_ERR_ARGUMENT,
               "schedule: lanes need %" PRId64 " multiprocessors of %" PRId64 " (stage %" PRId64
               "; %d of %" PRId64 " stay free)",
               need, all - LEFT_FREE, stage, LEFT_FREE, all);
    return MIMO_OK;
}

/* ------------------------------------- groups of the encoder ---------------------------------- */

/* A group is held from its first piece to the last one of its backward. Where nothing goes back no
 * piece moves, and the schedule has been checked. */
static mimo_status check_alive(const mimo_nodes *nodes, int64_t stage)
{
    const mimo_stage_nodes *list = &nodes->stages[stage];
    int64_t held = 0, most = nodes->schedule->limit;
    for (int64_t i = 0; i < list->count && mimo_schedule_encoder_learns(nodes->schedule); i++) {
        const mimo_node *node = &list->nodes[i];
        if (node->part != MIMO_NODE_ENCODER || node->layer > 1)
            continue;
        held += node->pass == MIMO_NODE_FORWARD ? 1 : -1;
        MIMO_CHECK(held <= most, MIMO_ERR_ARGUMENT,
                   "schedule: stage %" PRId64 " holds %" PRId64
                   " encoder groups at %s, and may hold %" PRId64 " %s",
                   stage, held, NAME(node), most, WHERE(nodes, stage, i));
    }
    return MIMO_OK;
}

/* ----------------------------------------- no deadlock --------------------------------------- */

static mimo_status check_walk(const mimo_nodes *nodes, mimo_node_time *const *times)
{
    int64_t stage, i;
    MIMO_TRY(mimo_nodes_walk(times, &stage, &i, nodes, MIMO_NODES_PLANNED));
    MIMO_CHECK(stage < 0, MIMO_ERR_ARGUMENT, "schedule: stuck: stage %" PRId64 " waits at %s %s",
               stage, NAME(&nodes->stages[stage].nodes[i]), WHERE(nodes, stage, i));
    return MIMO_OK;
}

static mimo_status check_deadlock(const mimo_nodes *nodes)
{
    mimo_node_time **times;
    MIMO_TRY(mimo_node_times_open(&times, nodes));
    mimo_status status = check_walk(nodes, times);
    mimo_node_times_close(times, nodes);
    return status;
}

mimo_status mimo_nodes_check(const mimo_nodes *nodes)
{
    MIMO_CHECK(nodes, MIMO_ERR_ARGUMENT, "mimo_nodes_check: nodes is NULL");
    MIMO_TRY(check_ends(nodes));
    for (int64_t p = 0; p < nodes->schedule->desc.stages; p++) {
        MIMO_TRY(check_stage(nodes, p));
        MIMO_TRY(check_alive(nodes, p));
        MIMO_TRY(check_lanes(nodes, p));
    }
    return check_deadlock(nodes);
}
