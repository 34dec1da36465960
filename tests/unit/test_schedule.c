/* Schedules: the orders that are known by name, where the encoder's steps stand, times and memory.
 * Lists and times were worked out beforehand by a program of its own. */
#include <stdio.h>

#include "expect_failure.h"
#include "schedule/schedule_types.h"
#include "schedule_bed.h"

static void expect_lists(mimo_schedule_desc desc, const char *expected)
{
    mimo_schedule *schedule = made(desc);
    char *text = printed_of(schedule, MIMO_SCHEDULE_TEXT);
    cr_assert_str_eq(text, expected);
    free(text);
    mimo_schedule_destroy(schedule);
}

/* ----------------------------------------- known orders ------------------------------------- */

Test(schedule, order_1f1b)
{
    expect_lists(desc_of(MIMO_SCHEDULE_1F1B, 2, 4), "stage 0: F0 F1 B0 F2 B1 F3 B2 B3\n"
                                                    "stage 1: F0 B0 F1 B1 F2 B2 F3 B3\n");
    expect_lists(desc_of(MIMO_SCHEDULE_1F1B, 4, 2), "stage 0: F0 F1 B0 B1\n"
                                                    "stage 1: F0 F1 B0 B1\n"
                                                    "stage 2: F0 F1 B0 B1\n"
                                                    "stage 3: F0 B0 F1 B1\n");
    expect_lists(desc_of(MIMO_SCHEDULE_1F1B, 1, 2), "stage 0: F0 B0 F1 B1\n");
}

Test(schedule, order_interleaved)
{
    expect_lists(with_chunks(desc_of(MIMO_SCHEDULE_INTERLEAVED, 2, 4), 2),
                 "stage 0: F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 "
                 "B2.0 B3.0\n"
                 "stage 1: F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 "
                 "B2.0 B3.0\n");
}

Test(schedule, order_zero_bubble)
{
    expect_lists(desc_of(MIMO_SCHEDULE_ZERO_BUBBLE, 2, 4),
                 "stage 0: F0 F1 I0 W0 F2 I1 W1 F3 I2 W2 I3 W3\n"
                 "stage 1: F0 I0 F1 I1 W0 F2 I2 W1 F3 I3 W2 W3\n");
}

Test(schedule, order_forward_only)
{
    expect_lists(desc_of(MIMO_SCHEDULE_FORWARD, 2, 3), "stage 0: F0 F1 F2\n"
                                                       "stage 1: F0 F1 F2\n");
    expect_lists(with_chunks(desc_of(MIMO_SCHEDULE_FORWARD, 2, 3), 2),
                 "stage 0: F0.0 F1.0 F0.1 F1.1 F2.0 F2.1\n"
                 "stage 1: F0.0 F1.0 F0.1 F1.1 F2.0 F2.1\n");
}

Test(schedule, order_with_overlap)
{
    mimo_schedule_desc desc = desc_of(MIMO_SCHEDULE_1F1B, 2, 4);
    desc.overlap = true;
    expect_lists(desc, "stage 0: F0 F1 FB2/0 FB3/1 B2 B3\n"
                       "stage 1: F0 FB1/0 FB2/1 FB3/2 B3\n");
    desc.stages = 1;
    expect_lists(desc, "stage 0: F0 FB1/0 FB2/1 FB3/2 B3\n");
}

/* ------------------------------------------- encoder ---------------------------------------- */

Test(schedule, three_phases)
{
    expect_lists(with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 2, 4), 4, 0),
                 "stage 0: E0 BF0 F0 F1 B0 F2 B1 F3 B2 B3 BB0 EB0\n"
                 "stage 1: E0 BF0 F0 B0 F1 B1 F2 B2 F3 B3 BB0 EB0\n");
}

