/* Nodes of a schedule: what the caller passes is read and copied, steps are cut into nodes. */
#include "schedule/node_types.h"

#include <string.h>

#include "core/checked.h"
#include "core/descriptor.h"
#include "core/memory.h"
#include "core/mutation.h"

MIMO_DEFINE_INIT(mimo_node_costs, MIMO_NODE_COSTS_INIT)
MIMO_DEFINE_INIT(mimo_nodes_desc, MIMO_NODES_DESC_INIT)

/* ------------------------------------------ numbers ------------------------------------------ */

static mimo_status check_costs(const mimo_node_costs *costs)
{
    for (int part = 0; part < MIMO_NODE_PARTS; part++)
        for (int pass = 0; pass < MIMO_NODE_PASSES; pass++) {
            const mimo_node node = {(mimo_node_part)part, (mimo_node_pass)pass, 0, 0, 0, 0};
            MIMO_CHECK(costs->of[part][pass] >= 0, MIMO_ERR_ARGUMENT,
                       "schedule: the cost of %s is %" PRId64, mimo_node_name_of(&node).text,
                       costs->of[part][pass]);
        }
    return MIMO_OK;
}

static mimo_status read_costs(mimo_node_costs *out, const mimo_node_costs *given,
                              const mimo_node_costs *fallback)
{
    *out = *fallback;
    if (given)
        MIMO_TRY(mimo_read_descriptor(out, sizeof *out, given, "mimo_node_costs"));
    out->size = sizeof *out;
    return check_costs(out);
}

static mimo_status read_desc(mimo_nodes *nodes, const mimo_nodes_desc *desc)
{
    enum { MOST_MULTIPROCESSORS = 1 << 12, MOST_PIECES = 1 << 10 };
    static const mimo_node_costs initial = MIMO_NODE_COSTS_INIT;
    mimo_nodes_desc *own = &nodes->desc;
    *own = (mimo_nodes_desc)MIMO_NODES_DESC_INIT;
    if (desc)
        MIMO_TRY(mimo_read_descriptor(own, sizeof *own, desc, "mimo_nodes_desc"));
    MIMO_TRY(read_costs(&nodes->costs, own->costs, &initial));
    own->costs = &nodes->costs;
    MIMO_CHECK(own->multiprocessors >= 0 && own->multiprocessors <= MOST_MULTIPROCESSORS,
               MIMO_ERR_ARGUMENT, "schedule: %" PRId64 " multiprocessors, and there may be %d",
               own->multiprocessors, MOST_MULTIPROCESSORS);
    MIMO_CHECK(own->encoder_pieces >= 0 && own->encoder_pieces <= MOST_PIECES, MIMO_ERR_ARGUMENT,
               "schedule: an encoder in %" PRId64 " pieces, and there may be %d",
               own->encoder_pieces, MOST_PIECES);
    for (int lane = 0; lane < MIMO_NODE_LANES; lane++) {
        int64_t least = lane == MIMO_NODE_LANE_COMPUTE ? 0 : 1, has = own->lanes[lane];
        MIMO_CHECK(has >= least && has <= MOST_MULTIPROCESSORS, MIMO_ERR_ARGUMENT,
                   "schedule: the lane %s has %" PRId64
                   " multiprocessors, and must have from %" PRId64 " to %d",
                   mimo_node_lane_name((mimo_node_lane)lane), has, least, MOST_MULTIPROCESSORS);
    }
    return MIMO_OK;
}

/* ------------------------------------------- chunks ------------------------------------------ */

