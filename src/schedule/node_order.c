/*
 * The order of nodes inside a step. Where a forward stands beside a backward, layer i of the one
 * and layer B-1-i of the other make a combined step: each exchange stands where the other
 * micro-batch has something to compute.
 *
 *   compute    f.pre  b.mlp.bwd  b.mlp.dw  f.shared f.mlp  b.pre.bwd f.behind  b.pre.dw
 *   exchanges  b.combine  f.route f.dispatch  b.dispatch  f.combine
 *
 * The first layer's b.pre.dw comes last, beside the gradients that go to the stage before.
 */
#include "schedule/node_types.h"

#include "core/check.h"
#include "core/mutation.h"

/* The forward or the backward of a step. */
typedef struct half {
    const mimo_own_chunk *chunk; /* NULL: the step has no such half */
    int64_t micro_batch, number; /* number: of the stage's chunk */
    bool inputs, weights;        /* of a backward: which of its two halves */
} half;

typedef struct order {
    mimo_nodes *nodes;
    mimo_stage_nodes *list;
    int64_t step;
    half forward, back;
    int64_t f, b; /* layers of the combined step; -1: none */
} order;

static mimo_status append(const order *own, const half *from, mimo_node_part part,
                          mimo_node_pass pass, int64_t layer)
{
    const mimo_node node = {part, pass, own->step, from->micro_batch, from->number, layer};
    if (!from->chunk || !mimo_chunk_has_node(from->chunk, part, pass, layer))
        return MIMO_OK;
    return mimo_nodes_append(own->list, node);
}

static mimo_status forward(const order *own, mimo_node_part part)
{
    return append(own, &own->forward, part, MIMO_NODE_FORWARD, own->f);
}

static mimo_status replay(const order *own, mimo_node_part part)
{
    if (MIMO_MUTATED("replay-twice") && part == MIMO_NODE_MLP)
        MIMO_TRY(append(own, &own->back, part, MIMO_NODE_REPLAY, own->b));
    return append(own, &own->back, part, MIMO_NODE_REPLAY, own->b);
}

static mimo_status back(const order *own, mimo_node_part part)
{
    return append(own, &own->back, part, MIMO_NODE_INPUTS, own->b);
}

static mimo_status weights(const order *own, mimo_node_part part)
{
    return own->back.weights ? append(own, &own->back, part, MIMO_NODE_WEIGHTS, own->b) : MIMO_OK;
}

/* ---------------------------------------- combined steps ------------------------------------- */

/* Up to the experts' backward. What is replayed stands beside b.combine as well. */
static mimo_status order_to_dispatch(const order *own)
{
    MIMO_TRY(back(own, MIMO_NODE_POST));
    MIMO_TRY(back(own, MIMO_NODE_COMBINE));
    MIMO_TRY(replay(own, MIMO_NODE_PRE));
    MIMO_TRY(replay(own, MIMO_NODE_DISPATCH));
    MIMO_TRY(forward(own, MIMO_NODE_PRE));
    MIMO_TRY(forward(own, MIMO_NODE_ROUTE));
    MIMO_TRY(replay(own, MIMO_NODE_SHARED));
    MIMO_TRY(back(own, MIMO_NODE_SHARED));
    MIMO_TRY(replay(own, MIMO_NODE_MLP));
    MIMO_TRY(back(own, MIMO_NODE_MLP));
    return forward(own, MIMO_NODE_DISPATCH);
}

static mimo_status order_dispatch_back(const order *own)
{
    MIMO_TRY(back(own, MIMO_NODE_DISPATCH));
    return own->nodes->desc.early ? back(own, MIMO_NODE_PRE) : MIMO_OK;
}

static mimo_status order_experts_ahead(const order *own)
{
    MIMO_TRY(forward(own, MIMO_NODE_SHARED));
    MIMO_TRY(forward(own, MIMO_NODE_MLP));
    return forward(own, MIMO_NODE_COMBINE);
}

/* b.pre.dw of the first layer waits for the end of the chunk. */
static mimo_status order_layers(const order *own)
{
    MIMO_TRY(order_to_dispatch(own));
    MIMO_TRY(weights(own, MIMO_NODE_MLP));
    MIMO_TRY(weights(own, MIMO_NODE_SHARED));
    if (MIMO_MUTATED("two-combines-swapped")) {
        MIMO_TRY(order_experts_ahead(own));
        MIMO_TRY(order_dispatch_back(own));
    } else {
        MIMO_TRY(order_dispatch_back(own));
        MIMO_TRY(order_experts_ahead(own));
    }
    if (!own->nodes->desc.early)
        MIMO_TRY(back(own, MIMO_NODE_PRE));
    MIMO_TRY(forward(own, MIMO_NODE_BEHIND));
    MIMO_TRY(forward(own, MIMO_NODE_POST));
    return own->b > 0 ? weights(own, MIMO_NODE_PRE) : MIMO_OK;
}

