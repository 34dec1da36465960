/*
 * What a run keeps over its generations. A generation is the run of one set of ranks: grids, model,
 * steps. Where ranks of it die, those that are left begin another one (survival/survival.h), which
 * makes all of that again and goes back to the newest state that is left.
 */
#ifndef CAPTIONER_RUN_COURSE_H
#define CAPTIONER_RUN_COURSE_H

#include "captioner/training/memory_save.h"
#include "captioner/training/options.h"
#include "captioner/training/train_step.h"

typedef struct run_course {
    int64_t generation; /* 0: the first */
    int64_t saved;      /* after which step the run wrote --save last; -1: not yet */
    int64_t first_step; /* steps taken before the run: those of losses[0] */
    int64_t from;       /* steps taken before the generation, as far as it came */
    double *losses;     /* of each step of the run, for the curve; NULL: not begun yet */
    double *held_out;   /* the same of held-out samples; NAN after steps without a look at them */
    memory_save memory; /* of --save-memory */
} run_course;

#define RUN_COURSE_INIT                         \
    {                                           \
        .saved = -1, .memory = MEMORY_SAVE_INIT \
    }

void run_course_release(run_course *course);

/** Room for the losses of a run that has `count` steps to take after `first_step`. Local. Once:
 *  later generations go on in it. MIMO_ERR_MEMORY. */
mimo_status run_course_reserve(run_course *course, int64_t first_step, int64_t count);

/** In a later generation, put the model back to the newest state that is left: of memory, or of the
 *  checkpoint that the run wrote; *step is its. Where nothing was saved yet both stay as they are:
 *  the run starts again. Rank 0 of `world` says which. Collective. MIMO_ERR_MEMORY, MIMO_ERR_COMM,
 *  and the errors of checkpoint_load. */
mimo_status run_course_recover(run_course *course, int64_t *step, const struct options *options,
                               step_trainer *trainer, mimo_comm *world);

#endif