Test(schedule, encoder_beside_the_pipeline)
{
    expect_lists(
        with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 2, 4), 1, 3),
        "stage 0: E0 BF0 F0 E1 BF1 F1 E2 BF2 B0 BB0 EB0 F2 B1 BB1 E3 BF3 EB1 F3 B2 BB2 EB2 "
        "B3 BB3 EB3\n"
        "stage 1: E0 BF0 E1 E2 BF1 F0 BF2 B0 F1 BB0 B1 EB0 E3 F2 BB1 BF3 B2 EB1 F3 BB2 B3 "
        "EB2 BB3 EB3\n");
    expect_lists(with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 2, 4), 2, 2),
                 "stage 0: E0 BF0 F0 F1 E1 BF1 B0 F2 B1 BB0 EB0 F3 B2 B3 BB1 EB1\n"
                 "stage 1: E0 BF0 E1 F0 BF1 B0 F1 B1 F2 BB0 B2 EB0 F3 B3 BB1 EB1\n");
}

/* A group is held until stage 0 has taken it, so 1 suffices. Without a limit one encoder step
 * stands before the pipeline, and the others in it. */
Test(schedule, frozen_encoder)
{
    static const int64_t times[] = {63, 63, 62, 61};
    for (int64_t limit = 1; limit <= 4; limit++) {
        mimo_schedule_desc desc = with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 2, 4), 1, limit);
        desc.encoder_frozen = true;
        mimo_schedule *schedule = made(desc);
        mimo_schedule_report report = report_of(schedule, NULL);
        cr_assert(report.least_alive == 1 && report.encoder_alive <= limit);
        cr_assert(report.time == times[limit - 1] && report.three_phases == 64, "%d: %d",
                  (int)limit, (int)report.time);
        for (int64_t p = 0; p < 2; p++) {
            int64_t count;
            const mimo_schedule_step *steps = mimo_schedule_steps(&count, schedule, p);
            cr_assert_eq(count, 4 + 4 + 8);
            for (int64_t i = 0; i < count; i++)
                cr_assert(steps[i].kind != MIMO_STEP_BB && steps[i].kind != MIMO_STEP_EB);
        }
        mimo_schedule_destroy(schedule);
    }
}

/* The forward of an overlapped step ends a group as any other. */
Test(schedule, frozen_encoder_of_overlapped_steps)
{
    for (int64_t pp = 1; pp <= 4; pp++)
        for (int64_t limit = 0; limit <= 3; limit++) {
            mimo_schedule_desc desc = with_encoder(desc_of(MIMO_SCHEDULE_1F1B, pp, 8), 1, limit);
            desc.encoder_frozen = desc.overlap = true;
            mimo_schedule *schedule = made(desc);
            mimo_schedule_report report = report_of(schedule, NULL);
            cr_assert(report.least_alive == 1 && (limit == 0 || report.encoder_alive <= limit));
            mimo_schedule_destroy(schedule);
        }
}

/* The last group is smaller than the others. */
Test(schedule, groups_that_do_not_divide)
{
    mimo_schedule *schedule = made(with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 2, 5), 2, 0));
    mimo_schedule_report report = report_of(schedule, NULL);
    cr_assert_eq(report.lower_bound, 5 * (4 + 8 + 1 + 2));
    int64_t begin[64], end[64], count;
    const mimo_schedule_step *steps = mimo_schedule_steps(&count, schedule, 0);
    SUCCEEDS(mimo_schedule_times(begin, end, schedule, 0, NULL));
    for (int64_t i = 0; i < count; i++)
        if (steps[i].kind == MIMO_STEP_E || steps[i].kind == MIMO_STEP_EB)
            cr_assert_eq(end[i] - begin[i],
                         (steps[i].kind == MIMO_STEP_E ? 1 : 2) * (steps[i].index == 2 ? 1 : 2));
    mimo_schedule_destroy(schedule);
}

/* ------------------------------------------- times ------------------------------------------ */

static int64_t time_of(mimo_schedule_desc desc)
{
    mimo_schedule *schedule = made(desc);
    int64_t time = report_of(schedule, NULL).time;
    mimo_schedule_destroy(schedule);
    return time;
}

