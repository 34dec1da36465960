/* mimo-plan schedule: the schedule, three phases, the LLM alone, and what each limit would take. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "plan_schedule.h"
#include "schedule/schedule_types.h"

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

/* The LLM's steps of the request. */
static mimo_status make_llm(mimo_schedule **out, const plan_schedule *plan)
{
    mimo_schedule_desc desc = plan->request->desc;
    desc.encoder_group = 0;
    return plan->table ? mimo_schedule_create_csv(out, &desc, plan->table)
                       : mimo_schedule_create(out, &desc);
}

static mimo_status report_with(mimo_schedule_report *out, const mimo_schedule *llm, int64_t group)
{
    mimo_schedule *schedule = NULL;
    mimo_status status = mimo_schedule_variant(&schedule, llm, group, 0, NULL);
    if (status == MIMO_OK)
        status = mimo_schedule_report_alone(out, schedule, &schedule->costs);
    mimo_schedule_destroy(schedule);
    return status;
}

/* The least limits and their times. */
static mimo_status add_limits(plan_schedule *plan, const mimo_schedule *llm, int64_t group)
{
    int64_t groups = (plan->request->desc.micro_batches + group - 1) / group;
    int64_t least;
    MIMO_TRY(mimo_schedule_least_alive(&least, llm, group));
    for (int i = 0; i < PLAN_LIMITS && least + i <= groups; i++) {
        plan->limits[i] = least + i;
        MIMO_TRY(mimo_schedule_variant_time(&plan->times[i], llm, group, least + i, NULL));
    }
    return MIMO_OK;
}

/* Where no limit was given: one more than the least. With the least itself, a stage waits for each
 * group. */
static mimo_status make_all(plan_schedule *plan, const mimo_schedule *llm)
{
    int64_t group = plan->request->desc.encoder_group, alive = plan->request->alive;
    int64_t all = plan->request->desc.micro_batches;
    if (group > 0)
        MIMO_TRY(add_limits(plan, llm, group));
    alive = alive < 0 ? plan->limits[0] + 1 : alive;
    MIMO_TRY(mimo_schedule_variant(&plan->schedule, llm, group, alive, NULL));
    MIMO_TRY(mimo_schedule_report_alone(&plan->report, plan->schedule, &plan->schedule->costs));
    MIMO_TRY(report_with(&plan->llm_alone, llm, 0));
    return report_with(&plan->three_phases, llm, group > 0 ? all : 0);
}

int plan_schedule_make(plan_schedule *out, const plan_schedule_request *request)
{
    *out = (plan_schedule){.request = request};
    if (request->file) {
        int status = read_table(&out->table, request->file);
        if (status != 0)
            return status;
    }
    mimo_schedule *llm = NULL;
    mimo_status status = make_llm(&llm, out);
    if (status == MIMO_OK)
        status = make_all(out, llm);
    mimo_schedule_destroy(llm);
    return status == MIMO_OK ? 0 : plan_fail_library();
}

void plan_schedule_release(plan_schedule *plan)
{
    mimo_schedule_destroy(plan->schedule);
    free(plan->table);
}
