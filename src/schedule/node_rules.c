/* What nodes a step has, and what each of them needs. The order in which steps are cut
 * (node_order.c) is judged by this, and knows nothing of it. */
#include "schedule/node_types.h"

#include "core/memory.h"

/* ------------------------------------------ what there is ------------------------------------ */

static bool runs_again(const mimo_own_layer *layer, mimo_node_part part)
{
    if (layer->recompute == MIMO_RECOMPUTE_NONE)
        return false;
    if (part == MIMO_NODE_DISPATCH)
        return layer->recompute == MIMO_RECOMPUTE_SEND_ROWS;
    return part == MIMO_NODE_PRE || part == MIMO_NODE_SHARED || part == MIMO_NODE_MLP;
}

static bool layer_has_node(const mimo_own_chunk *chunk, mimo_node_part part, mimo_node_pass pass,
                           int64_t layer)
{
    const mimo_own_layer *own = &chunk->layers[layer];
    bool weights = part == MIMO_NODE_PRE || part == MIMO_NODE_SHARED || part == MIMO_NODE_MLP;
    if (part == MIMO_NODE_POST)
        return chunk->mtp > 0 && layer == chunk->count - 1 &&
               (pass == MIMO_NODE_FORWARD || pass == MIMO_NODE_INPUTS);
    if (!(own->parts & 1u << part))
        return false;
    switch (pass) {
    case MIMO_NODE_FORWARD:
        return true;
    case MIMO_NODE_REPLAY:
        return runs_again(own, part);
    case MIMO_NODE_INPUTS:
        return part != MIMO_NODE_BEHIND && part != MIMO_NODE_ROUTE;
    default:
        return weights;
    }
}

bool mimo_chunk_has_node(const mimo_own_chunk *chunk, mimo_node_part part, mimo_node_pass pass,
                         int64_t layer)
{
    if (!mimo_node_of_layer(part))
        return part <= MIMO_NODE_SEND_RECV && layer == 0 &&
               (pass == MIMO_NODE_FORWARD || pass == MIMO_NODE_INPUTS);
    return layer >= 0 && layer < chunk->count && layer_has_node(chunk, part, pass, layer);
}

static mimo_status each_of_pass(const mimo_own_chunk *chunk, mimo_node node, mimo_node_visit *visit,
                                void *context)
{
    for (int part = 0; part <= MIMO_NODE_SEND_RECV; part++) {
        node.part = (mimo_node_part)part;
        int64_t layers = mimo_node_of_layer(node.part) ? chunk->count : 1;
        for (node.layer = 0; node.layer < layers; node.layer++)
            if (mimo_chunk_has_node(chunk, node.part, node.pass, node.layer))
                MIMO_TRY(visit(context, &node));
    }
    return MIMO_OK;
}

static mimo_status each_of_part(const mimo_nodes *nodes, int64_t stage, int64_t step,
                                const mimo_schedule_step *part, mimo_node_visit *visit,
                                void *context)
{
    static const unsigned passes[MIMO_STEP_KINDS] = {
        [MIMO_STEP_F] = 1u << MIMO_NODE_FORWARD,
        [MIMO_STEP_B] = 1u << MIMO_NODE_REPLAY | 1u << MIMO_NODE_INPUTS | 1u << MIMO_NODE_WEIGHTS,
        [MIMO_STEP_I] = 1u << MIMO_NODE_REPLAY | 1u << MIMO_NODE_INPUTS,
        [MIMO_STEP_W] = 1u << MIMO_NODE_WEIGHTS,
    };
    mimo_node node = {.step = step, .micro_batch = part->index, .chunk = part->chunk};
    const mimo_own_chunk *chunk = mimo_node_chunk_of(nodes, stage, part->chunk);
    for (int pass = 0; pass < MIMO_NODE_PASSES; pass++) {
        node.pass = (mimo_node_pass)pass;
        if (passes[part->kind] & 1u << pass)
            MIMO_TRY(each_of_pass(chunk, node, visit, context));
    }
    if (!nodes->desc.grad_sync || !(passes[part->kind] & 1u << MIMO_NODE_WEIGHTS) ||
        part->index != chunk->last)
        return MIMO_OK;
    node.part = MIMO_NODE_GRAD_SYNC;
    node.pass = MIMO_NODE_WEIGHTS;
    node.layer = 0;
    return visit(context, &node);
}

