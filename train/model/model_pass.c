#include "train/model/model_pass.h"

#include <inttypes.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

/* ------------------------------------------- samples ------------------------------------------ */

/* The samples of a micro-batch. */
typedef struct part {
    int64_t first, count;
} part;

static part part_at(const model_pass *pass, int64_t index)
{
    int64_t most = pass->desc.samples, first = index * most;
    int64_t left = first < pass->samples->count ? pass->samples->count - first : 0;
    return (part){first, left < most ? left : most};
}

/* The samples of all micro-batches of a group, in the group's order. */
static void pick_group(const model_pass *pass, int64_t group)
{
    const micro_batch *batch = &pass->model->batch;
    int64_t each = batch->sentences, lane = batch->desc.group * each;
    for (int64_t i = 0; i < batch->desc.group * batch->total; i++) {
        int64_t in_group = i % lane / each, sample = i / lane * each + i % each;
        part own = part_at(pass, group * pass->sizes.encoder_group + in_group);
        bool there = in_group < pass->sizes.encoder_group && sample < own.count;
        pass->picked[i] = there ? own.first + sample : -1;
    }
}

static mimo_status deal_pictures(model_pass *pass)
{
    for (int64_t g = 0; g < pass->groups; g++) {
        pick_group(pass, g);
        TRY(picture_deal_make(&pass->deals[g], pass->samples, pass->picked));
        TRY(picture_deal_load(&pass->deals[g], pass->samples));
    }
    return MIMO_OK;
}

/* Reading and dealing are what may fail on one rank alone. */
static mimo_status read_samples(model_pass *pass)
{
    bridged_model *model = pass->model;
    mimo_status status = deal_pictures(pass);
    for (int64_t i = 0; status == MIMO_OK && i < pass->desc.micro_batches; i++) {
        part own = part_at(pass, i);
        batch_fill_sentences(&model->batch, pass->samples, own.first, own.count);
        const language_sentences sentences = {model->batch.ids, model->batch.labels,
                                              model->batch.present};
        status = language_read(&model->language, &pass->texts[i], &sentences);
    }
    return mimo_comm_agree(model->topology->world, status);
}

/* -------------------------------------------- steps ------------------------------------------- */

static mimo_status encode(model_pass *pass, const pipeline_task *task)
{
    return image_rows_encode(&pass->model->images, task->slot, &pass->deals[task->index],
                             task->index, (encoder_piece){1, 1});
}

static const language_text *text(void *context, const pipeline_task *task)
{
    const model_pass *pass = context;
    return &pass->texts[task->index];
}

static mimo_status take_rows(void *context, const pipeline_task *task)
{
    model_pass *pass = context;
    return task->first ? image_rows_take(&pass->model->images, task->slot, task->part,
                                         language_input(&pass->model->language, task->state))
                       : MIMO_OK;
}

static mimo_status forward(model_pass *pass, const pipeline_task *task)
{
    TRY(take_rows(pass, task));
    return language_forward(&pass->model->language, &pass->texts[task->index], task->state);
}

/* The gradients of a group's first micro-batch come first: with them those that there are none of.
 */
static mimo_status give_rows(void *context, const pipeline_task *task)
{
    model_pass *pass = context;
    image_rows *images = &pass->model->images;
    if (!task->first || pass->sizes.encoder_frozen)
        return MIMO_OK;
    int64_t size = pass->sizes.encoder_group, group = task->index / size;
    int64_t left = pass->desc.micro_batches - group * size;
    if (task->part == 0)
        TRY(image_rows_give_none(images, task->slot, left < size ? left : size));
    return image_rows_give(images, task->slot, task->part,
                           language_input(&pass->model->language, task->state));
}

static mimo_status backward_input(model_pass *pass, const pipeline_task *task)
{
    TRY(language_backward_input(&pass->model->language, task->state));
    return give_rows(pass, task);
}

static mimo_status backward_params(model_pass *pass, const pipeline_task *task)
{
    return language_backward_params(&pass->model->language, &pass->texts[task->index], task->state);
}

static mimo_status compute(void *context, const pipeline_task *task)
{
    model_pass *pass = context;
    if (pass->pair.nodes)
        return pair_pass_run_alone(&pass->pair, task, pass->pipeline.done);
    switch (task->kind) {
    case MIMO_STEP_E:
        return encode(pass, task);
    case MIMO_STEP_EB:
        return image_rows_encode_backward(&pass->model->images, task->slot, (encoder_piece){1, 1});
    case MIMO_STEP_F:
        return forward(pass, task);
    case MIMO_STEP_I:
        return backward_input(pass, task);
    case MIMO_STEP_W:
        return backward_params(pass, task);
    default:
        TRY(backward_input(pass, task));
        return backward_params(pass, task);
    }
}

