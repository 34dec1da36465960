#include "train/model/pair_pass.h"

#include <string.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

/* ------------------------------------------- nodes ------------------------------------------- */

/* Segment s of the layout is chunk s of the model. */
static mimo_status cut_chunks(mimo_nodes **out, const pair_pass_desc *desc, mimo_node_chunk *chunks,
                              mimo_node_layer *layers)
{
    const layer_layout *layout = desc->layout;
    mimo_nodes_desc nodes = MIMO_NODES_DESC_INIT;
    nodes.encoder_pieces = desc->pieces;
    nodes.costs = desc->costs;
    for (int64_t i = 0; i < layout->items; i++)
        layers[i] = stack_walk_layer(layer_layout_block(layout, i, desc->mixtures),
                                     desc->language->blocks[0].recompute);
    for (int64_t n = 0; n < layout->chunks * desc->stages; n++)
        chunks[n] = (mimo_node_chunk){&layers[layout->bounds[n]],
                                      layout->bounds[n + 1] - layout->bounds[n], 0, 0};
    return mimo_nodes_create(out, desc->schedule, chunks, &nodes);
}

static mimo_status cut(mimo_nodes **out, const pair_pass_desc *desc)
{
    mimo_node_chunk *chunks = NULL;
    mimo_node_layer *layers = NULL;
    mimo_status status =
        memory_reserve(&chunks, desc->layout->chunks * desc->stages, sizeof *chunks);
    if (status == MIMO_OK)
        status = memory_reserve(&layers, desc->layout->items, sizeof *layers);
    if (status == MIMO_OK)
        status = cut_chunks(out, desc, chunks, layers);
    memory_release(chunks);
    memory_release(layers);
    return status;
}

/* Stages on a device need a warm-up of all that they compute (model_pass.c), and experts have any
 * number of rows. */
static mimo_status check_device(const pair_pass_desc *desc)
{
    bool device = nn_runtime_or_host(desc->language->runtime)->memory != MIMO_MEMORY_HOST;
    CHECK(!device || desc->stages == 1, MIMO_ERR_UNSUPPORTED,
          "a forward beside a backward (--overlap) in pp=%d stages runs on the host so far",
          desc->stages);
    return MIMO_OK;
}

/* ------------------------------------- what nodes do ------------------------------------------ */

static const pipeline_task *task_of(const pair_pass *pair, const mimo_node *node)
{
    return &pair->tasks[node->pass == MIMO_NODE_FORWARD ? 0 : 1];
}

static mimo_status find(stack_pass *out, void *context, const mimo_node *node)
{
    const pair_pass *pair = context;
    *out = language_blocks(pair->language, task_of(pair, node)->state);
    return MIMO_OK;
}

static const language_text *text_of(const pair_pass *pair, const pipeline_task *task)
{
    return pair->work.text(pair->work.context, task);
}

static mimo_status begin_chunk(pair_pass *pair, const pipeline_task *task)
{
    stack_pass blocks = language_blocks(pair->language, task->state);
    TRY(pair->work.begin(pair->work.context, task));
    TRY(language_embed(pair->language, text_of(pair, task), task->state));
    return nn_stack_begin(blocks.stack, blocks.saved, &text_of(pair, task)->sequence);
}

static mimo_status end_chunk(pair_pass *pair, const pipeline_task *task)
{
    TRY(language_lose(pair->language, text_of(pair, task), task->state));
    return pair->work.end ? pair->work.end(pair->work.context, task) : MIMO_OK;
}

/* The gradient of the input goes on before that of the embedding is taken from it. */
static mimo_status end_backward(pair_pass *pair, const pipeline_task *task)
{
    TRY(pair->work.give(pair->work.context, task));
    return language_ends_backward_params(pair->language, text_of(pair, task), task->state);
}

static encoder_piece piece_of(const pair_pass *pair, const mimo_node *node)
{
    return node->layer > 0 ? (encoder_piece){node->layer, pair->pieces} : (encoder_piece){1, 1};
}

static mimo_status other(void *context, const mimo_node *node)
{
    pair_pass *pair = context;
    const pipeline_task *task = task_of(pair, node);
    bool forward = node->pass == MIMO_NODE_FORWARD;
    if (node->part == MIMO_NODE_ENCODER)
        return pair->work.encode(pair->work.context, node, piece_of(pair, node));
    if (node->part == MIMO_NODE_PRE_PROCESS)
        return forward ? begin_chunk(pair, task) : end_backward(pair, task);
    if (node->part == MIMO_NODE_POST_PROCESS)
        return forward ? end_chunk(pair, task)
                       : language_lose_backward(pair->language, task->state);
    return MIMO_OK; /* hops and calls: the pipeline begins them behind the step */
}

/* -------------------------------------------- life ------------------------------------------- */

mimo_status pair_pass_create(pair_pass *out, const pair_pass_desc *desc)
{
    const stack_walk_work nodes = {out, find, other, desc->streams, desc->dispatch};
    out->language = desc->language;
    out->work = desc->work;
    out->pieces = desc->pieces;
    TRY(check_device(desc));
    TRY(cut(&out->nodes, desc));
    TRY(stack_walk_open(&out->walk, out->nodes, desc->stage, &nodes));
    out->walk.clock = &out->clock;
    return step_clock_create(&out->clock, desc->streams, 1 + 2 * out->walk.count);
}

void pair_pass_destroy(pair_pass *pair)
{
    stack_walk_close(&pair->walk);
    step_clock_destroy(&pair->clock);
    mimo_nodes_destroy(pair->nodes);
    *pair = (pair_pass){0};
}

mimo_status pair_pass_run(pair_pass *pair, const pipeline_task *tasks, int64_t step)
{
    int64_t at = stack_walk_find(&pair->walk, step);
    pair->tasks = tasks;
    if (at == pair->walk.count || pair->walk.list[at].step != step)
        return MIMO_OK; /* all of it was moved to other steps */
    return stack_walk_step(&at, &pair->walk);
}

mimo_status pair_pass_run_alone(pair_pass *pair, const pipeline_task *task, int64_t step)
{
    pipeline_task tasks[2] = {*task, *task};
    mimo_status status = pair_pass_run(pair, tasks, step);
    pair->tasks = NULL;
    return status;
}

mimo_status pair_pass_begin(pair_pass *pair)
{
    memset(pair->clock.times, 0, (size_t)pair->clock.count * sizeof *pair->clock.times);
    return step_clock_stamp(&pair->clock, 0, STREAM_COMPUTE);
}

mimo_status pair_pass_times(mimo_node_time *times, pair_pass *pair)
{
    TRY(step_clock_read(&pair->clock, pair->clock.count));
    for (int64_t i = 0; i < pair->walk.count; i++) {
        const int64_t *own = pair->clock.times + 1 + 2 * i;
        bool ran = own[0] >= 0 && own[1] >= own[0]; /* what has no stamp lies before stamp 0 */
        times[i] = ran ? (mimo_node_time){own[0], own[1], 0} : (mimo_node_time){0};
    }
    return MIMO_OK;
}
