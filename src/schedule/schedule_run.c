/* Timelines: of a schedule as planned, and of a run. */
#include "schedule/schedule_formats.h"
#include "schedule/schedule_walk.h"

#include <inttypes.h>
#include <string.h>

#include "core/check.h"
#include "core/descriptor.h"

MIMO_DEFINE_INIT(mimo_schedule_run, MIMO_SCHEDULE_RUN_INIT)

static void write_timeline(FILE *stream, const mimo_timeline *line, mimo_schedule_format format,
                           const mimo_schedule_report *report)
{
    if (format == MIMO_SCHEDULE_SVG)
        mimo_schedule_write_svg(stream, line, report);
    else
        mimo_schedule_write_trace(stream, line);
}

mimo_status mimo_schedule_write_plan(FILE *stream, const mimo_schedule *schedule,
                                     mimo_schedule_format format)
{
    mimo_schedule_walk walk;
    mimo_schedule_report report = MIMO_SCHEDULE_REPORT_INIT;
    MIMO_TRY(mimo_schedule_report_of(&report, schedule, NULL));
    MIMO_TRY(mimo_schedule_walk_open(&walk, schedule, &schedule->costs));
    const mimo_timeline line = {schedule, (const int64_t *const *)walk.begin,
                                (const int64_t *const *)walk.end, NULL, false};
    write_timeline(stream, &line, format, &report);
    mimo_schedule_walk_close(&walk);
    return MIMO_OK;
}

/* -------------------------------------------- runs ------------------------------------------- */

static mimo_status check_step(const mimo_timeline *line, int64_t stage, int64_t i)
{
    int64_t begin = line->begin[stage][i], end = line->end[stage][i];
    MIMO_CHECK(begin >= 0 && end >= begin, MIMO_ERR_ARGUMENT,
               "mimo_schedule_print_run: stage %" PRId64 ": %s from %" PRId64 " to %" PRId64, stage,
               mimo_step_name_of(line->schedule, &line->schedule->lists[stage].steps[i]).text,
               begin, end);
    return MIMO_OK;
}

/* The time that passed, and of it what the stages did not work. */
static mimo_status time_run(mimo_schedule_report *report, const mimo_timeline *line)
{
    const mimo_schedule *schedule = line->schedule;
    int64_t pp = schedule->desc.stages, worked = 0;
    report->time = 0;
    for (int64_t p = 0; p < pp; p++)
        for (int64_t i = 0; i < schedule->lists[p].count; i++) {
            MIMO_TRY(check_step(line, p, i));
            if (line->end[p][i] > report->time)
                report->time = line->end[p][i];
            if (!mimo_step_is_call(schedule->lists[p].steps[i].kind))
                worked += line->end[p][i] - line->begin[p][i];
        }
    report->idle = pp * report->time > worked ? pp * report->time - worked : 0;
    return MIMO_OK;
}

mimo_status mimo_check_unit(const char *call, const char *unit)
{
    enum { MOST_LETTERS = 15 };
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t length = unit ? strnlen(unit, MOST_LETTERS + 1) : 0;
    MIMO_CHECK(!unit || (length > 0 && length <= MOST_LETTERS && strspn(unit, letters) == length),
               MIMO_ERR_ARGUMENT, "%s: unit '%.16s' is not 1 to %d letters", call, unit,
               MOST_LETTERS);
    return MIMO_OK;
}

mimo_status mimo_schedule_print_run(FILE *stream, const mimo_schedule *schedule,
                                    mimo_schedule_format format, const mimo_schedule_run *run)
{
    mimo_schedule_report report = MIMO_SCHEDULE_REPORT_INIT;
    mimo_schedule_run own = MIMO_SCHEDULE_RUN_INIT;
    MIMO_CHECK(schedule && stream && run, MIMO_ERR_ARGUMENT, "mimo_schedule_print_run: %s is NULL",
               !schedule ? "schedule" : (stream ? "run" : "stream"));
    MIMO_TRY(mimo_read_descriptor(&own, sizeof own, run, "mimo_schedule_run"));
    MIMO_CHECK(own.begin && own.end, MIMO_ERR_ARGUMENT, "mimo_schedule_print_run: %s is NULL",
               own.begin ? "end" : "begin");
    MIMO_CHECK(format == MIMO_SCHEDULE_SVG || format == MIMO_SCHEDULE_TRACE, MIMO_ERR_ARGUMENT,
               "mimo_schedule_print_run: format %d has no times", (int)format);
    MIMO_TRY(mimo_check_unit("mimo_schedule_print_run", own.unit));
    const mimo_timeline line = {schedule, own.begin, own.end, own.unit, own.costs != NULL};
    MIMO_TRY(mimo_schedule_report_of(&report, schedule, own.costs));
    MIMO_TRY(time_run(&report, &line));
    write_timeline(stream, &line, format, &report);
    bool whole = fflush(stream) == 0 && !ferror(stream);
    MIMO_CHECK(whole, MIMO_ERR_IO, "mimo_schedule_print_run: the stream takes no more");
    return MIMO_OK;
}