/* Layer i forward beside layer B-1-i backward; what is left over of either stands alone. */
static mimo_status order_all_layers(order *own)
{
    int64_t fronts = own->forward.chunk ? own->forward.chunk->count : 0;
    int64_t backs = own->back.chunk && own->back.inputs ? own->back.chunk->count : 0;
    int64_t steps = fronts > backs ? fronts : backs;
    for (int64_t i = 0; i < steps; i++) {
        own->f = i < fronts ? i : -1;
        own->b = i < backs ? backs - 1 - i : -1;
        MIMO_TRY(order_layers(own));
    }
    own->f = own->b = 0;
    return MIMO_OK;
}

/* The weights' half alone, where the inputs' half ran in an earlier step. */
static mimo_status order_weights_alone(order *own)
{
    for (own->b = own->back.chunk->count - 1; own->b >= 0; own->b--) {
        MIMO_TRY(weights(own, MIMO_NODE_MLP));
        MIMO_TRY(weights(own, MIMO_NODE_SHARED));
        MIMO_TRY(weights(own, MIMO_NODE_PRE));
    }
    return MIMO_OK;
}

static mimo_status order_sync(const order *own)
{
    const mimo_node node = {MIMO_NODE_GRAD_SYNC,   MIMO_NODE_WEIGHTS, own->step,
                            own->back.micro_batch, own->back.number,  0};
    bool last =
        own->back.chunk && own->back.weights && own->back.micro_batch == own->back.chunk->last;
    return own->nodes->desc.grad_sync && last ? mimo_nodes_append(own->list, node) : MIMO_OK;
}

static mimo_status order_first_weights(const order *own)
{
    return MIMO_MUTATED("last-dw-node-dropped") ? MIMO_OK : weights(own, MIMO_NODE_PRE);
}

static mimo_status order_chunks(order *own)
{
    MIMO_TRY(forward(own, MIMO_NODE_PRE_PROCESS));
    MIMO_TRY(back(own, MIMO_NODE_POST_PROCESS));
    MIMO_TRY(order_all_layers(own));
    MIMO_TRY(forward(own, MIMO_NODE_SEND_RECV));
    MIMO_TRY(back(own, MIMO_NODE_SEND_RECV));
    MIMO_TRY(order_first_weights(own));
    MIMO_TRY(forward(own, MIMO_NODE_POST_PROCESS));
    MIMO_TRY(back(own, MIMO_NODE_PRE_PROCESS));
    return order_sync(own);
}

/* -------------------------------------------- steps ------------------------------------------ */

/* Pieces of a backward come in the other order. */
static mimo_status append_group(const order *own, const mimo_schedule_step *of)
{
    bool forward_way = of->kind == MIMO_STEP_E || of->kind == MIMO_STEP_BF;
    int64_t pieces = mimo_step_is_call(of->kind) ? 0 : own->nodes->pieces;
    mimo_node node = {mimo_step_is_call(of->kind) ? MIMO_NODE_CALL : MIMO_NODE_ENCODER,
                      forward_way ? MIMO_NODE_FORWARD : MIMO_NODE_INPUTS,
                      own->step,
                      of->index,
                      0,
                      0};
    for (int64_t i = 1; i <= pieces; i++) {
        node.layer = forward_way ? i : pieces + 1 - i;
        MIMO_TRY(mimo_nodes_append(own->list, node));
    }
    return pieces > 0 ? MIMO_OK : mimo_nodes_append(own->list, node);
}

mimo_status mimo_node_order(mimo_nodes *nodes, int64_t stage, int64_t step)
{
    const mimo_schedule_step *of = &nodes->schedule->lists[stage].steps[step];
    mimo_schedule_step parts[2];
    order own = {.nodes = nodes, .list = &nodes->stages[stage], .step = step};
    if (!mimo_step_of_llm(of->kind))
        return append_group(&own, of);
    int count = mimo_step_parts(parts, of);
    for (int k = 0; k < count; k++) {
        bool ahead = parts[k].kind == MIMO_STEP_F;
        *(ahead ? &own.forward : &own.back) =
            (half){mimo_node_chunk_of(nodes, stage, parts[k].chunk), parts[k].index, parts[k].chunk,
                   parts[k].kind != MIMO_STEP_W, parts[k].kind != MIMO_STEP_I};
    }
    if (of->kind != MIMO_STEP_W)
        return order_chunks(&own);
    MIMO_TRY(order_weights_alone(&own));
    return order_sync(&own);
}