/* A call of the bridge is one node, a step of the encoder one or its pieces. */
static mimo_node node_of_group(int64_t step, const mimo_schedule_step *of)
{
    bool forward = of->kind == MIMO_STEP_E || of->kind == MIMO_STEP_BF;
    return (mimo_node){.part = mimo_step_is_call(of->kind) ? MIMO_NODE_CALL : MIMO_NODE_ENCODER,
                       .pass = forward ? MIMO_NODE_FORWARD : MIMO_NODE_INPUTS,
                       .step = step,
                       .micro_batch = of->index};
}

static mimo_status each_of_group(const mimo_nodes *nodes, mimo_node node, mimo_node_visit *visit,
                                 void *context)
{
    int64_t pieces = node.part == MIMO_NODE_ENCODER ? nodes->pieces : 0;
    for (node.layer = pieces > 0; node.layer <= pieces; node.layer++)
        MIMO_TRY(visit(context, &node));
    return MIMO_OK;
}

mimo_status mimo_node_each_of_step(const mimo_nodes *nodes, int64_t stage, int64_t step,
                                   mimo_node_visit *visit, void *context)
{
    const mimo_schedule_step *of = &nodes->schedule->lists[stage].steps[step];
    mimo_schedule_step parts[2];
    if (!mimo_step_of_llm(of->kind))
        return each_of_group(nodes, node_of_group(step, of), visit, context);
    int count = mimo_step_parts(parts, of);
    for (int k = 0; k < count; k++)
        MIMO_TRY(each_of_part(nodes, stage, step, &parts[k], visit, context));
    return MIMO_OK;
}

/* ---------------------------------------- what a node needs ---------------------------------- */

typedef struct asked {
    const mimo_nodes *nodes;
    int64_t stage, number; /* of the model's chunk */
    const mimo_own_chunk *chunk;
    const mimo_node *node;
    mimo_node_visit *visit;
    void *context;
} asked;

/* It needs this node of the same micro-batch and chunk, where the chunk has it. */
static mimo_status needs(const asked *own, mimo_node_part part, mimo_node_pass pass, int64_t layer)
{
    mimo_node node = *own->node;
    node.part = part;
    node.pass = pass;
    node.layer = layer;
    return mimo_chunk_has_node(own->chunk, part, pass, layer) ? own->visit(own->context, &node)
                                                              : MIMO_OK;
}

/* It needs what the neighbour in the model sent, where the same stage has that chunk. Another stage
 * brings it by a hop. */
static mimo_status needs_hop(const asked *own, int64_t number)
{
    const mimo_schedule *schedule = own->nodes->schedule;
    mimo_node node = *own->node;
    if (number < 0 || number >= mimo_model_chunks(schedule) ||
        schedule->stage_of[number] != own->stage)
        return MIMO_OK;
    node.part = MIMO_NODE_SEND_RECV;
    node.chunk = number / schedule->desc.stages;
    return own->visit(own->context, &node);
}

static mimo_status needs_group(const asked *own, mimo_node_part part, mimo_node_pass pass,
                               int64_t group)
{
    mimo_node node = {.part = part, .pass = pass, .micro_batch = group};
    return own->visit(own->context, &node);
}

static mimo_status needs_piece(const asked *own, mimo_node_pass pass, int64_t group, int64_t piece)
{
    mimo_node node = {MIMO_NODE_ENCODER, pass, 0, group, 0, piece};
    return own->visit(own->context, &node);
}

/* What a layer gives: its last part that computes or moves anything in forward. */
static mimo_status needs_output(const asked *own, int64_t layer)
{
    static const mimo_node_part last[] = {MIMO_NODE_BEHIND, MIMO_NODE_COMBINE, MIMO_NODE_MLP,
                                          MIMO_NODE_PRE};
    if (layer < 0)
        return needs(own, MIMO_NODE_PRE_PROCESS, MIMO_NODE_FORWARD, 0);
    for (size_t i = 0; i < sizeof last / sizeof last[0]; i++)
        if (mimo_chunk_has_node(own->chunk, last[i], MIMO_NODE_FORWARD, layer))
            return needs(own, last[i], MIMO_NODE_FORWARD, layer);
    return MIMO_OK;
}

