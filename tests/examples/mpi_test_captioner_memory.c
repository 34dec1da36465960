/* Copies of a run's state in memory: ranks that are left, on other grids, put the very model
 * together of which a checkpoint was written before. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "captioner/training/checkpoint.h"
#include "captioner/training/memory_save.h"
#include "mpi_test.h"
#include "shared_folder.h"
#include "small_run.h"

enum { PATH_BYTES = 128, LAST = 2 };

typedef struct memory_bed {
    char folder[SHARED_FOLDER], samples[PATH_BYTES], before[2][PATH_BYTES], after[PATH_BYTES];
    memory_save memory;
} memory_bed;

static void begin(memory_bed *bed)
{
    *bed = (memory_bed){.memory = MEMORY_SAVE_INIT};
    shared_folder_make(bed->folder);
    snprintf(bed->samples, PATH_BYTES, "%s/samples", bed->folder);
    snprintf(bed->before[0], PATH_BYTES, "%s/before-1", bed->folder);
    snprintf(bed->before[1], PATH_BYTES, "%s/before-2", bed->folder);
    snprintf(bed->after, PATH_BYTES, "%s/after", bed->folder);
    if (mpi_test_rank() == 0)
        MPI_EXPECT_OK(small_samples_write(bed->samples, 20));
    MPI_Barrier(MPI_COMM_WORLD);
}

static void end(memory_bed *bed)
{
    memory_save_release(&bed->memory);
    shared_folder_remove(bed->folder);
}

/* How four ranks train, and who is left of them on which grids. */
typedef struct memory_case {
    const char *encoder, *llm, *experts;
    const char *left; /* a letter a rank: 'x' is gone, 't' died while step 2 was kept */
    const char *left_encoder, *left_llm, *left_experts;
    int64_t step; /* that is found; -1: none */
} memory_case;

static small_run describe(const memory_bed *bed, const char *encoder, const char *llm,
                          const char *experts)
{
    small_run run = {.options = small_options()};
    run.options.encoder = encoder;
    run.options.llm = llm;
    run.options.llm_layers = 2;
    run.options.samples = bed->samples;
    run.options.experts = experts ? 4 : 0;
    run.options.top_k = experts ? 2 : 0;
    run.options.expert_grid = experts;
    return run;
}

/* Two steps, each kept and written. */
static void train(memory_bed *bed, const memory_case *at)
{
    small_run run = describe(bed, at->encoder, at->llm, at->experts);
    step_result result;
    run.world = mpi_test_comm();
    MPI_EXPECT_OK(small_run_build(&run));
    MPI_EXPECT_OK(memory_save_begin(&bed->memory, run.world, &run.model, 0));
    for (int64_t step = 0; step < LAST; step++) {
        MPI_EXPECT_OK(train_step(&run.trainer, step, &result));
        MPI_EXPECT_OK(memory_save_take(&bed->memory, step + 1));
        MPI_EXPECT_OK(checkpoint_save(bed->before[step], &run.trainer, step + 1));
    }
    memory_save_pause(&bed->memory);
    small_run_end(&run);
}

static bool same_files(const char *one, const char *other)
{
    char text[3 * PATH_BYTES];
    snprintf(text, sizeof text, "cmp %s %s", one, other);
    return system(text) == 0;
}

static bool has_slot(const memory_save *memory, int64_t generation, int64_t step)
{
    for (int i = 0; i < MEMORY_SLOTS; i++)
        if (memory->slots[i].generation == generation && memory->slots[i].step == step)
            return true;
    return false;
}

/* The next state takes no room of the one that was found, which may be the only whole one. */
static void keep_what_was_found(memory_save *memory, int64_t step)
{
    bool had = has_slot(memory, 0, step);
    MPI_EXPECT_OK(memory_save_take(memory, step));
    MPI_EXPECT(has_slot(memory, 1, step), "step %d was not kept again", (int)step);
    MPI_EXPECT(has_slot(memory, 0, step) == had, "the state of step %d is gone", (int)step);
}

/* Those that are left, on their grids. The model has its initial values: nothing is right by
 * chance. */