Test(schedule, times_of_small_schedules)
{
    const mimo_schedule_desc pp2 = desc_of(MIMO_SCHEDULE_1F1B, 2, 4);
    cr_assert_eq(time_of(pp2), 60);
    cr_assert_eq(time_of(desc_of(MIMO_SCHEDULE_ZERO_BUBBLE, 2, 4)), 52);
    cr_assert_eq(time_of(with_encoder(pp2, 4, 0)), 72);
    cr_assert_eq(time_of(with_encoder(pp2, 1, 2)), 85, "the smallest limit waits for each group");
    cr_assert_eq(time_of(with_encoder(pp2, 1, 3)), 68);
    cr_assert_eq(time_of(with_encoder(pp2, 1, 4)), 65);
    cr_assert_eq(time_of(with_encoder(pp2, 2, 2)), 70);
    cr_assert_eq(time_of(with_encoder(desc_of(MIMO_SCHEDULE_ZERO_BUBBLE, 2, 4), 1, 3)), 62);
    cr_assert_eq(time_of(with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 4, 8), 1, 5)), 146);
}

/* Times of three phases and of four limits, in quarters of an F. */
typedef struct time_row {
    mimo_schedule_kind kind;
    int64_t pp, micro_batches, llm_alone, three_phases, time[4], lower_bound;
} time_row;

static const time_row time_rows[] = {
    {MIMO_SCHEDULE_1F1B, 2, 8, 108, 132, {128, 125, 125, 124}, 120},
    {MIMO_SCHEDULE_1F1B, 4, 16, 228, 276, {266, 263, 257, 252}, 240},
    {MIMO_SCHEDULE_1F1B, 8, 64, 852, 1044, {1022, 1019, 1001, 974}, 960},
    {MIMO_SCHEDULE_ZERO_BUBBLE, 4, 16, 204, 252, {248, 247, 245, 240}, 240},
    {MIMO_SCHEDULE_ZERO_BUBBLE, 8, 64, 796, 988, {980, 979, 973, 960}, 960},
};

Test(schedule, times_by_limit)
{
    for (size_t r = 0; r < sizeof time_rows / sizeof time_rows[0]; r++) {
        const time_row *row = &time_rows[r];
        const int64_t limits[4] = {row->pp + 1, row->pp + 2, 2 * row->pp, row->micro_batches};
        for (int i = 0; i < 4; i++) {
            mimo_schedule *schedule =
                made(with_encoder(desc_of(row->kind, row->pp, row->micro_batches), 1, limits[i]));
            mimo_schedule_report report = report_of(schedule, NULL);
            cr_assert_eq(report.time, row->time[i], "row %zu, limit %d: %d", r, (int)limits[i],
                         (int)report.time);
            cr_assert_eq(report.encoder_alive, limits[i]);
            cr_assert_eq(report.llm_alone, row->llm_alone);
            cr_assert_eq(report.three_phases, row->three_phases);
            cr_assert_eq(report.lower_bound, row->lower_bound);
            cr_assert_eq(report.least_alive, row->pp);
            mimo_schedule_destroy(schedule);
        }
    }
}

/* The same lists where a backward takes as long as a forward. */
Test(schedule, times_with_other_costs)
{
    mimo_schedule *schedule = made(desc_of(MIMO_SCHEDULE_1F1B, 2, 4));
    mimo_step_costs costs = MIMO_STEP_COSTS_INIT;
    costs.of[MIMO_STEP_B] = 4;
    cr_assert_eq(report_of(schedule, &costs).time, 5 * 8);
    costs.hop = 1; /* the first F and the last B of stage 1 each cross once */
    cr_assert_eq(report_of(schedule, &costs).time > 5 * 8, true);
    costs.hop = 0;
    costs.head = 2; /* stage 1 has all of F + 2 and B + 4; one F before and one B behind it */
    cr_assert_eq(report_of(schedule, &costs).time, 4 * (6 + 8) + 8);
    cr_assert_eq(report_of(schedule, NULL).time, 60);
    mimo_schedule_destroy(schedule);
}