static mimo_status check_layer(int64_t chunk, int64_t layer, const mimo_node_layer *of)
{
    enum {
        PRE = 1 << MIMO_NODE_PRE,
        DISPATCH = 1 << MIMO_NODE_DISPATCH,
        SHARED = 1 << MIMO_NODE_SHARED,
        MLP = 1 << MIMO_NODE_MLP,
        BEHIND = 1 << MIMO_NODE_BEHIND,
        ALL = MIMO_LAYER_SHARED | MIMO_LAYER_ROUTED
    };
    bool mixed = (of->parts & MIMO_LAYER_MIXTURE) == MIMO_LAYER_MIXTURE;
    bool dense = (of->parts & ~MIMO_LAYER_DENSE) == 0 && of->parts != 0;
    bool added = !(of->parts & SHARED) || of->parts & BEHIND;
    MIMO_CHECK((of->parts & ~(uint32_t)ALL) == 0 && (dense || (mixed && added)), MIMO_ERR_ARGUMENT,
               "schedule: layer %" PRId64 " of chunk %" PRId64 " has the parts %#x: a mixture has "
               "pre, dispatch, mlp and combine and may have route, a shared expert behind as well, "
               "others pre or mlp",
               layer, chunk, (unsigned)of->parts);
    MIMO_CHECK((unsigned)of->recompute <= MIMO_RECOMPUTE_BY_COSTS, MIMO_ERR_ARGUMENT,
               "schedule: layer %" PRId64 " of chunk %" PRId64 " recomputes in a way %d", layer,
               chunk, (int)of->recompute);
    return MIMO_OK;
}

static mimo_status check_chunk(int64_t number, const mimo_node_chunk *chunk)
{
    MIMO_CHECK(chunk->count >= 0 && (chunk->layers || chunk->count == 0), MIMO_ERR_ARGUMENT,
               "schedule: chunk %" PRId64 " has %" PRId64 " layers%s", number, chunk->count,
               chunk->layers ? "" : ", which are NULL");
    MIMO_CHECK(chunk->mtp >= 0, MIMO_ERR_ARGUMENT, "schedule: chunk %" PRId64 " has mtp %" PRId64,
               number, chunk->mtp);
    MIMO_CHECK(chunk->mtp <= 1, MIMO_ERR_UNSUPPORTED,
               "schedule: multi-token prediction of depth %" PRId64 " (chunk %" PRId64
               "): orders of nodes know depth 1",
               chunk->mtp, number);
    MIMO_CHECK(chunk->mtp == 0 || chunk->count > 0, MIMO_ERR_ARGUMENT,
               "schedule: chunk %" PRId64 " has multi-token prediction, and no layer for it",
               number);
    for (int64_t i = 0; i < chunk->count; i++)
        MIMO_TRY(check_layer(number, i, &chunk->layers[i]));
    return MIMO_OK;
}

static mimo_status copy_chunk(mimo_nodes *nodes, int64_t number, const mimo_node_chunk *chunk)
{
    mimo_own_chunk *own = &nodes->chunks[number];
    MIMO_TRY(check_chunk(number, chunk));
    MIMO_TRY(mimo_reserve(&own->layers, chunk->count, sizeof *own->layers));
    own->count = chunk->count;
    own->mtp = chunk->mtp;
    own->has = chunk->has;
    for (int64_t i = 0; i < chunk->count; i++) {
        own->layers[i].parts = chunk->layers[i].parts;
        own->layers[i].recompute = chunk->layers[i].recompute;
        own->layers[i].by_costs = chunk->layers[i].recompute == MIMO_RECOMPUTE_BY_COSTS;
        MIMO_TRY(read_costs(&own->layers[i].costs, chunk->layers[i].costs, &nodes->costs));
    }
    return MIMO_OK;
}

/* The last chunk has norm and head, also where it has no layer. */
static int64_t chunk_of_final_norm(const mimo_nodes *nodes)
{
    int64_t last = mimo_model_chunks(nodes->schedule) - 1;
    while (MIMO_MUTATED("final-norm-by-layer-count") && last > 0 && nodes->chunks[last].count == 0)
        last--;
    return last;
}