static void go_on(memory_bed *bed, const memory_case *at, mimo_comm *world)
{
    small_run run = describe(bed, at->left_encoder, at->left_llm, at->left_experts);
    memory_found found = {0};
    run.world = world;
    MPI_EXPECT_OK(small_run_build(&run));
    MPI_EXPECT_OK(memory_save_begin(&bed->memory, world, &run.model, 1));
    MPI_EXPECT_OK(memory_save_find(&found, &bed->memory));
    MPI_EXPECT(found.step == at->step, "%s of %s: step %d is found, not %d", at->left, at->llm,
               (int)found.step, (int)at->step);
    if (found.step > 0) {
        MPI_EXPECT_OK(memory_save_restore(&bed->memory, &found));
        MPI_EXPECT_OK(checkpoint_save(bed->after, &run.trainer, found.step));
        if (mimo_comm_rank(world) == 0)
            MPI_EXPECT(same_files(bed->after, bed->before[found.step - 1]),
                       "%s of %s is another model", at->left, at->llm);
        keep_what_was_found(&bed->memory, found.step);
    }
    memory_found_release(&found);
    memory_save_pause(&bed->memory);
    small_run_end(&run);
}

/* The slot of step 2 is one that was being written. */
static void forget_last(memory_save *memory)
{
    for (int i = 0; i < MEMORY_SLOTS; i++)
        if (memory->slots[i].step == LAST)
            memory->slots[i].step = -1;
}

static void lose(const memory_case *at)
{
    memory_bed bed;
    mimo_comm *world;
    char own = at->left[mpi_test_rank()];
    begin(&bed);
    train(&bed, at);
    if (own == 't')
        forget_last(&bed.memory);
    MPI_EXPECT_OK(mimo_comm_split(&world, mpi_test_comm(), own == 'x' ? -1 : 0, 0));
    if (world)
        go_on(&bed, at, world);
    mimo_comm_destroy(world);
    end(&bed);
}

/* Ranks r and r + 2 keep copies for each other. */
static const memory_case cases[] = {
    {"tp=2,dp=2", "tp=2,cp=2,dp=1", NULL, "...x", "tp=1,dp=3", "tp=1,cp=1,dp=3", NULL, 2},
    {"tp=2,dp=2", "tp=2,cp=1,dp=2", NULL, "x.x.", "tp=1,dp=2", "tp=1,cp=1,dp=2", NULL, -1},
    {"tp=1,dp=4", "tp=1,cp=1,dp=4", NULL, "xx.x", "tp=1,dp=1", "tp=1,cp=1,dp=1", NULL, 2},
    {"tp=1,dp=4", "tp=1,cp=1,dp=2,pp=2", NULL, "..xx", "tp=2,dp=1", "tp=2,cp=1,dp=1", NULL, 2},
    {"tp=1,dp=4", "tp=1,cp=1,dp=2,pp=2", NULL, "x.x.", "tp=1,dp=2", "tp=1,cp=1,dp=2", NULL, 2},
    {"tp=2,dp=2", "tp=2,cp=1,dp=1,pp=2", NULL, "x...", "tp=1,dp=3", "tp=1,cp=1,dp=3", NULL, 2},
    {"tp=2,dp=2", "tp=2,cp=1,dp=1,pp=2", NULL, "x.t.", "tp=1,dp=3", "tp=1,cp=1,dp=3", NULL, 1},
    {"tp=2,dp=2", "tp=2,cp=1,dp=1,pp=2", NULL, "x.x.", "tp=1,dp=2", "tp=1,cp=1,dp=2", NULL, -1},
    {"tp=1,dp=4", "tp=1,cp=1,dp=4", "ep=4", ".x..", "tp=1,dp=3", "tp=1,cp=1,dp=3", "ep=1", 2},
    {"tp=1,dp=4", "tp=1,cp=1,dp=4", "ep=4", ".x.x", "tp=1,dp=2", "tp=1,cp=1,dp=2", "ep=2", -1},
};

MPI_TEST(captioner_memory, ranks_that_are_left)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        lose(&cases[i]);
}
