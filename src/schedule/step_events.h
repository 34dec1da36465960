/* What has happened while all lists of a schedule are walked at once, and what a step waits for.
 * One place says so for the rule that puts encoder steps, for the check and for the times. */
#ifndef MIMO_STEP_EVENTS_H
#define MIMO_STEP_EVENTS_H

#include "schedule/schedule_types.h"

enum { MIMO_NOT_YET = -1 };

typedef struct mimo_step_events {
    const mimo_schedule *schedule;
    const mimo_step_costs *costs;
    int64_t *forward, *gradient; /* [chunk of the model * M + micro-batch]: when it was there, or
                                    MIMO_NOT_YET */
    int64_t *rows, *sums;        /* [group]: when BF, BB had brought their rows to all */
} mimo_step_events;

/* `schedule` and `costs` are borrowed. */
mimo_status mimo_step_events_open(mimo_step_events *out, const mimo_schedule *schedule,
                                  const mimo_step_costs *costs);
void mimo_step_events_close(mimo_step_events *events);

/* When everything that a step of `stage` waits for is there, or MIMO_NOT_YET. */
int64_t mimo_step_ready(const mimo_step_events *events, int64_t stage,
                        const mimo_schedule_step *step);

/* How long it takes. 0 for calls. */
int64_t mimo_step_duration(const mimo_step_events *events, int64_t stage,
                           const mimo_schedule_step *step);

/* Note that an LLM step has ended. */
void mimo_step_ended(mimo_step_events *events, int64_t stage, const mimo_schedule_step *step,
                     int64_t end);

#endif
