/* Which schedule a run takes: what the command line says of it, and the schedules that follow. */
#ifndef TRAIN_SCHEDULE_CHOICE_H
#define TRAIN_SCHEDULE_CHOICE_H

#include <mimo/schedule.h>

enum { ALIVE_NO_LIMIT = -1 };

/** Zeroed: 1F1B, each micro-batch a group of its own, and as few groups at once as do not make a
 *  stage wait for each of them. */
typedef struct schedule_choice {
    mimo_schedule_kind kind; /* of the LLM's steps in training */
    int64_t chunks;          /* V of a stage; 0 counts as 1 */
    int64_t group;           /* G; 0 counts as 1; more than there are micro-batches: all of them */
    bool overlap;            /* a forward beside the backward of another micro-batch, as one step */
    int64_t pieces;          /* overlap: of the encoder's steps; 0: they are whole */
    int64_t alive;           /* L; 0: the least that the list allows, with stages one more */
    const mimo_step_costs *costs;      /* borrowed; NULL: those of the library */
    const mimo_node_costs *node_costs; /* overlap: likewise */
} schedule_choice;

/** What a schedule is made for. */
typedef struct schedule_need {
    int64_t stages, micro_batches;
    bool backward;
    bool frozen;   /* nothing of the encoder is trained */
    int64_t slots; /* the most encoder groups at once; 0: as chosen */
} schedule_need;

/** Make the schedule; *out is the caller's. *sizes gets its descriptor, with the limit that was
 *  taken. Pure, local. Errors: those of mimo_schedule_create. */
mimo_status schedule_choose(mimo_schedule **out, mimo_schedule_desc *sizes,
                            const schedule_choice *choice, const schedule_need *need);

#endif