static mimo_status compute_pair(void *context, const pipeline_task *tasks, int64_t step)
{
    model_pass *pass = context;
    return pair_pass_run(&pass->pair, tasks, step);
}

static mimo_status encode_piece(void *context, const mimo_node *node, encoder_piece at)
{
    model_pass *pass = context;
    int64_t group = node->micro_batch, place = group % pass->model->encoder.states;
    image_rows *images = &pass->model->images;
    return node->pass == MIMO_NODE_FORWARD
               ? image_rows_encode(images, place, &pass->deals[group], group, at)
               : image_rows_encode_backward(images, place, at);
}

static mimo_status begin(mimo_op **out, void *context, const pipeline_task *task)
{
    model_pass *pass = context;
    if (pass->pair.nodes)
        TRY(pair_pass_run_alone(&pass->pair, task, pass->pipeline.done));
    return image_rows_begin(out, &pass->model->images, task->kind == MIMO_STEP_BB, task->slot);
}

static nn_real *input(void *context, const pipeline_task *task)
{
    const model_pass *pass = context;
    return language_input(&pass->model->language, task->state);
}

static nn_real *output(void *context, const pipeline_task *task)
{
    const model_pass *pass = context;
    return language_output(&pass->model->language, task->state);
}

/* ------------------------------------------- warm-up ------------------------------------------ */

/* CUDA loads a kernel at its first call, and cuBLAS at the first product of a shape. Either waits
 * until the device is idle, and in the middle of a list that may be never: the device waits for
 * another stage, whose host waits likewise. So a pass on a device computes once before its first
 * walk all that its steps compute, while nothing is under way. What comes out is of no use. */

static bool learns(const model_pass *pass)
{
    return pass->desc.backward && !pass->sizes.encoder_frozen;
}

/* Where samples have several pictures a group may have any number of them. */
static mimo_status warm_up_encoder(model_pass *pass)
{
    bridged_model *model = pass->model;
    nn_real *encoded = model->images.slots[0].encoded;
    bool several = model->batch.desc.most_images > 0;
    for (int64_t n = 1; several && n <= model->batch.pictures; n++) {
        TRY(encoder_forward(&model->encoder, 0, encoded, pass->deals[0].patches, n));
        if (learns(pass))
            TRY(encoder_backward(&model->encoder, 0, encoded));
    }
    TRY(compute(pass, &(pipeline_task){.kind = MIMO_STEP_E}));
    return learns(pass) ? compute(pass, &(pipeline_task){.kind = MIMO_STEP_EB}) : MIMO_OK;
}

static mimo_status warm_up_language(model_pass *pass)
{
    const bridged_model *model = pass->model;
    int64_t state = 0;
    for (int64_t c = 0; c < model->language.chunks; c++) {
        pipeline_task task = {.kind = MIMO_STEP_F,
                              .chunk = c,
                              .state = state,
                              .first = model->topology->stage == 0 && c == 0};
        TRY(compute(pass, &task));
        task.kind = MIMO_STEP_B;
        if (pass->desc.backward)
            TRY(compute(pass, &task));
        state += model->language.chunk_states[c];
    }
    return MIMO_OK;
}

static mimo_status warm_up(model_pass *pass)
{
    bridged_model *model = pass->model;
    double losses;
    int64_t tokens;
    pass->warm = true;
    TRY(warm_up_encoder(pass));
    TRY(warm_up_language(pass));
    TRY(language_losses(&model->language, &losses, &tokens));
    TRY(nn_params_zero_grad(model->encoder.params));
    return nn_params_zero_grad(model->language.params);
}

/* --------------------------------------------- life ------------------------------------------- */

static mimo_status create_deals(model_pass *out)
{
    bridged_model *model = out->model;
    int64_t each = out->sizes.encoder_group, groups = (out->desc.micro_batches + each - 1) / each;
    const picture_deal_desc desc = {.topology = model->topology,
                                    .runtime = model->desc.runtime,
                                    .batch = &model->batch,
                                    .balanced = model->desc.balanced};
    TRY(memory_reserve(&out->deals, groups, sizeof *out->deals));
    while (out->groups < groups)
        TRY(picture_deal_create(&out->deals[out->groups++], &desc)); /* released also on failure */
    return MIMO_OK;
}

/* Ranks that share an encoder are of one stage (topology.h), so they have pieces in one order. */
static mimo_status check_pieces(const model_pass *out)
{
    int64_t pieces = out->model->desc.schedule.pieces, layers = out->model->desc.encoder_layers;
    CHECK(pieces <= layers, MIMO_ERR_ARGUMENT,
          "an encoder of %" PRId64 " layers has no %" PRId64 " pieces", layers, pieces);
    return MIMO_OK;
}

