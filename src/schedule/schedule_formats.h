/* A schedule in each format of mimo_schedule_print, which looks at the stream afterwards. */
#ifndef MIMO_SCHEDULE_FORMATS_H
#define MIMO_SCHEDULE_FORMATS_H

#include "schedule/schedule_types.h"

void mimo_schedule_write_csv(FILE *stream, const mimo_schedule *schedule);
mimo_status mimo_schedule_write_svg(FILE *stream, const mimo_schedule *schedule);
mimo_status mimo_schedule_write_trace(FILE *stream, const mimo_schedule *schedule);

#endif