/* A call that takes its time keeps F of stage 0 waiting, and nobody else. */
Test(schedule, times_of_calls)
{
    mimo_schedule_desc desc = with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 1, 1), 1, 0);
    mimo_step_costs costs = MIMO_STEP_COSTS_INIT;
    int64_t begin[6], end[6];
    costs.of[MIMO_STEP_BF] = 10;
    costs.of[MIMO_STEP_BB] = 20;
    desc.costs = &costs;
    mimo_schedule *schedule = made(desc);
    SUCCEEDS(mimo_schedule_times(begin, end, schedule, 0, NULL));
    const int64_t begins[6] = {0, 1, 11, 15, 23, 43}, ends[6] = {1, 11, 15, 23, 43, 45};
    for (int i = 0; i < 6; i++)
        cr_assert(begin[i] == begins[i] && end[i] == ends[i], "step %d: %d to %d", i, (int)begin[i],
                  (int)end[i]);
    mimo_schedule_destroy(schedule);
}

/* ------------------------------------------- memory ----------------------------------------- */

static void expect_memory(mimo_schedule_desc desc, const int64_t *chunks, const int64_t *states)
{
    mimo_schedule *schedule = made(desc);
    for (int64_t p = 0; p < desc.stages; p++) {
        mimo_schedule_memory memory = MIMO_SCHEDULE_MEMORY_INIT;
        int64_t of_chunk[2] = {0}, most = states[p] > 0 ? states[p] : desc.chunks;
        SUCCEEDS(mimo_schedule_memory_of(&memory, schedule, p));
        SUCCEEDS(mimo_schedule_states(of_chunk, schedule, p));
        cr_assert_eq(of_chunk[0] + of_chunk[1], most, "stage %d: %d + %d states", (int)p,
                     (int)of_chunk[0], (int)of_chunk[1]);
        cr_assert_eq(memory.chunks_alive, chunks[p], "stage %d: %d", (int)p,
                     (int)memory.chunks_alive);
        cr_assert_eq(memory.saved_states, states[p], "stage %d: %d states", (int)p,
                     (int)memory.saved_states);
    }
    mimo_schedule_destroy(schedule);
}

Test(schedule, memory_of_stages)
{
    mimo_schedule_desc two = with_chunks(desc_of(MIMO_SCHEDULE_INTERLEAVED, 2, 4), 2);
    expect_memory(desc_of(MIMO_SCHEDULE_1F1B, 4, 8), (int64_t[]){4, 3, 2, 1},
                  (int64_t[]){4, 3, 2, 1});
    expect_memory(desc_of(MIMO_SCHEDULE_ZERO_BUBBLE, 4, 8), (int64_t[]){4, 4, 4, 4},
                  (int64_t[]){4, 4, 4, 4});
    expect_memory(desc_of(MIMO_SCHEDULE_ZERO_BUBBLE, 4, 3), (int64_t[]){3, 3, 3, 3},
                  (int64_t[]){3, 3, 3, 3});
    expect_memory(desc_of(MIMO_SCHEDULE_FORWARD, 2, 8), (int64_t[]){0, 0}, (int64_t[]){0, 0});
    expect_memory(with_chunks(desc_of(MIMO_SCHEDULE_INTERLEAVED, 4, 16), 2),
                  (int64_t[]){11, 9, 7, 5}, (int64_t[]){12, 12, 10, 6});
    expect_memory(two, (int64_t[]){5, 3}, (int64_t[]){6, 4});
    two.overlap = true;
    expect_memory(two, (int64_t[]){6, 4}, (int64_t[]){6, 6});
}

Test(schedule, weights_that_wait)
{
    mimo_schedule *schedule = made(desc_of(MIMO_SCHEDULE_ZERO_BUBBLE, 4, 8));
    for (int64_t p = 0; p < 4; p++) {
        mimo_schedule_memory memory = MIMO_SCHEDULE_MEMORY_INIT;
        SUCCEEDS(mimo_schedule_memory_of(&memory, schedule, p));
        cr_assert_eq(memory.weights_waiting, p + 1);
    }
    mimo_schedule_destroy(schedule);
}

/* -------------------------------------------- texts ----------------------------------------- */

