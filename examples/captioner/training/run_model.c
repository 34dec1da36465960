#include "captioner/training/run_model.h"

#include "captioner/captions/caption_batch.h"
#include "train/support/train_support.h"

/* `micro_batches` of a step: fewer than were asked for, where these would be empty. */
static schedule_choice choose_schedule(const struct options *options, int64_t micro_batches)
{
    schedule_choice choice = {.kind = option_schedule_kind(&options->schedule),
                              .chunks = options->schedule.chunks,
                              .overlap = options->overlap,
                              .pieces = options->encoder_pieces,
                              .group = options->encoder_group,
                              .alive = options->encoder_alive,
                              .costs = options->cost ? &options->costs : NULL,
                              .node_costs = options->node_cost ? &options->node_costs : NULL};
    if (options->encoder_alive <= 0)
        choice.alive = options->encoder_alive == 0 ? ALIVE_NO_LIMIT : 0;
    if (options->schedule.word == OPTION_THREE_PHASES || choice.group > micro_batches)
        choice.group = micro_batches;
    return choice;
}

model_desc run_model_describe(const struct options *options)
{
    int64_t parts = options->micro_batches, most = (options->global_batch + parts - 1) / parts;
    int64_t count = (options->global_batch + most - 1) / most;
    return (model_desc){.hidden = options->hidden,
                        .heads = options->heads,
                        .encoder_layers = options->encoder_layers,
                        .llm_layers = options->llm_layers,
                        .llm_pattern = options->llm_pattern,
                        .tokens = caption_tokens(options->image_size),
                        .patch_values = PATCH_VALUES,
                        .words = CAPTION_WORDS,
                        .seq = options->seq,
                        .micro_batch = most,
                        .micro_batches = count,
                        .schedule = choose_schedule(options, count),
                        .seed = options->seed,
                        .bridge_dtype = options->dtype,
                        .shards = options->shards,
                        .pairs = options->pairs,
                        .recompute = options->recompute,
                        .most_images = options->most_images,
                        .balanced = options->balance,
                        .experts = options->experts,
                        .top_k = options->top_k,
                        .capacity = options->capacity};
}

topology_desc run_model_grids(const struct options *options)
{
    return (topology_desc){.encoder = options->encoder,
                           .llm = options->llm,
                           .sp = options->sp,
                           .experts = options_expert_grid(options)};
}

mimo_status run_model_check(const struct options *options, int64_t ranks)
{
    const model_desc model = run_model_describe(options);
    const topology_desc grids = run_model_grids(options);
    rank_topology sketch = {0};
    mimo_status status = topology_sketch(&sketch, ranks, &grids);
    if (status == MIMO_OK)
        status = model_check(&sketch, &model);
    topology_destroy(&sketch);
    return status;
}
