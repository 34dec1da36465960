/* mimo-plan schedule: the schedule, three phases, the LLM alone, and what each limit would take. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan_schedule.h"

static int read_table(char **out, const char *path)
{
    size_t capacity = 0;
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    if (!file)
        return plan_fail("--csv %s: %s", path, strerror(errno));
    errno = 0;
    ssize_t length = getdelim(out, &capacity, '\0', file); /* a table has no byte 0 */
    bool failed = ferror(file) || (length < 0 && errno != 0);
    int error = errno;
    if (file != stdin)
        fclose(file);
    if (failed)
        return plan_fail("--csv %s: %s", path, strerror(error));
    if (length < 0)
        return plan_fail("--csv %s: the file is empty", path);
    return 0;
}

/* The LLM's steps of the request, with other encoder steps. */
static mimo_status make_with(mimo_schedule **out, const plan_schedule *plan, int64_t group,
                             int64_t alive)
{
    mimo_schedule_desc desc = plan->request->desc;
    desc.encoder_group = group;
    desc.encoder_alive = alive;
    return plan->table ? mimo_schedule_create_csv(out, &desc, plan->table)
                       : mimo_schedule_create(out, &desc);
}

static mimo_status report_with(mimo_schedule_report *out, const plan_schedule *plan, int64_t group,
                               int64_t alive)
{
    mimo_schedule *schedule = NULL;
    mimo_status status = make_with(&schedule, plan, group, alive);
    *out = (mimo_schedule_report)MIMO_SCHEDULE_REPORT_INIT;
    if (status == MIMO_OK)
        status = mimo_schedule_report_of(out, schedule, NULL);
    mimo_schedule_destroy(schedule);
    return status;
}

static mimo_status add_limits(plan_schedule *plan, int64_t group, int64_t least)
{
    int64_t groups = (plan->request->desc.micro_batches + group - 1) / group;
    mimo_status status = MIMO_OK;
    for (int i = 0; status == MIMO_OK && i < PLAN_LIMITS && least + i <= groups; i++) {
        mimo_schedule_report report;
        status = report_with(&report, plan, group, least + i);
        plan->limits[i] = least + i;
        plan->times[i] = report.time;
    }
    return status;
}

/* Where no limit was given: one more than the least. With the least itself, a stage waits for each
 * group. */
static mimo_status make_all(plan_schedule *plan)
{
    int64_t group = plan->request->desc.encoder_group, alive = plan->request->alive;
    mimo_status status = report_with(&plan->three_phases, plan,
                                     group > 0 ? plan->request->desc.micro_batches : 0, 0);
    if (status == MIMO_OK)
        status = report_with(&plan->llm_alone, plan, 0, 0);
    if (status == MIMO_OK && group > 0) {
        mimo_schedule_report unlimited;
        status = report_with(&unlimited, plan, group, 0);
        alive = alive < 0 ? unlimited.least_alive + 1 : alive;
        if (status == MIMO_OK)
            status = add_limits(plan, group, unlimited.least_alive);
    }
    if (status == MIMO_OK)
        status = make_with(&plan->schedule, plan, group, alive < 0 ? 0 : alive);
    plan->report = (mimo_schedule_report)MIMO_SCHEDULE_REPORT_INIT;
    if (status == MIMO_OK)
        status = mimo_schedule_report_of(&plan->report, plan->schedule, NULL);
    return status;
}

int plan_schedule_make(plan_schedule *out, const plan_schedule_request *request)
{
    *out = (plan_schedule){.request = request};
    if (request->file) {
        int status = read_table(&out->table, request->file);
        if (status != 0)
            return status;
    }
    return make_all(out) == MIMO_OK ? 0 : plan_fail_library();
}

void plan_schedule_release(plan_schedule *plan)
{
    mimo_schedule_destroy(plan->schedule);
    free(plan->table);
}
