#include "train/pipeline/stack_walk.h"

#include <string.h>

#include "core/mutation.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"

/* ------------------------------------- nodes and parts of blocks ----------------------------- */

/* Nodes have the parts of blocks under other names. */
static const mimo_node_part node_parts[NN_PARTS] = {
    [NN_PART_BEFORE] = MIMO_NODE_PRE,        [NN_PART_ROUTE] = MIMO_NODE_ROUTE,
    [NN_PART_DISPATCH] = MIMO_NODE_DISPATCH, [NN_PART_SHARED] = MIMO_NODE_SHARED,
    [NN_PART_EXPERTS] = MIMO_NODE_MLP,       [NN_PART_COMBINE] = MIMO_NODE_COMBINE,
    [NN_PART_BEHIND] = MIMO_NODE_BEHIND,
};

mimo_node_layer stack_walk_layer(const nn_block_kind *kind, nn_recompute recompute)
{
    static const mimo_node_recompute ways[] = {
        [NN_RECOMPUTE_NONE] = MIMO_RECOMPUTE_NONE,
        [NN_RECOMPUTE_SEND_ROWS] = MIMO_RECOMPUTE_SEND_ROWS,
        [NN_RECOMPUTE_KEEP_ROWS] = MIMO_RECOMPUTE_KEEP_ROWS,
    };
    mimo_node_layer layer = {.recompute = ways[recompute]};
    for (int part = 0; part < NN_PARTS; part++)
        if (kind->parts[part])
            layer.parts |= 1u << node_parts[part];
    return layer;
}

/* False: the node is no part of a block. */
static bool find_part(nn_stack_node *out, const mimo_node *node)
{
    static const nn_pass passes[MIMO_NODE_PASSES] = {
        [MIMO_NODE_FORWARD] = NN_PASS_FORWARD,
        [MIMO_NODE_REPLAY] = NN_PASS_AGAIN,
        [MIMO_NODE_INPUTS] = NN_PASS_INPUT,
        [MIMO_NODE_WEIGHTS] = NN_PASS_PARAMS,
    };
    for (int part = 0; part < NN_PARTS; part++)
        if (node_parts[part] == node->part) {
            *out = (nn_stack_node){passes[node->pass], node->layer, (nn_block_part)part};
            return true;
        }
    return false;
}

/* ------------------------------------------- moves ------------------------------------------- */

static mimo_status stamp(const stack_walk *walk, int64_t i, bool end)
{
    stage_stream stream = node_lanes_stream(&walk->list[i]);
    return walk->clock ? step_clock_stamp(walk->clock, 1 + 2 * i + (end ? 1 : 0), stream) : MIMO_OK;
}

static mimo_status note_end(const stack_walk *walk, stack_move *move)
{
    if (move->over)
        return MIMO_OK;
    move->over = true;
    return stamp(walk, move->at, true);
}

/* Moves that were begun up to a node are over. */
static mimo_status end_moves(stack_walk *walk, int64_t up_to)
{
    while (walk->first < walk->behind && walk->moves[walk->first].at <= up_to) {
        stack_move *move = &walk->moves[walk->first++];
        TRY(mimo_op_wait(&move->op));
        TRY(note_end(walk, move));
    }
    return MIMO_OK;
}

/* What a step that failed has left. */
static void drop_moves(stack_walk *walk)
{
    while (walk->first < walk->behind)
        (void)mimo_op_wait(&walk->moves[walk->first++].op);
    walk->first = walk->behind = 0;
}

/* Rows go by a route, and both are moves: -1, or the place of that route while it is being set. */
static int64_t route_of(const stack_walk *walk, int64_t at)
{
    const mimo_node *rows = &walk->list[at];
    if (rows->part != MIMO_NODE_DISPATCH || MIMO_MUTATED("rows-before-their-route"))
        return -1;
    for (int64_t i = walk->first; i < walk->behind; i++) {
        const mimo_node *node = &walk->list[walk->moves[i].at];
        if (node->part == MIMO_NODE_ROUTE && node->micro_batch == rows->micro_batch &&
            node->chunk == rows->chunk && node->layer == rows->layer)
            return walk->moves[i].at;
    }
    return -1;
}

static mimo_status await_inputs(stack_walk *walk, int64_t at)
{
    int64_t waits[MIMO_NODE_LANES];
    if (node_lanes_apart(&walk->lanes))
        return node_lanes_enter(&walk->lanes, at, walk->serial);
    TRY(mimo_nodes_waits(waits, walk->nodes, walk->stage, at));
    int64_t input = waits[MIMO_NODE_LANE_EXCHANGES], route = route_of(walk, at);
    if (MIMO_MUTATED("node-before-its-move"))
        input--;
    return end_moves(walk, route > input ? route : input);
}

/* Host memory moves only inside such calls. A failure is that of the wait. */
static mimo_status move_on(const stack_walk *walk)
{
    for (int64_t i = walk->first; i < walk->behind; i++) {
        stack_move *move = &walk->moves[i];
        bool done = move->over;
        if (!done)
            (void)mimo_op_test(&done, move->op);
        if (!done)
            break;
        TRY(note_end(walk, move));
    }
    return MIMO_OK;
}

