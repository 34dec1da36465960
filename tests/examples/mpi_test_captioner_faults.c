/* A small captioner run in which each allocation of one rank fails in turn. Every rank ends with
 * that rank's error, and no rank waits for another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "mpi_test.h"

#include "captioner/captions/accuracy.h"
#include "captioner/captions/evaluate.h"
#include "captioner/captions/generate.h"
#include "captioner/training/adapter_store.h"
#include "captioner/training/best_state.h"
#include "captioner/training/caption_data.h"
#include "captioner/training/checkpoint.h"
#include "captioner/training/model_hashes.h"
#include "captioner/training/options_compare.h"
#include "captioner/training/train_step.h"

enum { RANKS = 2, SIDE = 8, SAMPLES = 9, HELD_OUT = 3, LENGTH = 3, SEQ = 4 };

typedef struct small_run {
    struct options options;
    mimo_comm *world;
    rank_topology topology;
    lora_setup lora;
    caption_data data;
    bridged_model model;
    step_trainer trainer;
    model_hashes hashes;
    best_state best;
} small_run;

/* On rank 0: pictures of one colour each, named by a letter. */
static void write_samples(const char *path)
{
    struct samples samples;
    MPI_EXPECT_OK(samples_create(&samples, SAMPLES, SIDE));
    for (int i = 0; i < SAMPLES; i++) {
        memset(sample_name(&samples, i), 'a' + i, LENGTH);
        memset(sample_image(&samples, i), 20 * i, SIDE * SIDE * 3);
        samples.name_length[i] = LENGTH;
        samples.held_out[i] = i < HELD_OUT;
    }
    MPI_EXPECT_OK(sample_file_write(path, &samples));
    samples_release(&samples);
}

static mimo_status build(small_run *run)
{
    const struct options *options = &run->options;
    mimo_comm *world = run->world;
    model_desc model = {.hidden = 8,
                        .heads = 2,
                        .encoder_layers = options->encoder_layers,
                        .llm_layers = options->llm_layers,
                        .experts = options->experts,
                        .top_k = options->top_k,
                        .side = SIDE,
                        .seq = SEQ,
                        .micro_batch = 3,
                        .micro_batches = 2,
                        .most_images = options->most_images,
                        .balanced = options->balance,
                        .seed = 1,
                        .bridge_dtype = MIMO_F32};
    MIMO_TRY(options_compare(options, world));
    MIMO_TRY(mimo_comm_agree(world, lora_setup_make(&run->lora, options)));
    model.adapters = run->lora.on ? &run->lora.choice : NULL;
    const topology_desc grids = {options->encoder, options->llm, options->sp,
                                 options_expert_grid(options)};
    MIMO_TRY(topology_create(&run->topology, world, &grids));
    MIMO_TRY(caption_data_load(&run->data, world, options));
    MIMO_TRY(model_create(&run->model, &run->topology, &model));
    trainer_desc trainer = {.items = run->data.training,
                            .samples = run->data.training_count,
                            .steps = 1,
                            .global_batch = 5,
                            .seed = 1,
                            .lr = 0.01,
                            .adapters = run->lora.config};
    return trainer_create(&run->trainer, &run->model, &trainer);
}

/* Everything of a run with adapters that one without them has not. */
static mimo_status live_with_adapters(small_run *run)
{
    const struct options *options = &run->options;
    MIMO_TRY(checkpoint_load_base(options->base, &run->trainer));
    MIMO_TRY(adapter_store_save(options->adapter_out, &run->lora, &run->model));
    MIMO_TRY(adapter_store_load(options->adapter_out, &run->lora, &run->model));
    mimo_status status = checkpoint_save_merged(options->merge, &run->trainer, 1);
    const nn_params *stores[] = {run->model.encoder.params, run->model.language.params};
    for (int s = 0; s < 2; s++)
        MPI_EXPECT(nn_params_check_unmerged(stores[s], "saved") == MIMO_OK, "adapters stay merged");
    return status;
}

static mimo_status hash(small_run *run)
{
    struct train_log_hashes hashes;
    MIMO_TRY(mimo_comm_agree(run->world, model_hashes_make(&run->hashes, &run->model)));
    return model_hashes_take(&hashes, &run->hashes, true);
}

static mimo_status live(small_run *run)
{
    step_result result;
    double loss;
    int64_t step;
    caption_accuracy accuracy;
    generated_name names[HELD_OUT];
    const caption_data *data = &run->data;
    MIMO_TRY(build(run));
    if (run->lora.on)
        return live_with_adapters(run);
    MIMO_TRY(train_step(&run->trainer, 0, &result));
    MIMO_TRY(hash(run));
    MIMO_TRY(checkpoint_save(run->options.save, &run->trainer, 1));
    MIMO_TRY(checkpoint_load(run->options.save, &run->trainer, &step));
    MIMO_TRY(evaluate_loss(&run->model, data->held_out, HELD_OUT, 1, &loss));
    MIMO_TRY(mimo_comm_agree(run->world, best_state_reserve(&run->best, &run->model)));
    MIMO_TRY(accuracy_measure(&accuracy, &run->model, data->held_out, HELD_OUT));
    return generate_names(&run->model, data->held_out, HELD_OUT, names);
}

static mimo_status live_and_end(const struct options *options, mimo_comm *world)
{
    small_run run = {.options = *options, .world = world};
    mimo_status status = live(&run);
    model_hashes_release(&run.hashes);
    best_state_release(&run.best);
    trainer_destroy(&run.trainer);
    model_destroy(&run.model);
    topology_destroy(&run.topology);
    lora_setup_release(&run.lora);
    caption_data_release(&run.data);
    return status;
}