/* The gradient of what a layer gave. */
static mimo_status needs_gradient(const asked *own, int64_t layer)
{
    if (layer >= own->chunk->count - 1) {
        mimo_node_part from = own->chunk->mtp > 0 && layer == own->chunk->count - 1
                                  ? MIMO_NODE_POST
                                  : MIMO_NODE_POST_PROCESS;
        return needs(own, from, MIMO_NODE_INPUTS,
                     from == MIMO_NODE_POST ? own->chunk->count - 1 : 0);
    }
    bool pre = mimo_chunk_has_node(own->chunk, MIMO_NODE_PRE, MIMO_NODE_INPUTS, layer + 1);
    return needs(own, pre ? MIMO_NODE_PRE : MIMO_NODE_MLP, MIMO_NODE_INPUTS, layer + 1);
}

static bool layer_has(const asked *own, mimo_node_part part)
{
    return mimo_chunk_has_node(own->chunk, part, MIMO_NODE_FORWARD, own->node->layer);
}

static mimo_status inputs_of_forward(const asked *own)
{
    int64_t layer = own->node->layer, last = own->chunk->count - 1;
    switch (own->node->part) {
    case MIMO_NODE_PRE_PROCESS:
        if (own->number == 0 && own->nodes->schedule->groups > 0)
            return needs_group(own, MIMO_NODE_CALL, MIMO_NODE_FORWARD,
                               own->node->micro_batch / own->nodes->schedule->desc.encoder_group);
        return needs_hop(own, own->number - 1);
    case MIMO_NODE_PRE:
        return needs_output(own, layer - 1);
    case MIMO_NODE_DISPATCH:
        MIMO_TRY(needs(own, MIMO_NODE_ROUTE, MIMO_NODE_FORWARD, layer));
        return needs(own, MIMO_NODE_PRE, MIMO_NODE_FORWARD, layer);
    case MIMO_NODE_ROUTE:
    case MIMO_NODE_SHARED:
        return needs(own, MIMO_NODE_PRE, MIMO_NODE_FORWARD, layer);
    case MIMO_NODE_MLP:
        if (layer_has(own, MIMO_NODE_DISPATCH))
            return needs(own, MIMO_NODE_DISPATCH, MIMO_NODE_FORWARD, layer);
        return layer_has(own, MIMO_NODE_PRE) ? needs(own, MIMO_NODE_PRE, MIMO_NODE_FORWARD, layer)
                                             : needs_output(own, layer - 1);
    case MIMO_NODE_COMBINE:
        return needs(own, MIMO_NODE_MLP, MIMO_NODE_FORWARD, layer);
    case MIMO_NODE_BEHIND:
        MIMO_TRY(needs(own, MIMO_NODE_SHARED, MIMO_NODE_FORWARD, layer));
        return needs(own, MIMO_NODE_COMBINE, MIMO_NODE_FORWARD, layer);
    case MIMO_NODE_POST:
        return needs_output(own, layer);
    default: /* POST_PROCESS, SEND_RECV */
        MIMO_TRY(needs(own, MIMO_NODE_POST, MIMO_NODE_FORWARD, last));
        return needs_output(own, last);
    }
}

/* Rows of experts are kept, or sent again. Whatever else a part reads comes from PRE. */
static mimo_status inputs_of_replay(const asked *own)
{
    int64_t layer = own->node->layer;
    bool rows = own->node->part == MIMO_NODE_MLP && layer_has(own, MIMO_NODE_DISPATCH);
    MIMO_TRY(needs(own, own->node->part, MIMO_NODE_FORWARD, layer));
    if (own->node->part == MIMO_NODE_PRE)
        return MIMO_OK;
    return needs(own, rows ? MIMO_NODE_DISPATCH : MIMO_NODE_PRE, MIMO_NODE_REPLAY, layer);
}

static mimo_status inputs_of_layer_gradient(const asked *own)
{
    int64_t layer = own->node->layer;
    switch (own->node->part) {
    case MIMO_NODE_POST:
        return needs(own, MIMO_NODE_POST_PROCESS, MIMO_NODE_INPUTS, 0);
    case MIMO_NODE_COMBINE:
    case MIMO_NODE_SHARED:
        return needs_gradient(own, layer);
    case MIMO_NODE_MLP:
        return layer_has(own, MIMO_NODE_DISPATCH)
                   ? needs(own, MIMO_NODE_COMBINE, MIMO_NODE_INPUTS, layer)
                   : needs_gradient(own, layer);
    case MIMO_NODE_DISPATCH:
        return needs(own, MIMO_NODE_MLP, MIMO_NODE_INPUTS, layer);
    default: /* PRE */
        MIMO_TRY(needs(own, MIMO_NODE_SHARED, MIMO_NODE_INPUTS, layer));
        if (layer_has(own, MIMO_NODE_DISPATCH))
            return needs(own, MIMO_NODE_DISPATCH, MIMO_NODE_INPUTS, layer);
        return layer_has(own, MIMO_NODE_MLP) ? needs(own, MIMO_NODE_MLP, MIMO_NODE_INPUTS, layer)
                                             : needs_gradient(own, layer);
    }
}

