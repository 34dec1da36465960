/* mimo-plan schedule --json. It prints piece by piece: a schedule may have a million steps. No text
 * here needs an escape. */
#include <inttypes.h>
#include <stdio.h>

#include "plan_schedule.h"
#include "schedule/schedule_walk.h"

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

static void print_stage(const mimo_schedule_walk *walk, int64_t stage)
{
    int64_t count;
    const mimo_schedule_step *steps = mimo_schedule_steps(&count, walk->events.schedule, stage);
    printf("%s[", stage == 0 ? "" : ",");
    for (int64_t i = 0; i < count; i++) {
        if (i > 0)
            putchar(',');
        print_step(&steps[i], walk->begin[stage][i], walk->end[stage][i]);
    }
    putchar(']');
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

int plan_schedule_print_json(const plan_schedule *plan)
{
    const mimo_schedule *schedule = plan->schedule;
    mimo_schedule_walk walk;
    if (mimo_schedule_walk_open(&walk, schedule, &schedule->costs) != MIMO_OK)
        return plan_fail_library();
    printf("{\"stages\":[");
    for (int64_t p = 0; p < schedule->desc.stages; p++)
        print_stage(&walk, p);
    mimo_schedule_walk_close(&walk);
    printf("]");
    print_report("this", &plan->report);
    print_report("three_phases", &plan->three_phases);
    print_report("llm_alone", &plan->llm_alone);
    printf(",\"lower_bound\":%" PRId64 ",\"least_alive\":%" PRId64, plan->report.lower_bound,
           plan->report.least_alive);
    print_limits(plan);
    puts("}");
    return 0;
}
