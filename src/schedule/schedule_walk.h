/* All lists of a schedule walked at once, with the real waits: each stage begins each step as soon
 * as it may. */
#ifndef MIMO_SCHEDULE_WALK_H
#define MIMO_SCHEDULE_WALK_H

#include "schedule/stage_queue.h"
#include "schedule/step_events.h"

typedef struct mimo_schedule_walk {
    mimo_step_events events;
    int64_t *at;          /* at[pp]: the next step of each stage */
    int64_t *clock;       /* clock[pp]: when it could begin */
    int64_t **begin;      /* begin[pp][steps] */
    int64_t **end;        /* end[pp][steps] */
    int64_t *begun[2];    /* begun[BF, BB][group]: stages that have begun the call */
    int64_t *latest[2];   /* the latest of these begins */
    int64_t *callers[2];  /* callers[..][group * pp + stage]: not 0 where it has begun it */
    int64_t bridge;       /* when the bridge's last call ended */
    mimo_stage_set ready; /* stages whose next step may have what it waits for */
} mimo_schedule_walk;

/* Walk as far as it goes. `schedule` and `costs` are borrowed. */
mimo_status mimo_schedule_walk_open(mimo_schedule_walk *out, const mimo_schedule *schedule,
                                    const mimo_step_costs *costs);
void mimo_schedule_walk_close(mimo_schedule_walk *walk);

/* A stage that has steps left, or -1. */
int64_t mimo_schedule_walk_stuck(const mimo_schedule_walk *walk);

/* Until the last stage has ended. */
int64_t mimo_schedule_walk_time(const mimo_schedule_walk *walk);

#endif
