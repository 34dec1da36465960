/* A schedule in each format of mimo_schedule_print, which looks at the stream afterwards; with
 * times, the schedule as planned, or a run. */
#ifndef MIMO_SCHEDULE_FORMATS_H
#define MIMO_SCHEDULE_FORMATS_H

#include "schedule/schedule_types.h"

/* When each step of each stage begins and ends. Borrowed. */
typedef struct mimo_timeline {
    const mimo_schedule *schedule;
    const int64_t *const *begin, *const *end;
    const char *unit; /* of the times; NULL: none */
    bool measured;    /* and what others would have taken follows from costs that were, too */
} mimo_timeline;

void mimo_schedule_write_csv(FILE *stream, const mimo_schedule *schedule);
/* `report` has the times that the title says. */
void mimo_schedule_write_svg(FILE *stream, const mimo_timeline *timeline,
                             const mimo_schedule_report *report);
void mimo_schedule_write_trace(FILE *stream, const mimo_timeline *timeline);

/* Whether a unit of times, or NULL, can be written: MIMO_ERR_ARGUMENT, with the call in front. */
mimo_status mimo_check_unit(const char *call, const char *unit);

/* One of these two, with the times of the schedule's costs (schedule_run.c). */
mimo_status mimo_schedule_write_plan(FILE *stream, const mimo_schedule *schedule,
                                     mimo_schedule_format format);

#endif