Test(schedule, hash_is_of_lists)
{
    mimo_schedule *one = made(with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 2, 4), 1, 3));
    mimo_schedule *other = made(with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 2, 4), 1, 4));
    mimo_step_costs costs = MIMO_STEP_COSTS_INIT;
    for (int i = 0; i < MIMO_STEP_KINDS; i++)
        costs.of[i] *= 10;
    mimo_schedule_desc slow = with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 2, 4), 1, 3);
    slow.costs = &costs;
    mimo_schedule *same = made(slow);
    cr_assert_eq(mimo_schedule_hash(one), mimo_schedule_hash(same));
    cr_assert_neq(mimo_schedule_hash(one), mimo_schedule_hash(other));
    mimo_schedule_destroy(one);
    mimo_schedule_destroy(other);
    mimo_schedule_destroy(same);
}

Test(schedule, text_is_cut)
{
    mimo_schedule *schedule = made(desc_of(MIMO_SCHEDULE_1F1B, 1, 1));
    char text[8];
    int64_t length;
    SUCCEEDS(mimo_schedule_text(&length, text, sizeof text, schedule, MIMO_SCHEDULE_TEXT));
    cr_assert_str_eq(text, "stage 0");
    cr_assert_eq(length, (int64_t)strlen("stage 0: F0 B0\n"));
    FAILS(mimo_schedule_text(NULL, text, -1, schedule, MIMO_SCHEDULE_TEXT), MIMO_ERR_ARGUMENT,
          "mimo_schedule_text: text of -1 bytes");
    mimo_schedule_destroy(schedule);
}

Test(schedule, stream_that_is_full)
{
    mimo_schedule *schedule = made(desc_of(MIMO_SCHEDULE_1F1B, 1, 1));
    for (int format = MIMO_SCHEDULE_TEXT; format <= MIMO_SCHEDULE_TRACE; format++) {
        FILE *full = fopen("/dev/full", "w");
        cr_assert(full);
        FAILS(mimo_schedule_print(full, schedule, (mimo_schedule_format)format), MIMO_ERR_IO,
              "mimo_schedule_print: the stream takes no more");
        fclose(full);
    }
    mimo_schedule_destroy(schedule);
}

/* ------------------------------------------- runs ------------------------------------------- */

enum { RUN_STAGES = 2, RUN_STEPS = 64 };

typedef struct planned_run {
    int64_t times[2][RUN_STAGES][RUN_STEPS];
    const int64_t *begin[RUN_STAGES], *end[RUN_STAGES];
    mimo_schedule_run run;
} planned_run;

/* A run in which every step took what it was planned to. */
static void run_as_planned(planned_run *out, const mimo_schedule *schedule)
{
    out->run = (mimo_schedule_run)MIMO_SCHEDULE_RUN_INIT;
    for (int p = 0; p < RUN_STAGES; p++) {
        SUCCEEDS(mimo_schedule_times(out->times[0][p], out->times[1][p], schedule, p, NULL));
        out->begin[p] = out->times[0][p];
        out->end[p] = out->times[1][p];
    }
    out->run.begin = out->begin;
    out->run.end = out->end;
}

static char *text_of_run(const mimo_schedule *schedule, mimo_schedule_format format,
                         const mimo_schedule_run *run)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    SUCCEEDS(mimo_schedule_print_run(stream, schedule, format, run));
    fclose(stream);
    return text;
}

Test(schedule, run_as_planned_looks_like_the_plan)
{
    static char plan[1 << 16];
    static planned_run planned;
    mimo_schedule *schedule = made(with_encoder(desc_of(MIMO_SCHEDULE_1F1B, RUN_STAGES, 4), 1, 3));
    run_as_planned(&planned, schedule);
    for (int format = MIMO_SCHEDULE_SVG; format <= MIMO_SCHEDULE_TRACE; format++) {
        int64_t length;
        char *run = text_of_run(schedule, (mimo_schedule_format)format, &planned.run);
        SUCCEEDS(
            mimo_schedule_text(&length, plan, sizeof plan, schedule, (mimo_schedule_format)format));
        cr_assert_lt(length, (int64_t)sizeof plan);
        cr_assert_str_eq(run, plan);
        free(run);
    }
    mimo_schedule_destroy(schedule);
}

