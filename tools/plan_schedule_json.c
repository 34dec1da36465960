/* mimo-plan schedule --json. It prints piece by piece: a schedule may have a million steps. No text
 * here needs an escape. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan_schedule.h"

static const char *const kind_names[MIMO_STEP_KINDS] = {
#define ROW(name, cost, what) #name,
    MIMO_STEP_LIST(ROW)
#undef ROW
};

static void print_step(const mimo_schedule_step *step, int64_t begin, int64_t end)
{
    printf("{\"kind\":\"%s\",\"index\":%" PRId64 ",\"chunk\":%" PRId64, kind_names[step->kind],
           step->index, step->chunk);
    if (step->kind == MIMO_STEP_FB)
        printf(",\"back\":%" PRId64 ",\"back_chunk\":%" PRId64, step->back, step->back_chunk);
    printf(",\"begin\":%" PRId64 ",\"end\":%" PRId64 "}", begin, end);
}

static mimo_status print_stage(const plan_schedule *plan, int64_t stage, int64_t *times)
{
    int64_t count;
    const mimo_schedule_step *steps = mimo_schedule_steps(&count, plan->schedule, stage);
    mimo_status status = mimo_schedule_times(times, times + count, plan->schedule, stage, NULL);
    printf("%s[", stage == 0 ? "" : ",");
    for (int64_t i = 0; status == MIMO_OK && i < count; i++) {
        if (i > 0)
            putchar(',');
        print_step(&steps[i], times[i], times[count + i]);
    }
    putchar(']');
    return status;
}

static void print_report(const char *name, const mimo_schedule_report *report)
{
    printf(",\"%s\":{\"time\":%" PRId64 ",\"idle\":%" PRId64 ",\"encoder_alive\":%" PRId64
           ",\"chunks_alive\":%" PRId64 ",\"weights_waiting\":%" PRId64 ",\"saved_states\":%" PRId64
           "}",
           name, report->time, report->idle, report->encoder_alive, report->chunks_alive,
           report->weights_waiting, report->saved_states);
}

static void print_limits(const plan_schedule *plan)
{
    printf(",\"limits\":[");
    for (int i = 0; i < PLAN_LIMITS && plan->limits[i] > 0; i++)
        printf("%s{\"alive\":%" PRId64 ",\"time\":%" PRId64 "}", i == 0 ? "" : ",", plan->limits[i],
               plan->times[i]);
    printf("]");
}

/* Memory for begins and ends of the longest list. */
static int64_t *reserve_times(const plan_schedule *plan)
{
    int64_t most = 1;
    for (int64_t p = 0; p < plan->request->desc.stages; p++) {
        int64_t count;
        mimo_schedule_steps(&count, plan->schedule, p);
        most = count > most ? count : most;
    }
    return calloc((size_t)most, 2 * sizeof(int64_t));
}

int plan_schedule_print_json(const plan_schedule *plan)
{
    int64_t *times = reserve_times(plan);
    mimo_status status = MIMO_OK;
    if (!times)
        return plan_fail("out of memory for the times of a stage");
    printf("{\"stages\":[");
    for (int64_t p = 0; status == MIMO_OK && p < plan->request->desc.stages; p++)
        status = print_stage(plan, p, times);
    printf("]");
    print_report("this", &plan->report);
    print_report("three_phases", &plan->three_phases);
    print_report("llm_alone", &plan->llm_alone);
    printf(",\"lower_bound\":%" PRId64 ",\"least_alive\":%" PRId64, plan->report.lower_bound,
           plan->report.least_alive);
    print_limits(plan);
    puts("}");
    free(times);
    return status == MIMO_OK ? 0 : plan_fail_library();
}