/* False where the run has fewer than n allocations on that rank. The sentence numbers the ranks of
 * the group in which the allocation failed, not those of the world. */
static bool nth_fails(const struct options *options, int failing, int n)
{
    bool here = mpi_test_rank() == failing;
    if (here)
        mimo_fail_allocation(n);
    mimo_status status = live_and_end(options, mpi_test_comm());
    int failed = here && mimo_fail_allocation(0) == 0;
    MPI_Bcast(&failed, 1, MPI_INT, failing, MPI_COMM_WORLD);
    MPI_EXPECT(status == (failed ? MIMO_ERR_MEMORY : MIMO_OK), "allocation %d: %s (%s)", n,
               mimo_status_name(status), mimo_last_error());
    if (failed)
        MPI_EXPECT_SENTENCE(": out of memory allocating ");
    return failed;
}

/* Each allocation, or of `stride` one. */
static void each_fails(const struct options *options, int stride)
{
    for (int failing = 0; failing < RANKS; failing++) {
        int n = 1 + failing * (stride / 2);
        while (nth_fails(options, failing, n))
            n += stride;
        MPI_EXPECT(n > 100, "only %d allocations", n - 1);
    }
}

/* The same in a run whose ranks are two groups of experts: the other rank may be in another call,
 * which the failing one ends. *aborted counts these. */
static bool nth_fails_in_a_group(int *aborted, const struct options *options, int failing, int n)
{
    mimo_comm *world;
    mimo_comm_desc desc = MIMO_COMM_DESC_INIT;
    desc.deadline = 60000;
    MPI_EXPECT_OK(mimo_comm_create_mpi(&world, MPI_COMM_WORLD, &desc));
    if (mpi_test_rank() == failing)
        mimo_fail_allocation(n);
    mimo_status status = live_and_end(options, world);
    mimo_fail_allocation(0);
    mimo_comm_destroy(world);
    int worst = status;
    MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    bool failed = worst != MIMO_OK;
    MPI_EXPECT(!failed || status == MIMO_ERR_MEMORY || status == MIMO_ERR_ABORTED,
               "allocation %d: %s (%s)", n, mimo_status_name(status), mimo_last_error());
    if (failed)
        MPI_EXPECT_SENTENCE(": out of memory allocating ");
    *aborted += worst == MIMO_ERR_ABORTED;
    return failed;
}

/* Each rank has both experts. */
static void with_copies_of_experts(const struct options *experts)
{
    enum { STRIDE = 47 };
    struct options options = *experts;
    int aborted = 0, n = 1;
    options.expert_grid = "ep=1";
    while (nth_fails_in_a_group(&aborted, &options, n % RANKS, n))
        n += STRIDE;
    MPI_EXPECT(aborted > 0, "each call is one of both ranks");
}

/* Experts on both ranks. They take many allocations, so some of these stand for all. */
static void with_experts(const struct options *dense)
{
    struct options options = *dense;
    options.lora_rank = 0;
    options.llm_layers = 2;
    options.experts = 2;
    options.top_k = 1;
    options.expert_grid = "ep=2";
    each_fails(&options, 11);
    with_copies_of_experts(&options);
}

static void remove_adapter(const char *folder)
{
    static const char *const names[] = {"adapter_config.json", "adapter_model.safetensors"};
    char path[128];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        MPI_EXPECT(remove(path) == 0, "%s is missing", path);
    }
    MPI_EXPECT(rmdir(folder) == 0, "files were left in %s", folder);
}

MPI_TEST(captioner_faults, no_memory_for_a_run)
{
    (void)mpi_test_comm(); /* made before any allocation is to fail */
    char folder[] = "/tmp/captioner-XXXXXX", samples[64], saved[64], adapter[64], merged[64];
    if (mpi_test_rank() == 0)
        MPI_EXPECT(mkdtemp(folder), "no folder %s", folder);
    MPI_Bcast(folder, sizeof folder, MPI_CHAR, 0, MPI_COMM_WORLD);
    snprintf(samples, sizeof samples, "%s/samples", folder);
    snprintf(saved, sizeof saved, "%s/saved", folder);
    snprintf(adapter, sizeof adapter, "%s/adapter", folder);
    snprintf(merged, sizeof merged, "%s/merged", folder);
    if (mpi_test_rank() == 0)
        write_samples(samples);
    struct options options = {.encoder = "tp=2,dp=1",
                              .llm = "tp=1,cp=2,dp=1",
                              .image_size = SIDE,
                              .seq = SEQ,
                              .encoder_layers = 1,
                              .llm_layers = 1,
                              .samples = samples,
                              .save = saved};
    options.most_images = 2; /* other runs have no lists of pictures */
    options.balance = true;
    each_fails(&options, 1);
    options.most_images = 0;
    options.balance = false;
    MPI_EXPECT_OK(live_and_end(&options, mpi_test_comm()));
    options.lora_rank = 2;
    options.base = saved;
    options.adapter_out = adapter;
    options.merge = merged;
    each_fails(&options, 1);
    MPI_EXPECT_OK(live_and_end(&options, mpi_test_comm()));
    with_experts(&options);
    if (mpi_test_rank() == 0) {
        remove(samples);
        remove(saved);
        remove_adapter(adapter);
        remove(merged);
        MPI_EXPECT(rmdir(folder) == 0, "a run left files in %s", folder);
    }
}