/* Stage 1 ends its last step 12 later. Costs say what other schedules would have taken. */
Test(schedule, run_says_what_it_took)
{
    static planned_run planned;
    mimo_schedule *schedule = made(with_encoder(desc_of(MIMO_SCHEDULE_1F1B, RUN_STAGES, 4), 1, 3));
    mimo_step_costs twice = MIMO_STEP_COSTS_INIT;
    int64_t count;
    mimo_schedule_steps(&count, schedule, 1);
    run_as_planned(&planned, schedule);
    planned.times[1][1][count - 1] += 12;
    for (int kind = 0; kind < MIMO_STEP_KINDS; kind++)
        twice.of[kind] *= 2;
    planned.run.costs = &twice;
    planned.run.unit = "us";
    char *text = text_of_run(schedule, MIMO_SCHEDULE_SVG, &planned.run);
    cr_assert(strstr(text, "pp 2, 4 micro-batches: time 80 us, stages wait 17.5% of it"), "%s",
              text);
    cr_assert(strstr(text, ">at the costs of its steps: three phases 144, LLM alone 120, lower "
                           "bound 120,"),
              "%s", text);
    free(text);
    mimo_schedule_destroy(schedule);
}

Test(schedule, runs_that_cannot_be)
{
    static planned_run planned;
    mimo_schedule *schedule = made(desc_of(MIMO_SCHEDULE_1F1B, RUN_STAGES, 4));
    run_as_planned(&planned, schedule);
    mimo_schedule_run run = planned.run;
    FAILS(mimo_schedule_print_run(stdout, schedule, MIMO_SCHEDULE_CSV, &run), MIMO_ERR_ARGUMENT,
          "mimo_schedule_print_run: format 1 has no times");
    run.end = NULL;
    FAILS(mimo_schedule_print_run(stdout, schedule, MIMO_SCHEDULE_SVG, &run), MIMO_ERR_ARGUMENT,
          "end is NULL");
    run = planned.run;
    run.size = 3;
    FAILS(mimo_schedule_print_run(stdout, schedule, MIMO_SCHEDULE_SVG, &run), MIMO_ERR_ARGUMENT,
          "mimo_schedule_run: the descriptor's size is 3");
    static const char *const units[] = {"", "<b>", "u s", "kilomicroseconds"};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        run = planned.run;
        run.unit = units[i];
        FAILS(mimo_schedule_print_run(stdout, schedule, MIMO_SCHEDULE_SVG, &run), MIMO_ERR_ARGUMENT,
              "is not 1 to 15 letters");
    }
    planned.times[0][1][2] = planned.times[1][1][2] + 1;
    FAILS(mimo_schedule_print_run(stdout, schedule, MIMO_SCHEDULE_SVG, &planned.run),
          MIMO_ERR_ARGUMENT, "mimo_schedule_print_run: stage 1: F1 from 21 to 20");
    planned.times[0][1][2] = -1;
    FAILS(mimo_schedule_print_run(stdout, schedule, MIMO_SCHEDULE_TRACE, &planned.run),
          MIMO_ERR_ARGUMENT, "stage 1: F1 from -1 to 20");
    FAILS(mimo_schedule_print_run(NULL, schedule, MIMO_SCHEDULE_SVG, &run), MIMO_ERR_ARGUMENT,
          "stream is NULL");
    FAILS(mimo_schedule_print_run(stdout, schedule, MIMO_SCHEDULE_SVG, NULL), MIMO_ERR_ARGUMENT,
          "run is NULL");
    FAILS(mimo_schedule_print_run(stdout, NULL, MIMO_SCHEDULE_SVG, &run), MIMO_ERR_ARGUMENT,
          "schedule is NULL");
    run = planned.run;
    planned.times[0][1][2] = planned.times[1][1][2];
    FILE *full = fopen("/dev/full", "w");
    FAILS(mimo_schedule_print_run(full, schedule, MIMO_SCHEDULE_SVG, &run), MIMO_ERR_IO,
          "mimo_schedule_print_run: the stream takes no more");
    fclose(full);
    mimo_schedule_destroy(schedule);
}