static void place_ends(mimo_nodes *nodes)
{
    int64_t all = mimo_model_chunks(nodes->schedule);
    for (int64_t n = 0; n < all; n++)
        if (nodes->chunks[n].has != 0)
            return;
    nodes->chunks[0].has |= MIMO_CHUNK_EMBEDDING;
    nodes->chunks[chunk_of_final_norm(nodes)].has |= MIMO_CHUNK_FINAL_NORM;
    nodes->chunks[all - 1].has |= MIMO_CHUNK_HEAD;
}

static bool has_mixture(const mimo_nodes *nodes)
{
    for (int64_t n = 0; n < mimo_model_chunks(nodes->schedule); n++)
        for (int64_t i = 0; i < nodes->chunks[n].count; i++)
            if (nodes->chunks[n].layers[i].parts & 1u << MIMO_NODE_DISPATCH)
                return true;
    return false;
}

/* ------------------------------------------ schedules ---------------------------------------- */

static mimo_status copy_steps(mimo_schedule *out, const mimo_schedule *from)
{
    size_t chunks = (size_t)mimo_model_chunks(from);
    out->groups = from->groups;
    out->limit = from->limit;
    memcpy(out->stage_of, from->stage_of, chunks * sizeof *out->stage_of);
    memcpy(out->number_of, from->number_of, chunks * sizeof *out->number_of);
    for (int64_t p = 0; p < from->desc.stages; p++)
        for (int64_t i = 0; i < from->lists[p].count; i++)
            MIMO_TRY(mimo_stage_append(&out->lists[p], from->lists[p].steps[i]));
    return MIMO_OK;
}

/* Micro-batch 1 forward through chunk 0, micro-batch 0 backward through chunk 1, or one of them. */
static mimo_schedule_step step_alone(const mimo_node_chunk *forward, const mimo_node_chunk *back)
{
    mimo_step_kind kind = !back ? MIMO_STEP_F : (forward ? MIMO_STEP_FB : MIMO_STEP_B);
    return kind == MIMO_STEP_B ? (mimo_schedule_step){kind, 0, 1, 0, 0}
                               : (mimo_schedule_step){kind, 1, 0, 0, 1};
}

static bool pairs_steps(const mimo_schedule *schedule)
{
    for (int64_t p = 0; p < schedule->desc.stages; p++)
        for (int64_t i = 0; i < schedule->lists[p].count; i++)
            if (schedule->lists[p].steps[i].kind == MIMO_STEP_FB)
                return true;
    return false;
}

/* --------------------------------------------- life ------------------------------------------ */

static mimo_status begin(mimo_nodes **out, const mimo_schedule_desc *sizes)
{
    MIMO_TRY(mimo_reserve(out, 1, sizeof **out));
    mimo_nodes *nodes = *out;
    MIMO_TRY(mimo_schedule_begin(&nodes->schedule, sizes));
    MIMO_TRY(
        mimo_reserve(&nodes->chunks, mimo_model_chunks(nodes->schedule), sizeof *nodes->chunks));
    return mimo_reserve(&nodes->stages, sizes->stages, sizeof *nodes->stages);
}

/* Tables may have backwards in any order of micro-batches. */
static void find_last(mimo_nodes *nodes, int64_t stage)
{
    const mimo_stage_list *list = &nodes->schedule->lists[stage];
    for (int64_t i = 0; i < list->count; i++) {
        mimo_schedule_step parts[2];
        int count = mimo_step_parts(parts, &list->steps[i]);
        const mimo_schedule_step *back = &parts[count - 1];
        if (back->kind == MIMO_STEP_B || back->kind == MIMO_STEP_W)
            nodes->chunks[mimo_step_number(nodes->schedule, stage, back->chunk)].last = back->index;
    }
}

/* ------------------------------------- rows: kept, or sent again ------------------------------ */