/* ------------------------------------------- nodes ------------------------------------------- */

/* On a device what was begun is in its stream. */
static mimo_status leave_move(stack_walk *walk, stack_move move)
{
    if (node_lanes_apart(&walk->lanes)) {
        TRY(mimo_op_wait(&move.op));
        return stamp(walk, move.at, true);
    }
    walk->moves[walk->behind++] = move;
    return walk->serial ? end_moves(walk, move.at) : MIMO_OK;
}

static mimo_status run_part(stack_walk *walk, int64_t i, nn_stack_node at)
{
    stack_pass pass;
    stack_move move = {NULL, i, false};
    bool weights = at.pass == NN_PASS_PARAMS && at.part == NN_PART_EXPERTS;
    TRY(walk->work.find(&pass, walk->work.context, &walk->list[i]));
    if (MIMO_MUTATED("weights-node-lost") && weights)
        return MIMO_OK;
    TRY(nn_stack_run(&move.op, pass.stack, pass.saved, at));
    return move.op ? leave_move(walk, move) : stamp(walk, i, true);
}

static mimo_status run_other(stack_walk *walk, int64_t i)
{
    TRY(walk->work.other(walk->work.context, &walk->list[i]));
    return stamp(walk, i, true);
}

static mimo_status run_node(stack_walk *walk, int64_t i)
{
    nn_stack_node at;
    const mimo_node *node = &walk->list[i];
    TRY(await_inputs(walk, i));
    TRY(stamp(walk, i, false));
    TRY(find_part(&at, node) ? run_part(walk, i, at) : run_other(walk, i));
    return node_lanes_apart(&walk->lanes) ? node_lanes_leave(&walk->lanes, i) : move_on(walk);
}

/* Nobody goes on with what a step that failed had begun. */
static void abandon(const stack_walk *walk, int64_t step)
{
    stack_pass pass;
    nn_stack_node at;
    for (int64_t i = 0; i < walk->count; i++)
        if (walk->list[i].step == step && find_part(&at, &walk->list[i]) &&
            walk->work.find(&pass, walk->work.context, &walk->list[i]) == MIMO_OK)
            nn_stack_abandon(pass.saved);
}

int64_t stack_walk_find(const stack_walk *walk, int64_t step)
{
    int64_t first = 0, behind = walk->count; /* steps ascend */
    while (first < behind) {
        int64_t middle = first + (behind - first) / 2;
        if (walk->list[middle].step < step)
            first = middle + 1;
        else
            behind = middle;
    }
    return first;
}

static mimo_status run_nodes(int64_t *at, stack_walk *walk)
{
    int64_t step = walk->list[*at].step;
    while (*at < walk->count && walk->list[*at].step == step) {
        TRY(run_node(walk, *at));
        ++*at;
    }
    return MIMO_OK;
}

static mimo_status run_apart(int64_t *at, stack_walk *walk)
{
    node_lanes_begin(&walk->lanes);
    mimo_status ran = run_nodes(at, walk), ended = node_lanes_end(&walk->lanes);
    return ran == MIMO_OK ? ended : ran;
}

static mimo_status run_step(int64_t *at, stack_walk *walk)
{
    if (node_lanes_apart(&walk->lanes))
        return run_apart(at, walk);
    drop_moves(walk);
    TRY(run_nodes(at, walk));
    return end_moves(walk, *at);
}

mimo_status stack_walk_step(int64_t *at, stack_walk *walk)
{
    int64_t first = *at;
    CHECK(first >= 0 && first < walk->count, MIMO_ERR_ARGUMENT,
          "stack: there is no node %" PRId64 " of %" PRId64, first, walk->count);
    mimo_status status = run_step(at, walk);
    if (status == MIMO_OK)
        return MIMO_OK;
    status = fail_prefix(status, "node %" PRId64 ": ", *at);
    abandon(walk, walk->list[first].step);
    return status;
}

/* --------------------------------------------- life ------------------------------------------ */

/* The most exchanges of a step. */
static int64_t most_moves(const stack_walk *walk)
{
    int64_t most = 1, count = 0;
    for (int64_t i = 0; i < walk->count; i++) {
        count = i > 0 && walk->list[i].step == walk->list[i - 1].step ? count : 0;
        count += mimo_node_lane_of(walk->list[i].part) == MIMO_NODE_LANE_EXCHANGES ? 1 : 0;
        most = count > most ? count : most;
    }
    return most;
}

mimo_status stack_walk_open(stack_walk *out, const mimo_nodes *nodes, int64_t stage,
                            const stack_walk_work *work)
{
    *out = (stack_walk){.nodes = nodes, .stage = stage, .work = *work};
    out->list = mimo_nodes_of(&out->count, nodes, stage);
    out->most = most_moves(out);
    TRY(node_lanes_open(&out->lanes, nodes, stage, work->streams, work->dispatch));
    return memory_reserve(&out->moves, out->most, sizeof *out->moves);
}

void stack_walk_close(stack_walk *walk)
{
    drop_moves(walk);
    node_lanes_close(&walk->lanes);
    memory_release(walk->moves);
    memset(walk, 0, sizeof *walk);
}
