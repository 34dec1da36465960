/* Schedules for Criterion tests: made from a descriptor, or from lists that are written out. */
#ifndef MIMO_TESTS_SCHEDULE_BED_H
#define MIMO_TESTS_SCHEDULE_BED_H

#include <stdlib.h>
#include <string.h>

#include "schedule/schedule_types.h"
#include "expect_failure.h"

static inline mimo_schedule_desc desc_of(mimo_schedule_kind kind, int64_t pp, int64_t micro_batches)
{
    mimo_schedule_desc desc = MIMO_SCHEDULE_DESC_INIT;
    desc.kind = kind;
    desc.stages = pp;
    desc.micro_batches = micro_batches;
    return desc;
}

static inline mimo_schedule_desc with_encoder(mimo_schedule_desc desc, int64_t group, int64_t alive)
{
    desc.encoder_group = group;
    desc.encoder_alive = alive;
    return desc;
}

static inline mimo_schedule_desc with_chunks(mimo_schedule_desc desc, int64_t chunks)
{
    desc.chunks = chunks;
    return desc;
}

static inline mimo_schedule *made(mimo_schedule_desc desc)
{
    mimo_schedule *schedule = NULL;
    SUCCEEDS(mimo_schedule_create(&schedule, &desc));
    return schedule;
}

/* name(handle, format): what a library's `write` prints, in memory of the caller's. */
#define BED_PRINTED(name, type, write)                                    \
    static inline char *name(const type *it, mimo_schedule_format format) \
    {                                                                     \
        int64_t length = 0;                                               \
        SUCCEEDS(write(&length, NULL, 0, it, format));                    \
        char *text = calloc((size_t)length + 1, 1);                       \
        SUCCEEDS(write(NULL, text, length + 1, it, format));              \
        cr_assert_eq((int64_t)strlen(text), length);                      \
        return text;                                                      \
    }

BED_PRINTED(printed_of, mimo_schedule, mimo_schedule_text)

static inline mimo_schedule_report report_of(const mimo_schedule *schedule,
                                             const mimo_step_costs *costs)
{
    mimo_schedule_report report = MIMO_SCHEDULE_REPORT_INIT;
    SUCCEEDS(mimo_schedule_report_of(&report, schedule, costs));
    return report;
}

/* "F3", "F3.1", "BB0": a step as it is printed, except FB. */
static inline mimo_schedule_step step_of(const char *word)
{
    static const char *const names[] = {"BF", "BB", "EB", "F", "B", "I", "W", "E"};
    static const mimo_step_kind kinds[] = {MIMO_STEP_BF, MIMO_STEP_BB, MIMO_STEP_EB, MIMO_STEP_F,
                                           MIMO_STEP_B,  MIMO_STEP_I,  MIMO_STEP_W,  MIMO_STEP_E};
    mimo_schedule_step step = {MIMO_STEP_F, 0, 0, 0, 0};
    size_t i = 0;
    while (i < sizeof names / sizeof names[0] && strncmp(word, names[i], strlen(names[i])) != 0)
        i++;
    cr_assert(i < sizeof names / sizeof names[0], "'%s' is no step", word);
    char *end;
    step.kind = kinds[i];
    step.index = strtoll(word + strlen(names[i]), &end, 10);
    step.chunk = *end == '.' ? strtoll(end + 1, NULL, 10) : 0;
    return step;
}

/* A schedule with these lists, as they are: nothing is checked or added. */
static inline mimo_schedule *written_out(mimo_schedule_desc desc, const char *const *lists)
{
    mimo_schedule *schedule = NULL;
    SUCCEEDS(mimo_schedule_begin(&schedule, &desc));
    if (desc.encoder_group > 0)
        schedule->groups = (desc.micro_batches + desc.encoder_group - 1) / desc.encoder_group;
    schedule->limit = desc.encoder_alive > 0 ? desc.encoder_alive : schedule->groups;
    for (int64_t p = 0; p < desc.stages; p++) {
        char *copy = strdup(lists[p]), *rest = NULL;
        for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
            SUCCEEDS(mimo_stage_append(&schedule->lists[p], step_of(word)));
        free(copy);
    }
    return schedule;
}

#endif
