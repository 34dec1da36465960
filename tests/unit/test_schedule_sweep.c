/* Encoder steps between the steps of many pipelines: what holds of all of them. */
#include <stdio.h>

#include "cases_ran.h"
#include "expect_failure.h"
#include "schedule_bed.h"

/* Encoders of a small and of a large part of a forward. */
static const int64_t encoder_costs[][2] = {{1, 2}, {3, 6}};

typedef struct sweep {
    int64_t cases, refused, faster;
} sweep;

/* Each schedule has passed the check: calls in one order, at most L groups on a stage, nobody waits
 * for ever. Here: the limit decides whether there is a schedule, and what it is worth. */
static void try_limit(sweep *own, const mimo_schedule_desc *desc, int64_t least, int64_t group)
{
    mimo_schedule *schedule = NULL;
    mimo_status status = mimo_schedule_create(&schedule, desc);
    own->cases++;
    if (desc->encoder_alive < least) {
        FAILS(status, MIMO_ERR_ARGUMENT, "before the first one is done");
        own->refused++;
        return;
    }
    SUCCEEDS(status);
    mimo_schedule_report report = report_of(schedule, NULL);
    cr_assert(report.least_alive == least && report.encoder_alive <= desc->encoder_alive * group);
    cr_assert(report.time >= report.lower_bound && report.three_phases >= report.llm_alone);
    int64_t bound = group == 1 ? 101 : 106;
    if (desc->encoder_alive > least)
        cr_assert(100 * report.time <= bound * report.three_phases,
                  "kind %d pp %d M %d V %d G %d L %d: %d, three phases %d", (int)desc->kind,
                  (int)desc->stages, (int)desc->micro_batches, (int)desc->chunks, (int)group,
                  (int)desc->encoder_alive, (int)report.time, (int)report.three_phases);
    own->faster += report.time < report.three_phases;
    mimo_schedule_destroy(schedule);
}

/* The least limit of these LLM steps and groups, from a schedule without a limit. */
static int64_t least_of(mimo_schedule_desc desc)
{
    desc.encoder_alive = 0;
    mimo_schedule *schedule = made(desc);
    int64_t least = report_of(schedule, NULL).least_alive;
    if (desc.kind == MIMO_SCHEDULE_1F1B && !desc.overlap) { /* by a formula */
        int64_t ahead = desc.stages + desc.encoder_group - 1;
        ahead = ahead < desc.micro_batches ? ahead : desc.micro_batches;
        cr_assert_eq(least, (ahead + desc.encoder_group - 1) / desc.encoder_group);
    }
    mimo_schedule_destroy(schedule);
    return least;
}

static void try_pipeline(sweep *own, mimo_schedule_desc desc)
{
    for (int64_t group = 1; group <= 3 && group <= desc.micro_batches; group++) {
        int64_t groups = (desc.micro_batches + group - 1) / group;
        for (size_t e = 0; e < sizeof encoder_costs / sizeof encoder_costs[0]; e++) {
            mimo_step_costs costs = MIMO_STEP_COSTS_INIT;
            costs.of[MIMO_STEP_E] = encoder_costs[e][0];
            costs.of[MIMO_STEP_EB] = encoder_costs[e][1];
            desc.costs = &costs;
            desc.encoder_group = group;
            int64_t least = least_of(desc);
            for (desc.encoder_alive = least > 1 ? least - 1 : 1; desc.encoder_alive <= groups;
                 desc.encoder_alive += desc.encoder_alive < least + 2 ? 1 : 3)
                try_limit(own, &desc, least, group);
        }
    }
}

Test(schedule_sweep, encoder_limits)
{
    static const int64_t micro_batches[] = {1, 2, 3, 4, 5, 8, 11, 12, 16};
    sweep own = {0, 0, 0};
    for (int64_t pp = 1; pp <= 8; pp++)
        for (size_t i = 0; i < sizeof micro_batches / sizeof micro_batches[0]; i++) {
            int64_t m = micro_batches[i];
            mimo_schedule_desc turns = desc_of(MIMO_SCHEDULE_1F1B, pp, m);
            try_pipeline(&own, turns);
            try_pipeline(&own, desc_of(MIMO_SCHEDULE_ZERO_BUBBLE, pp, m));
            turns.overlap = true;
            try_pipeline(&own, turns);
            for (int64_t chunks = 2; m % pp == 0 && chunks <= 3; chunks++)
                try_pipeline(&own, with_chunks(desc_of(MIMO_SCHEDULE_INTERLEAVED, pp, m), chunks));
        }
    fprintf(stderr, "%d refused, %d faster than three phases\n", (int)own.refused, (int)own.faster);
    CASES_RAN(own.cases, own.cases, 4000, "schedules");
}

/* Nothing waits for what never comes where a part of the steps takes no time. */
Test(schedule_sweep, steps_without_a_cost)
{
    int64_t ran = 0;
    for (int zero = 1; zero < 1 << 6; zero++)
        for (int frozen = 0; frozen <= 1; frozen++)
            for (int kind = 0; kind < 4; kind++) {
                mimo_step_costs costs = MIMO_STEP_COSTS_INIT;
                mimo_schedule *schedule = NULL;
                mimo_schedule_desc desc =
                    with_encoder(desc_of((mimo_schedule_kind)kind, 3, 6), 2, 3);
                const int kinds[] = {MIMO_STEP_F, MIMO_STEP_B, MIMO_STEP_I,
                                     MIMO_STEP_W, MIMO_STEP_E, MIMO_STEP_EB};
                for (int i = 0; i < 6; i++)
                    costs.of[kinds[i]] *= !(zero >> i & 1);
                desc.encoder_frozen = frozen;
                desc.costs = &costs;
                mimo_status status = mimo_schedule_create(&schedule, &desc);
                cr_assert(status == MIMO_OK || strstr(mimo_last_error(), "all costs are 0"),
                          "kind %d, zeros %x, frozen %d: %s", kind, zero, frozen,
                          mimo_last_error());
                ran += status == MIMO_OK;
                mimo_schedule_destroy(schedule);
            }
    CASES_RAN(ran, 63 * 8, 400, "schedules");
}
