#include "train/pipeline/node_lanes.h"

#include <string.h>

#include "core/mutation.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"

/* ------------------------------------------- lanes ------------------------------------------- */

static bool is_exchange(const mimo_node *node)
{
    return mimo_node_lane_of(node->part) == MIMO_NODE_LANE_EXCHANGES;
}

stage_stream node_lanes_stream(const mimo_node *node)
{
    if (!is_exchange(node))
        return STREAM_COMPUTE;
    return node->part == MIMO_NODE_ROUTE ? STREAM_ROUTES : STREAM_EXCHANGES;
}

static mimo_stream stream_of(const node_lanes *lanes, int64_t i)
{
    return stage_stream_of(lanes->streams, node_lanes_stream(&lanes->list[i]));
}

bool node_lanes_apart(const node_lanes *lanes)
{
    return lanes->marks != NULL;
}

/* -------------------------------------------- life ------------------------------------------- */

/* Each exchange is waited for: by the next one, or at the end of the step. */
static mimo_status make_marks(node_lanes *out, const nn_runtime *runtime)
{
    int64_t waits[MIMO_NODE_LANES];
    TRY(nn_mark_init(&out->computed, runtime));
    for (int64_t i = 0; i < out->count; i++) {
        TRY(mimo_nodes_waits(waits, out->nodes, out->stage, i));
        int64_t input = waits[MIMO_NODE_LANE_COMPUTE];
        if (!is_exchange(&out->list[i]))
            continue;
        TRY(nn_mark_init(&out->marks[i], runtime));
        if (input >= 0 && !out->marks[input].event)
            TRY(nn_mark_init(&out->marks[input], runtime));
    }
    return MIMO_OK;
}

mimo_status node_lanes_open(node_lanes *out, const mimo_nodes *nodes, int64_t stage,
                            const stage_streams *streams, nn_dispatch *dispatch)
{
    *out = (node_lanes){
        .nodes = nodes, .stage = stage, .streams = streams, .dispatch = dispatch, .last = -1};
    out->list = mimo_nodes_of(&out->count, nodes, stage);
    if (stage_stream_of(streams, STREAM_EXCHANGES) == stage_stream_of(streams, STREAM_COMPUTE))
        return MIMO_OK;
    TRY(memory_reserve(&out->marks, out->count, sizeof *out->marks));
    return make_marks(out, stage_streams_runtime(streams));
}

void node_lanes_close(node_lanes *lanes)
{
    for (int64_t i = 0; lanes->marks && i < lanes->count; i++)
        nn_mark_release(&lanes->marks[i]);
    nn_mark_release(&lanes->computed);
    memory_release(lanes->marks);
    memset(lanes, 0, sizeof *lanes);
}

/* ------------------------------------------- steps ------------------------------------------- */

void node_lanes_begin(node_lanes *lanes)
{
    if (lanes->dispatch)
        nn_dispatch_use_streams(lanes->dispatch, stage_stream_of(lanes->streams, STREAM_ROUTES),
                                stage_stream_of(lanes->streams, STREAM_EXCHANGES));
}

/* The last exchange has all others before it. */
mimo_status node_lanes_end(node_lanes *lanes)
{
    int64_t last = lanes->last;
    mimo_stream compute = stage_stream_of(lanes->streams, STREAM_COMPUTE);
    lanes->last = -1;
    if (lanes->dispatch)
        nn_dispatch_use_streams(lanes->dispatch, compute, compute);
    return last < 0 ? MIMO_OK : nn_mark_await(&lanes->marks[last], compute);
}

/* ------------------------------------------- nodes ------------------------------------------- */

static mimo_status await_computed(const node_lanes *lanes, mimo_stream stream)
{
    TRY(nn_mark_set(&lanes->computed, stage_stream_of(lanes->streams, STREAM_COMPUTE)));
    return nn_mark_await(&lanes->computed, stream);
}

/* Tiles that are written again, by a later micro-batch or where blocks share them (nn_stack.h),
 * need no more: what an exchange needs is computed behind all that has read them. */
static mimo_status await_input(const node_lanes *lanes, int64_t i, int64_t input, bool serial)
{
    mimo_stream stream = stream_of(lanes, i);
    if (serial)
        return await_computed(lanes, stream);
    if (input < 0 || MIMO_MUTATED("exchange-without-its-input"))
        return MIMO_OK;
    return nn_mark_await(&lanes->marks[input], stream);
}

/* The exchange before it has all others before it. */
static mimo_status await_turn(const node_lanes *lanes, int64_t i)
{
    mimo_stream stream = stream_of(lanes, i);
    if (lanes->last < 0 || stream_of(lanes, lanes->last) == stream ||
        MIMO_MUTATED("exchanges-out-of-turn"))
        return MIMO_OK;
    return nn_mark_await(&lanes->marks[lanes->last], stream);
}

static mimo_status enter_exchange(const node_lanes *lanes, int64_t i, int64_t input, bool serial)
{
    TRY(await_input(lanes, i, input, serial));
    return await_turn(lanes, i);
}

mimo_status node_lanes_enter(node_lanes *lanes, int64_t i, bool serial)
{
    int64_t waits[MIMO_NODE_LANES];
    TRY(mimo_nodes_waits(waits, lanes->nodes, lanes->stage, i));
    if (is_exchange(&lanes->list[i]))
        return enter_exchange(lanes, i, waits[MIMO_NODE_LANE_COMPUTE], serial);
    int64_t input = serial ? lanes->last : waits[MIMO_NODE_LANE_EXCHANGES];
    if (input < 0 || MIMO_MUTATED("compute-without-its-exchange"))
        return MIMO_OK;
    return nn_mark_await(&lanes->marks[input], stream_of(lanes, i));
}

mimo_status node_lanes_leave(node_lanes *lanes, int64_t i)
{
    if (is_exchange(&lanes->list[i]))
        lanes->last = i;
    return nn_mark_set(&lanes->marks[i], stream_of(lanes, i));
}