static mimo_status inputs_of_gradient(const asked *own)
{
    const mimo_node *node = own->node;
    if (mimo_node_of_layer(node->part)) {
        MIMO_TRY(needs(own, node->part, MIMO_NODE_FORWARD, node->layer));
        MIMO_TRY(needs(own, node->part, MIMO_NODE_REPLAY, node->layer));
        return inputs_of_layer_gradient(own);
    }
    if (node->part == MIMO_NODE_POST_PROCESS) {
        MIMO_TRY(needs(own, MIMO_NODE_POST_PROCESS, MIMO_NODE_FORWARD, 0));
        return needs_hop(own, own->number + 1);
    }
    return needs_gradient(own, -1); /* PRE_PROCESS, SEND_RECV */
}

/* All gradients of the chunk: those of earlier micro-batches stand in earlier steps. */
static mimo_status inputs_of_sync(const asked *own)
{
    mimo_node node = *own->node;
    MIMO_TRY(needs(own, MIMO_NODE_PRE_PROCESS, MIMO_NODE_INPUTS, 0));
    node.pass = MIMO_NODE_WEIGHTS;
    return each_of_pass(own->chunk, node, own->visit, own->context);
}

/* Gradients go back when stage 0 has those of all micro-batches of the group. */
static mimo_status inputs_of_call_back(const asked *own)
{
    const mimo_schedule *schedule = own->nodes->schedule;
    int64_t first = own->node->micro_batch * schedule->desc.encoder_group;
    mimo_node node = {.part = MIMO_NODE_PRE_PROCESS, .pass = MIMO_NODE_INPUTS};
    for (int64_t i = 0; i < mimo_group_size(schedule, own->node->micro_batch); i++) {
        node.micro_batch = first + i;
        if (schedule->stage_of[0] == own->stage)
            MIMO_TRY(own->visit(own->context, &node));
    }
    return MIMO_OK;
}

/* Pieces and groups follow each other: what one gives the next one reads, and gradients of
 * parameters add up in the order of groups. */
static mimo_status inputs_of_encoder(const asked *own)
{
    bool forward = own->node->pass == MIMO_NODE_FORWARD;
    int64_t group = own->node->micro_batch, piece = own->node->layer, last = own->nodes->pieces;
    int64_t first = last > 0 ? 1 : 0; /* of a forward; a backward begins with the last one */
    bool begins = piece == (forward ? first : last);
    if (!begins)
        MIMO_TRY(needs_piece(own, own->node->pass, group, forward ? piece - 1 : piece + 1));
    else if (group > 0)
        MIMO_TRY(needs_piece(own, own->node->pass, group - 1, forward ? last : first));
    if (forward)
        return MIMO_OK;
    MIMO_TRY(needs_piece(own, MIMO_NODE_FORWARD, group, piece));
    return begins ? needs_group(own, MIMO_NODE_CALL, MIMO_NODE_INPUTS, group) : MIMO_OK;
}

static mimo_status inputs_of_group(const asked *own)
{
    if (own->node->part == MIMO_NODE_ENCODER)
        return inputs_of_encoder(own);
    if (own->node->pass != MIMO_NODE_FORWARD)
        return inputs_of_call_back(own);
    return needs_piece(own, MIMO_NODE_FORWARD, own->node->micro_batch, own->nodes->pieces);
}

