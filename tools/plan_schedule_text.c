/* mimo-plan schedule as text: a line a stage, then what the schedule takes beside others. */
#include <inttypes.h>
#include <stdio.h>

#include "plan_schedule.h"

static double idle_percent(const plan_schedule *plan, const mimo_schedule_report *report)
{
    int64_t all = plan->request->desc.stages * report->time;
    return all > 0 ? 100.0 * (double)report->idle / (double)all : 0;
}

static void print_row(const plan_schedule *plan, const char *name,
                      const mimo_schedule_report *report)
{
    printf("%-13s %8" PRId64 " %7.1f %14" PRId64 " %13" PRId64 " %16" PRId64 " %13" PRId64 "\n",
           name, report->time, idle_percent(plan, report), report->encoder_alive,
           report->chunks_alive, report->weights_waiting, report->saved_states);
}

int plan_schedule_print_text(const plan_schedule *plan)
{
    if (mimo_schedule_print(stdout, plan->schedule, MIMO_SCHEDULE_TEXT) != MIMO_OK)
        return plan_fail_library();
    printf("\n%-13s %8s %7s %14s %13s %16s %13s\n", "", "time", "idle %", "encoder alive",
           "chunks alive", "weights waiting", "saved states");
    print_row(plan, "this schedule", &plan->report);
    if (plan->request->desc.encoder_group > 0)
        print_row(plan, "three phases", &plan->three_phases);
    print_row(plan, "LLM alone", &plan->llm_alone);
    printf("%-13s %8" PRId64 "\n", "lower bound", plan->report.lower_bound);
    const char *before = "\nleast --alive and its time, and the next ones: ";
    for (int i = 0; i < PLAN_LIMITS && plan->limits[i] > 0; i++) {
        printf("%s%" PRId64 ": %" PRId64, before, plan->limits[i], plan->times[i]);
        before = ", ";
    }
    if (plan->limits[0] > 0)
        putchar('\n');
    return 0;
}