/* Give all layers that leave it to the costs this way. False: there is none. */
static bool recompute_by(mimo_nodes *nodes, mimo_node_recompute way)
{
    bool found = false;
    for (int64_t n = 0; n < mimo_model_chunks(nodes->schedule); n++)
        for (int64_t i = 0; i < nodes->chunks[n].count; i++) {
            mimo_own_layer *layer = &nodes->chunks[n].layers[i];
            layer->recompute = layer->by_costs ? way : layer->recompute;
            found |= layer->by_costs;
        }
    return found;
}

static mimo_status time_with(int64_t *out, mimo_nodes *nodes, mimo_node_recompute way)
{
    *out = 0;
    if (!recompute_by(nodes, way))
        return MIMO_OK;
    MIMO_TRY(mimo_nodes_cut(nodes));
    MIMO_TRY(mimo_nodes_find_times(nodes));
    *out = mimo_nodes_planned_time(nodes);
    return MIMO_OK;
}

/* Rows that are sent again take no memory. They are kept where sending them takes time. */
static mimo_status choose_recompute(mimo_nodes *nodes)
{
    int64_t kept, sent;
    MIMO_TRY(time_with(&kept, nodes, MIMO_RECOMPUTE_KEEP_ROWS));
    MIMO_TRY(time_with(&sent, nodes, MIMO_RECOMPUTE_SEND_ROWS));
    if (sent > kept)
        (void)recompute_by(nodes, MIMO_RECOMPUTE_KEEP_ROWS);
    return MIMO_OK;
}

static mimo_status complete(mimo_nodes *nodes)
{
    MIMO_CHECK(!pairs_steps(nodes->schedule) || has_mixture(nodes), MIMO_ERR_ARGUMENT,
               "schedule: a forward beside a backward, and no layer has an exchange to hide");
    for (int64_t p = 0; p < nodes->schedule->desc.stages; p++)
        find_last(nodes, p);
    MIMO_TRY(choose_recompute(nodes));
    MIMO_TRY(mimo_nodes_cut(nodes));
    MIMO_TRY(mimo_nodes_fill(nodes));
    MIMO_TRY(mimo_nodes_check(nodes));
    return mimo_nodes_find_times(nodes);
}

static mimo_status make(mimo_nodes *nodes, const mimo_schedule *schedule,
                        const mimo_node_chunk *chunks, const mimo_nodes_desc *desc)
{
    MIMO_TRY(read_desc(nodes, desc));
    MIMO_TRY(copy_steps(nodes->schedule, schedule));
    for (int64_t n = 0; n < mimo_model_chunks(schedule); n++)
        MIMO_TRY(copy_chunk(nodes, n, &chunks[n]));
    place_ends(nodes);
    nodes->pieces =
        nodes->desc.encoder_pieces > 1 && schedule->groups > 0 ? nodes->desc.encoder_pieces : 0;
    return complete(nodes);
}

static mimo_status make_alone(mimo_nodes *nodes, const mimo_node_chunk *forward,
                              const mimo_node_chunk *back, const mimo_nodes_desc *desc)
{
    MIMO_TRY(read_desc(nodes, desc));
    nodes->alone = true;
    if (forward)
        MIMO_TRY(copy_chunk(nodes, 0, forward));
    if (back)
        MIMO_TRY(copy_chunk(nodes, 1, back));
    MIMO_TRY(mimo_stage_append(&nodes->schedule->lists[0], step_alone(forward, back)));
    return complete(nodes);
}

mimo_status mimo_nodes_create(mimo_nodes **out, const mimo_schedule *schedule,
                              const mimo_node_chunk *chunks, const mimo_nodes_desc *desc)
{
    mimo_nodes *made = NULL;
    MIMO_CHECK(out && schedule && chunks, MIMO_ERR_ARGUMENT, "mimo_nodes_create: %s is NULL",
               !out ? "out" : (schedule ? "chunks" : "schedule"));
    mimo_status status = begin(&made, &schedule->desc);
    if (status == MIMO_OK)
        status = make(made, schedule, chunks, desc);
    if (status != MIMO_OK) {
        mimo_nodes_destroy(made);
        return status;
    }
    *out = made;
    return MIMO_OK;
}