mimo_status mimo_node_each_input(const mimo_nodes *nodes, int64_t stage, const mimo_node *node,
                                 mimo_node_visit *visit, void *context)
{
    const asked own = {nodes,
                       stage,
                       mimo_step_number(nodes->schedule, stage, node->chunk),
                       mimo_node_chunk_of(nodes, stage, node->chunk),
                       node,
                       visit,
                       context};
    if (node->part == MIMO_NODE_ENCODER || node->part == MIMO_NODE_CALL)
        return inputs_of_group(&own);
    if (node->part == MIMO_NODE_GRAD_SYNC)
        return inputs_of_sync(&own);
    switch (node->pass) {
    case MIMO_NODE_FORWARD:
        return inputs_of_forward(&own);
    case MIMO_NODE_REPLAY:
        return inputs_of_replay(&own);
    case MIMO_NODE_INPUTS:
        return inputs_of_gradient(&own);
    default:
        return needs(&own, node->part, MIMO_NODE_INPUTS, node->layer);
    }
}

/* ------------------------------------------- places ------------------------------------------ */

mimo_status mimo_node_places_open(mimo_node_places *out, const mimo_nodes *nodes, int64_t stage)
{
    const mimo_schedule_desc *desc = &nodes->schedule->desc;
    *out = (mimo_node_places){.nodes = nodes, .stage = stage, .layers = 1};
    for (int64_t c = 0; c < desc->chunks; c++) {
        int64_t count = mimo_node_chunk_of(nodes, stage, c)->count;
        out->layers = count > out->layers ? count : out->layers;
    }
    if (nodes->pieces >= out->layers)
        out->layers = nodes->pieces + 1;
    int64_t each = out->layers * MIMO_NODE_PARTS * MIMO_NODE_PASSES;
    return mimo_reserve(&out->of, desc->micro_batches * desc->chunks * each, sizeof *out->of);
}

void mimo_node_places_close(mimo_node_places *places)
{
    mimo_release(places->of);
}

int64_t *mimo_node_place(const mimo_node_places *places, const mimo_node *node)
{
    int64_t at = node->micro_batch * places->nodes->schedule->desc.chunks + node->chunk;
    at = at * places->layers + node->layer;
    return &places->of[(at * MIMO_NODE_PARTS + (int64_t)node->part) * MIMO_NODE_PASSES +
                       (int64_t)node->pass];
}

/* ------------------------------------------- waits ------------------------------------------- */

typedef struct waits_of_node {
    const mimo_node_places *places;
    mimo_node_lane lane;
    int64_t *waits;
} waits_of_node;

static mimo_status take_wait(void *context, const mimo_node *input)
{
    const waits_of_node *own = context;
    mimo_node_lane lane = mimo_node_lane_of(input->part);
    int64_t place = *mimo_node_place(own->places, input) - 1;
    if (lane != own->lane && place > own->waits[lane])
        own->waits[lane] = place;
    return MIMO_OK;
}

static mimo_status find_waits(mimo_node_places *places, mimo_stage_nodes *list)
{
    int64_t computed = -1; /* the last node of COMPUTE */
    for (int64_t i = 0; i < list->count; i++)
        *mimo_node_place(places, &list->nodes[i]) = i + 1;
    for (int64_t i = 0; i < list->count; i++) {
        waits_of_node own = {places, mimo_node_lane_of(list->nodes[i].part),
                             &list->waits[i * MIMO_NODE_LANES]};
        for (int lane = 0; lane < MIMO_NODE_LANES; lane++)
            own.waits[lane] = -1;
        MIMO_TRY(
            mimo_node_each_input(places->nodes, places->stage, &list->nodes[i], take_wait, &own));
        /* A call stands where all ranks come to it within a step: before that its kernel would wait
         * on multiprocessors that others need. */
        if (own.lane == MIMO_NODE_LANE_BRIDGE)
            own.waits[MIMO_NODE_LANE_COMPUTE] = computed;
        computed = own.lane == MIMO_NODE_LANE_COMPUTE ? i : computed;
    }
    return MIMO_OK;
}

mimo_status mimo_nodes_find_waits(mimo_nodes *nodes)
{
    for (int64_t p = 0; p < nodes->schedule->desc.stages; p++) {
        mimo_stage_nodes *list = &nodes->stages[p];
        mimo_node_places places;
        mimo_release(list->waits);
        list->waits = NULL;
        MIMO_TRY(mimo_node_places_open(&places, nodes, p));
        mimo_status status =
            mimo_reserve(&list->waits, list->count * MIMO_NODE_LANES, sizeof *list->waits);
        if (status == MIMO_OK)
            status = find_waits(&places, list);
        mimo_node_places_close(&places);
        MIMO_TRY(status);
    }
    return MIMO_OK;
}
