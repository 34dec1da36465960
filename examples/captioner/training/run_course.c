#include "captioner/training/run_course.h"

#include <inttypes.h>
#include <stdio.h>

#include "captioner/training/checkpoint.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"

enum { SOURCE = 512 };

void run_course_release(run_course *course)
{
    memory_release(course->losses);
    memory_release(course->held_out);
    memory_save_release(&course->memory);
    *course = (run_course)RUN_COURSE_INIT;
}

mimo_status run_course_reserve(run_course *course, int64_t first_step, int64_t count)
{
    if (course->losses)
        return MIMO_OK;
    TRY(memory_reserve(&course->held_out, count, sizeof *course->held_out));
    TRY(memory_reserve(&course->losses, count, sizeof *course->losses));
    course->first_step = first_step;
    return MIMO_OK;
}

/* A rank that died in the last agreement of a save may have left the others of two minds. */
static mimo_status agree_saved(run_course *course, mimo_comm *world)
{
    return mimo_comm_allreduce(world, &course->saved, 1, MIMO_I64, MIMO_MAX, NULL);
}

static void say(const run_course *course, int64_t step, const char *source, mimo_comm *world)
{
    if (mimo_comm_rank(world) == 0)
        fprintf(stderr,
                "captioner: generation %" PRId64 ": %d ranks go on from step %" PRId64 ", %s\n",
                course->generation, mimo_comm_size(world), step, source);
}

static mimo_status go_back(run_course *course, int64_t *step, const memory_found *found,
                           const struct options *options, step_trainer *trainer)
{
    mimo_comm *world = trainer->model->topology->world;
    char source[SOURCE];
    if (found->step < 0 && course->saved < 0) {
        say(course, *step, "as nothing was saved yet", world);
        return MIMO_OK;
    }
    if (found->step >= course->saved) {
        TRY(memory_save_restore(&course->memory, found));
        *step = found->step;
        say(course, *step, "which is in memory", world);
        return MIMO_OK;
    }
    TRY(checkpoint_load(options->save, trainer, step));
    snprintf(source, sizeof source, "which is in %s", options->save);
    say(course, *step, source, world);
    return MIMO_OK;
}

mimo_status run_course_recover(run_course *course, int64_t *step, const struct options *options,
                               step_trainer *trainer, mimo_comm *world)
{
    memory_found found = {.step = -1};
    TRY(agree_saved(course, world));
    mimo_status status = MIMO_OK;
    if (options->save_memory > 0)
        status = memory_save_find(&found, &course->memory);
    if (status == MIMO_OK)
        status = go_back(course, step, &found, options, trainer);
    memory_found_release(&found);
    return status;
}