/* -------------------------------------------- errors ---------------------------------------- */

static void refused(mimo_schedule_desc desc, const char *words)
{
    mimo_schedule *schedule = NULL;
    FAILS(mimo_schedule_create(&schedule, &desc), MIMO_ERR_ARGUMENT, words);
    cr_assert_null(schedule);
}

Test(schedule, sizes_that_are_refused)
{
    mimo_schedule_desc desc = desc_of(MIMO_SCHEDULE_1F1B, 2, 4);
    refused(desc_of(MIMO_SCHEDULE_1F1B, 0, 4), "schedule: 4 micro-batches over pp=0 with 1 chunks");
    refused(desc_of(MIMO_SCHEDULE_1F1B, 2, 0), "schedule: 0 micro-batches over pp=2");
    refused(with_chunks(desc, 0), "over pp=2 with 0 chunks");
    refused(with_chunks(desc, 2), "schedule: 1f1b has 1 chunk a stage, not 2");
    refused(with_chunks(desc_of(MIMO_SCHEDULE_ZERO_BUBBLE, 2, 4), 3), "zero-bubble has 1 chunk");
    refused(with_chunks(desc_of(MIMO_SCHEDULE_INTERLEAVED, 4, 6), 2),
            "schedule: 6 micro-batches over pp=4 with 2 chunks");
    refused(
        desc_of(MIMO_SCHEDULE_1F1B, 4096, 4097),
        "schedule: 4097 micro-batches over pp=4096 with 1 chunks: a schedule has at most 16777216 "
        "forwards, of all stages together");
    refused(desc_of(MIMO_SCHEDULE_1F1B, 1, INT64_MAX), "at most 16777216 forwards");
    refused(desc_of(MIMO_SCHEDULE_1F1B, INT64_MAX, INT64_MAX), "at most 16777216 forwards");
    refused(with_chunks(desc, INT64_MAX), "at most 16777216 forwards");
    refused(with_encoder(desc, 5, 0), "schedule: encoder_group 5 of 4 micro-batches");
    refused(with_encoder(desc, -1, 0), "encoder_group -1");
    refused(with_encoder(desc, 1, -1), "schedule: encoder_alive -1");
    desc.kind = (mimo_schedule_kind)4;
    refused(desc, "schedule: there is no kind 4");
    desc = desc_of(MIMO_SCHEDULE_ZERO_BUBBLE, 2, 4);
    desc.overlap = true;
    refused(desc, "overlap pairs a forward with a whole backward, which zero-bubble has not");
}

/* What takes time for each pair of stages takes minutes here, and what is linear half a second. */
Test(schedule, many_stages, .timeout = 30)
{
    mimo_schedule *schedule = made(with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 32768, 4), 1, 0));
    cr_assert_eq(report_of(schedule, NULL).least_alive, 4);
    mimo_schedule_destroy(schedule);
}

Test(schedule, limit_that_is_too_small)
{
    refused(with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 4, 8), 1, 3),
            "schedule: encoder_alive 3: stage 0 needs 4 groups before the first one is done");
    refused(with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 4, 8), 2, 2),
            "encoder_alive 2: stage 0 needs 3 groups");
}

