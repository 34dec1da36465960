#include "small_run.h"

#include <string.h>

#include "train/support/train_support.h"
#include "captioner/training/options_compare.h"

enum { NAME = 3 };

struct options small_options(void)
{
    return (struct options){.encoder = "tp=2,dp=1",
                            .llm = "tp=1,cp=2,dp=1",
                            .image_size = SMALL_SIDE,
                            .seq = SMALL_SEQ,
                            .encoder_layers = 1,
                            .llm_layers = 1};
}

mimo_status small_samples_write(const char *path, int shade)
{
    struct samples samples;
    TRY(samples_create(&samples, SMALL_SAMPLES, SMALL_SIDE));
    for (int i = 0; i < SMALL_SAMPLES; i++) {
        memset(sample_name(&samples, i), 'a' + i, NAME);
        memset(sample_image(&samples, i), shade * i, SMALL_SIDE * SMALL_SIDE * 3);
        samples.name_length[i] = NAME;
        samples.held_out[i] = i < SMALL_HELD_OUT;
    }
    mimo_status status = sample_file_write(path, &samples);
    samples_release(&samples);
    return status;
}

mimo_status small_run_build(small_run *run)
{
    const struct options *options = &run->options;
    mimo_comm *world = run->world;
    model_desc model = {.hidden = 8,
                        .heads = 2,
                        .encoder_layers = options->encoder_layers,
                        .llm_layers = options->llm_layers,
                        .experts = options->experts,
                        .top_k = options->top_k,
                        .tokens = caption_tokens(SMALL_SIDE),
                        .patch_values = PATCH_VALUES,
                        .words = CAPTION_WORDS,
                        .seq = options->seq,
                        .micro_batch = 3,
                        .micro_batches = 2,
                        .most_images = options->most_images,
                        .balanced = options->balance,
                        .seed = 1,
                        .bridge_dtype = MIMO_F32};
    TRY(options_compare(options, world));
    TRY(lora_setup_make(&run->lora, options, world));
    model.adapters = run->lora.on ? &run->lora.choice : NULL;
    const topology_desc grids = {.encoder = options->encoder,
                                 .llm = options->llm,
                                 .sp = options->sp,
                                 .experts = options_expert_grid(options)};
    TRY(topology_create(&run->topology, world, &grids));
    TRY(caption_data_load(&run->data, world, options));
    TRY(model_create(&run->model, &run->topology, &model));
    trainer_desc trainer = {.items = run->data.training,
                            .samples = run->data.training_count,
                            .steps = 1,
                            .global_batch = 5,
                            .seed = 1,
                            .lr = 0.01,
                            .least_images = options->least_images,
                            .adapters = run->lora.config};
    return trainer_create(&run->trainer, &run->model, &trainer);
}

void small_run_end(small_run *run)
{
    trainer_destroy(&run->trainer);
    model_destroy(&run->model);
    topology_destroy(&run->topology);
    lora_setup_release(&run->lora);
    caption_data_release(&run->data);
}