static mimo_status reserve_all(model_pass *out)
{
    const bridged_model *model = out->model;
    const model_pass_desc *desc = &out->desc;
    const schedule_need need = {.stages = model->topology->stages,
                                .micro_batches = desc->micro_batches,
                                .backward = desc->backward,
                                .frozen = !nn_params_trainable(model->encoder.params),
                                .slots = model->encoder.states};
    CHECK(desc->micro_batches <= model->desc.micro_batches, MIMO_ERR_ARGUMENT,
          "a pass over %" PRId64 " micro-batches, and the model was made for %" PRId64,
          desc->micro_batches, model->desc.micro_batches);
    TRY(schedule_choose(&out->schedule, &out->sizes, &model->desc.schedule, &need));
    TRY(memory_reserve(&out->picked, model->batch.desc.group * model->batch.total,
                       sizeof *out->picked));
    TRY(create_deals(out));
    TRY(memory_reserve(&out->texts, desc->micro_batches, sizeof *out->texts));
    for (int64_t i = 0; i < desc->micro_batches; i++)
        TRY(language_text_create(&out->texts[i], &model->language));
    if (!out->sizes.overlap)
        return MIMO_OK;
    const pair_pass_desc pair = {.language = &out->model->language,
                                 .layout = &model->layout,
                                 .mixtures = model->desc.experts > 0,
                                 .stage = model->topology->stage,
                                 .stages = model->topology->stages,
                                 .schedule = out->schedule,
                                 .streams = &model->streams,
                                 .dispatch = model->dispatch,
                                 .pieces = out->model->desc.schedule.pieces,
                                 .costs = out->model->desc.schedule.node_costs,
                                 .work = {out, text, take_rows, NULL, give_rows, encode_piece}};
    TRY(check_pieces(out));
    return pair_pass_create(&out->pair, &pair);
}

mimo_status model_pass_create(model_pass *out, bridged_model *model, const model_pass_desc *desc)
{
    out->desc = *desc;
    out->model = model;
    TRY(mimo_comm_agree(model->topology->world, reserve_all(out)));
    const pipeline_desc walk = {
        .world = model->topology->world,
        .schedule = out->schedule,
        .nodes = out->pair.nodes,
        .sizes = out->sizes,
        .stage = model->topology->stage,
        .groups = expert_grid_copies(&model->topology->experts) > 1,
        .states = model->language.chunk_states,
        .slots = model->encoder.states,
        .hops = &model->hops,
        .streams = &model->streams,
        .work = {out, compute, out->pair.nodes ? compute_pair : NULL, begin, input, output}};
    return pipeline_create(&out->pipeline, &walk);
}

void model_pass_destroy(model_pass *pass)
{
    pipeline_destroy(&pass->pipeline);
    pair_pass_destroy(&pass->pair);
    for (int64_t i = 0; pass->texts && i < pass->desc.micro_batches; i++)
        language_text_destroy(&pass->texts[i]);
    memory_release(pass->texts);
    while (pass->groups > 0)
        picture_deal_destroy(&pass->deals[--pass->groups]);
    memory_release(pass->deals);
    memory_release(pass->picked);
    mimo_schedule_destroy(pass->schedule);
    *pass = (model_pass){0};
}

/* Where experts were too many for a rank's tile, and nobody waited to learn of it. */
static mimo_status check_experts(const bridged_model *model)
{
    const nn_runtime *runtime = nn_runtime_or_host(model->desc.runtime);
    const bool untold = model->desc.experts > 0 && runtime->order == NN_ORDER_FIXED &&
                        runtime->memory != MIMO_MEMORY_HOST;
    if (!untold)
        return MIMO_OK;
    mimo_status status = model->dispatch ? nn_dispatch_check(model->dispatch) : MIMO_OK;
    return mimo_comm_agree(model->topology->world, status);
}

mimo_status model_pass_run(model_pass *pass, const model_samples *samples)
{
    pass->samples = samples;
    TRY(read_samples(pass));
    if (pass->model->batch.desc.most_images > 0)
        TRY(image_rows_update(&pass->model->images, pass->deals, pass->groups));
    if (pass->model->streams.apart && !pass->warm)
        TRY(mimo_comm_agree(pass->model->topology->world, warm_up(pass)));
    if (pass->pair.nodes)
        TRY(pair_pass_begin(&pass->pair));
    TRY(pipeline_run(&pass->pipeline));
    return check_experts(pass->model);
}

lane_rows model_pass_lanes(const model_pass *pass)
{
    lane_rows sums = {0};
    for (int64_t g = 0; g < pass->groups; g++)
        picture_deal_count(&sums, &pass->deals[g]);
    return sums;
}
