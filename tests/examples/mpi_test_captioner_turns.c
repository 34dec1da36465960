/* Samples of several pictures in a step: each picture reaches the encoder as what it is. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "captioner/training/turn_choice.h"
#include "mpi_test.h"
#include "small_run.h"

enum { IMAGES = 3, SEQ = 16, PATH_BYTES = 64 };

/* The turns of one sample are those that its place in the run has. How many follow another one than
 * the turn before. */
static int expect_turns(const step_trainer *trainer, int64_t i)
{
    const trainer_desc *desc = &trainer->desc;
    const turn_choice choice = {.items = desc->items,
                                .samples = desc->samples,
                                .least = IMAGES,
                                .most = IMAGES,
                                .side = SMALL_SIDE,
                                .seq = SEQ,
                                .seed = desc->seed};
    batch_item further[IMAGES];
    const batch_item wanted = turn_choose(further, &choice, trainer->chosen[i], i);
    const batch_item *got = &trainer->gathered[i];
    int turns = 0, others = 0;
    for (const batch_item *turn = &wanted; turn && got; turn = turn->next, got = got->next) {
        MPI_EXPECT(got->picture == turn->picture && got->name == turn->name,
                   "turn %d of sample %lld is another one", turns, (long long)i);
        others += got->next && got->next->picture != got->picture;
        turns++;
    }
    MPI_EXPECT(turns == IMAGES && !got, "sample %lld has %d turns", (long long)i, turns);
    return others;
}

/* Each picture has one colour. Every turn has a picture. */
static void expect_patches(const step_trainer *trainer, const picture_deal *deal)
{
    for (int64_t i = 0; i < deal->count; i++) {
        const batch_item *turn = &trainer->gathered[deal->own[i].sample];
        for (int64_t n = 0; n < deal->own[i].number; n++)
            turn = turn->next;
        double wanted = turn->picture[0] / 127.5 - 1;
        double got = (double)deal->patches[i * PATCH_VALUES];
        MPI_EXPECT(fabs(got - wanted) < 1e-6, "picture %lld of %lld begins with %g, not %g",
                   (long long)i, (long long)deal->count, got, wanted);
    }
}

MPI_TEST(captioner_turns, each_picture_is_its_own)
{
    small_run run = {.options = small_options(), .world = mpi_test_comm()};
    char samples[PATH_BYTES] = "/tmp/captioner-XXXXXX";
    step_result result;
    int others = 0;
    if (mpi_test_rank() == 0) {
        int fd = mkstemp(samples);
        MPI_EXPECT(fd >= 0 && close(fd) == 0, "no file %s", samples);
        MPI_EXPECT_OK(small_samples_write(samples, 20));
    }
    MPI_Bcast(samples, sizeof samples, MPI_CHAR, 0, MPI_COMM_WORLD);
    run.options.samples = samples;
    run.options.least_images = run.options.most_images = IMAGES;
    run.options.seq = SEQ;
    MPI_EXPECT_OK(small_run_build(&run));
    MPI_EXPECT_OK(train_step(&run.trainer, 0, &result));
    for (int64_t i = 0; i < run.trainer.desc.global_batch; i++)
        others += expect_turns(&run.trainer, i);
    MPI_EXPECT(others > run.trainer.desc.global_batch, "%d turns show another picture", others);
    for (int64_t g = 0; g < run.trainer.pass.groups; g++)
        expect_patches(&run.trainer, &run.trainer.pass.deals[g]);
    small_run_end(&run);
    MPI_Barrier(MPI_COMM_WORLD);
    if (mpi_test_rank() == 0)
        unlink(samples);
}