mimo_status mimo_nodes_create_step(mimo_nodes **out, const mimo_node_chunk *forward,
                                   const mimo_node_chunk *backward, const mimo_nodes_desc *desc)
{
    mimo_schedule_desc sizes = MIMO_SCHEDULE_DESC_INIT;
    mimo_nodes *made = NULL;
    MIMO_CHECK(out && (forward || backward), MIMO_ERR_ARGUMENT, "mimo_nodes_create_step: %s NULL",
               out ? "both chunks are" : "out is");
    sizes.chunks = sizes.micro_batches = 2;
    mimo_status status = begin(&made, &sizes);
    if (status == MIMO_OK)
        status = make_alone(made, forward, backward, desc);
    if (status != MIMO_OK) {
        mimo_nodes_destroy(made);
        return status;
    }
    *out = made;
    return MIMO_OK;
}

static void release_lists(mimo_nodes *nodes)
{
    for (int64_t n = 0; nodes->chunks && n < mimo_model_chunks(nodes->schedule); n++)
        mimo_release(nodes->chunks[n].layers);
    for (int64_t p = 0; nodes->stages && p < nodes->schedule->desc.stages; p++) {
        mimo_release(nodes->stages[p].nodes);
        mimo_release(nodes->stages[p].waits);
        mimo_release(nodes->stages[p].times);
    }
}

void mimo_nodes_destroy(mimo_nodes *nodes)
{
    if (!nodes)
        return;
    if (nodes->schedule)
        release_lists(nodes);
    mimo_release(nodes->chunks);
    mimo_release(nodes->stages);
    mimo_schedule_destroy(nodes->schedule);
    mimo_release(nodes);
}

/* -------------------------------------------- asked ------------------------------------------ */

const mimo_node *mimo_nodes_of(int64_t *count, const mimo_nodes *nodes, int64_t stage)
{
    bool there = stage >= 0 && stage < nodes->schedule->desc.stages;
    *count = there ? nodes->stages[stage].count : 0;
    return there ? nodes->stages[stage].nodes : NULL;
}

static mimo_status check_stage(const mimo_nodes *nodes, int64_t stage, const char *name)
{
    MIMO_CHECK(stage >= 0 && stage < nodes->schedule->desc.stages, MIMO_ERR_ARGUMENT,
               "%s: there is no stage %" PRId64 " of %" PRId64, name, stage,
               nodes->schedule->desc.stages);
    return MIMO_OK;
}

mimo_status mimo_nodes_waits(int64_t *waits, const mimo_nodes *nodes, int64_t stage, int64_t i)
{
    MIMO_CHECK(waits && nodes, MIMO_ERR_ARGUMENT, "mimo_nodes_waits: %s is NULL",
               waits ? "nodes" : "waits");
    MIMO_TRY(check_stage(nodes, stage, "mimo_nodes_waits"));
    const mimo_stage_nodes *list = &nodes->stages[stage];
    MIMO_CHECK(i >= 0 && i < list->count, MIMO_ERR_ARGUMENT,
               "mimo_nodes_waits: there is no node %" PRId64 " of %" PRId64, i, list->count);
    memcpy(waits, &list->waits[i * MIMO_NODE_LANES], MIMO_NODE_LANES * sizeof *waits);
    return MIMO_OK;
}

mimo_status mimo_nodes_times(mimo_node_time *times, const mimo_nodes *nodes, int64_t stage)
{
    MIMO_CHECK(times && nodes, MIMO_ERR_ARGUMENT, "mimo_nodes_times: %s is NULL",
               times ? "nodes" : "times");
    MIMO_TRY(check_stage(nodes, stage, "mimo_nodes_times"));
    const mimo_stage_nodes *list = &nodes->stages[stage];
    memcpy(times, list->times, (size_t)list->count * sizeof *times);
    return MIMO_OK;
}