Test(schedule, costs_that_are_refused)
{
    mimo_schedule_desc desc = desc_of(MIMO_SCHEDULE_1F1B, 2, 4);
    mimo_step_costs costs = MIMO_STEP_COSTS_INIT;
    desc.costs = &costs;
    costs.of[MIMO_STEP_B] = -1;
    refused(desc, "schedule: the cost of B is -1");
    costs = (mimo_step_costs)MIMO_STEP_COSTS_INIT;
    costs.head = -2;
    refused(desc, "head -2");
    costs = (mimo_step_costs){sizeof costs, {0}, 0, 0};
    refused(desc, "schedule: all costs are 0");
    costs.of[MIMO_STEP_F] = INT64_MAX / 8;
    mimo_schedule *schedule = NULL;
    FAILS(mimo_schedule_create(&schedule, &desc), MIMO_ERR_OVERFLOW, "does not fit 64 bits");
    schedule = made(desc_of(MIMO_SCHEDULE_1F1B, 2, 4));
    mimo_schedule_report report = MIMO_SCHEDULE_REPORT_INIT;
    int64_t begin[8], end[8];
    costs.of[MIMO_STEP_F] = -3;
    FAILS(mimo_schedule_report_of(&report, schedule, &costs), MIMO_ERR_ARGUMENT, "of F is -3");
    FAILS(mimo_schedule_times(begin, end, schedule, 0, &costs), MIMO_ERR_ARGUMENT, "of F is -3");
    mimo_schedule_destroy(schedule);
}

Test(schedule, stages_that_do_not_exist)
{
    mimo_schedule *schedule = made(desc_of(MIMO_SCHEDULE_1F1B, 2, 4));
    mimo_schedule_memory memory = MIMO_SCHEDULE_MEMORY_INIT;
    int64_t begin[8], end[8], count = 7;
    FAILS(mimo_schedule_times(begin, end, schedule, 2, NULL), MIMO_ERR_ARGUMENT,
          "mimo_schedule_times: there is no stage 2 of 2");
    FAILS(mimo_schedule_memory_of(&memory, schedule, -1), MIMO_ERR_ARGUMENT,
          "mimo_schedule_memory_of: there is no stage -1 of 2");
    cr_assert_null(mimo_schedule_steps(&count, schedule, 2));
    cr_assert_eq(count, 0);
    FAILS(mimo_schedule_print(stdout, schedule, (mimo_schedule_format)9), MIMO_ERR_ARGUMENT,
          "there is no format 9");
    mimo_schedule_destroy(schedule);
}

Test(schedule, nulls)
{
    mimo_schedule *schedule = NULL;
    mimo_schedule_desc desc = desc_of(MIMO_SCHEDULE_1F1B, 1, 1);
    int64_t one[2];
    FAILS(mimo_schedule_create(NULL, &desc), MIMO_ERR_ARGUMENT, "out is NULL");
    FAILS(mimo_schedule_create(&schedule, NULL), MIMO_ERR_ARGUMENT, "desc is NULL");
    FAILS(mimo_schedule_create_csv(NULL, &desc, ""), MIMO_ERR_ARGUMENT, "out is NULL");
    FAILS(mimo_schedule_create_csv(&schedule, NULL, ""), MIMO_ERR_ARGUMENT, "desc is NULL");
    FAILS(mimo_schedule_create_csv(&schedule, &desc, NULL), MIMO_ERR_ARGUMENT, "text is NULL");
    FAILS(mimo_schedule_check(NULL), MIMO_ERR_ARGUMENT, "schedule is NULL");
    FAILS(mimo_schedule_print(stdout, NULL, MIMO_SCHEDULE_TEXT), MIMO_ERR_ARGUMENT,
          "schedule is NULL");
    FAILS(mimo_schedule_times(one, one, NULL, 0, NULL), MIMO_ERR_ARGUMENT, "schedule is NULL");
    FAILS(mimo_schedule_report_of(NULL, NULL, NULL), MIMO_ERR_ARGUMENT, "out is NULL");
    FAILS(mimo_schedule_memory_of(NULL, NULL, 0), MIMO_ERR_ARGUMENT, "out is NULL");
    schedule = made(desc);
    FAILS(mimo_schedule_print(NULL, schedule, MIMO_SCHEDULE_TEXT), MIMO_ERR_ARGUMENT,
          "stream is NULL");
    FAILS(mimo_schedule_times(NULL, one, schedule, 0, NULL), MIMO_ERR_ARGUMENT, "begin is NULL");
    FAILS(mimo_schedule_times(one, NULL, schedule, 0, NULL), MIMO_ERR_ARGUMENT, "end is NULL");
    mimo_schedule_destroy(schedule);
    mimo_schedule_destroy(NULL);
}
