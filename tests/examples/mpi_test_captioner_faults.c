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
#include "captioner/training/checkpoint.h"
#include "captioner/training/memory_save.h"
#include "captioner/training/model_hashes.h"
#include "shared_folder.h"
#include "small_run.h"

enum { RANKS = 2 };

typedef struct looks {
    model_hashes hashes;
    best_state best;
    memory_save memory;
    memory_found found;
} looks;

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

static mimo_status hash(small_run *run, model_hashes *room)
{
    struct train_log_hashes hashes;
    MIMO_TRY(mimo_comm_agree(run->world, model_hashes_make(room, &run->model)));
    return model_hashes_take(&hashes, room, true);
}

static mimo_status keep_in_memory(small_run *run, looks *at)
{
    MIMO_TRY(memory_save_begin(&at->memory, run->world, &run->model, 0));
    MIMO_TRY(memory_save_take(&at->memory, 1));
    MIMO_TRY(memory_save_find(&at->found, &at->memory));
    return memory_save_restore(&at->memory, &at->found);
}

static mimo_status live(small_run *run, looks *at)
{
    step_result result;
    double loss;
    int64_t step;
    caption_accuracy accuracy;
    generated_name names[SMALL_HELD_OUT];
    const caption_data *data = &run->data;
    MIMO_TRY(small_run_build(run));
    if (run->lora.on)
        return live_with_adapters(run);
    MIMO_TRY(train_step(&run->trainer, 0, &result));
    MIMO_TRY(hash(run, &at->hashes));
    MIMO_TRY(checkpoint_save(run->options.save, &run->trainer, 1));
    MIMO_TRY(checkpoint_load(run->options.save, &run->trainer, &step));
    if (run->options.balance) /* once is enough */
        MIMO_TRY(keep_in_memory(run, at));
    MIMO_TRY(evaluate_loss(&run->model, data->held_out, SMALL_HELD_OUT, 1, &loss));
    MIMO_TRY(mimo_comm_agree(run->world, best_state_reserve(&at->best, &run->model)));
    MIMO_TRY(accuracy_measure(&accuracy, &run->model, data->held_out, SMALL_HELD_OUT));
    return generate_names(&run->model, data->held_out, SMALL_HELD_OUT, names);
}

static mimo_status live_and_end(const struct options *options, mimo_comm *world)
{
    small_run run = {.options = *options, .world = world};
    looks at = {.memory = MEMORY_SAVE_INIT};
    mimo_status status = live(&run, &at);
    model_hashes_release(&at.hashes);
    best_state_release(&at.best);
    memory_found_release(&at.found);
    memory_save_release(&at.memory);
    small_run_end(&run);
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
    char folder[SHARED_FOLDER], samples[64], saved[64], adapter[64], merged[64];
    shared_folder_make(folder);
    snprintf(samples, sizeof samples, "%s/samples", folder);
    snprintf(saved, sizeof saved, "%s/saved", folder);
    snprintf(adapter, sizeof adapter, "%s/adapter", folder);
    snprintf(merged, sizeof merged, "%s/merged", folder);
    if (mpi_test_rank() == 0)
        MPI_EXPECT_OK(small_samples_write(samples, 20));
    struct options options = small_options();
    options.samples = samples;
    options.save = saved;
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
