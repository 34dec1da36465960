/* The rules of a schedule: a list that breaks each of them; and whether stages wait for each other,
 * compared with a walk that tries everything. */
#include <stdio.h>

#include "core/hash.h"
#include "cases_ran.h"
#include "expect_failure.h"
#include "schedule_bed.h"

static void breaks(mimo_schedule_desc desc, const char *const *lists, const char *words)
{
    mimo_schedule *schedule = written_out(desc, lists);
    FAILS(mimo_schedule_check(schedule), MIMO_ERR_ARGUMENT, words);
    mimo_schedule_destroy(schedule);
}

#define LISTS(...)        \
    (const char *const[]) \
    {                     \
        __VA_ARGS__       \
    }

Test(schedule_check, lists_that_are_right)
{
    mimo_schedule *schedule = written_out(with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 2, 1), 1, 0),
                                          LISTS("E0 BF0 F0 B0 BB0 EB0", "E0 BF0 F0 B0 BB0 EB0"));
    SUCCEEDS(mimo_schedule_check(schedule));
    mimo_schedule_destroy(schedule);
}

Test(schedule_check, every_step_once)
{
    const mimo_schedule_desc desc = desc_of(MIMO_SCHEDULE_1F1B, 1, 2);
    const mimo_schedule_desc encoder = with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 1, 1), 1, 0);
    breaks(desc, LISTS("F0 F1 B0"), "schedule: stage 0 has no B1");
    breaks(desc, LISTS("F0 B0 B1"), "schedule: stage 0 has no F1");
    breaks(desc, LISTS("F0 F1 B0 I1"), "schedule: stage 0 has no W1");
    breaks(desc, LISTS("F0 F1 F0 B0 B1"), "schedule: stage 0 has F0 at step 0 and F0 at step 2");
    breaks(desc, LISTS("F0 F1 B0 I0 B1"), "schedule: stage 0 has B0 at step 2 and I0 at step 3");
    breaks(desc, LISTS("F0 F1 B0 W0 B1"), "schedule: stage 0 has B0 at step 2 and W0 at step 3");
    breaks(desc, LISTS("F0 F1 B0 B2"),
           "schedule: B2 (stage 0, step 3) of 2 micro-batches and 1 chunks");
    breaks(desc, LISTS("F0 F1 B0 B1 E0"), "schedule: E0 (stage 0, step 4) of 0 groups");
    breaks(encoder, LISTS("E0 BF0 F0 B0 BB0"), "schedule: stage 0 has no EB0");
    breaks(encoder, LISTS("E0 F0 B0 BB0 EB0"), "schedule: stage 0 has no BF0");
    breaks(desc_of(MIMO_SCHEDULE_FORWARD, 1, 1), LISTS("F0 B0"),
           "schedule: B0 (stage 0, step 1) where nothing goes back");
}

Test(schedule_check, after_its_inputs)
{
    const mimo_schedule_desc desc = desc_of(MIMO_SCHEDULE_ZERO_BUBBLE, 1, 3);
    const mimo_schedule_desc encoder = with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 1, 1), 1, 0);
    breaks(desc, LISTS("F0 I0 W0 F1 I1 W1 F2 W2 I2"), "schedule: W2 before I2 (stage 0, step 7)");
    breaks(desc, LISTS("I0 F0 W0 F1 I1 W1 F2 I2 W2"), "schedule: I0 before F0 (stage 0, step 0)");
    breaks(with_chunks(desc_of(MIMO_SCHEDULE_INTERLEAVED, 1, 1), 2), LISTS("F0.1 F0.0 B0.1 B0.0"),
           "schedule: F0.1 before F0.0 (stage 0, step 0)");
    breaks(with_chunks(desc_of(MIMO_SCHEDULE_INTERLEAVED, 1, 1), 2), LISTS("F0.0 F0.1 B0.0 B0.1"),
           "schedule: B0.0 before B0.1 (stage 0, step 2)");
    breaks(encoder, LISTS("BF0 E0 F0 B0 BB0 EB0"), "schedule: BF0 before E0 (stage 0, step 0)");
    breaks(encoder, LISTS("E0 F0 BF0 B0 BB0 EB0"), "schedule: F0 before BF0 (stage 0, step 1)");
    breaks(encoder, LISTS("E0 BF0 F0 BB0 B0 EB0"), "schedule: BB0 before B0 (stage 0, step 3)");
    breaks(encoder, LISTS("E0 BF0 F0 B0 EB0 BB0"), "schedule: EB0 before BB0 (stage 0, step 4)");
}

static void holds(mimo_schedule_desc desc, const char *const *lists)
{
    mimo_schedule *schedule = written_out(desc, lists);
    SUCCEEDS(mimo_schedule_check(schedule));
    mimo_schedule_destroy(schedule);
}

Test(schedule_check, micro_batches_in_order)
{
    mimo_schedule_desc desc = desc_of(MIMO_SCHEDULE_ZERO_BUBBLE, 1, 2);
    breaks(
        desc, LISTS("F0 F1 I1 I0 W0 W1"),
        "schedule: I1 before I0 (stage 0, step 2): backwards of a chunk ascend by micro-batch, so "
        "that gradients, which are sums, have the same bits under every schedule; any_order");
    breaks(desc, LISTS("F0 F1 I0 I1 W1 W0"), "schedule: W1 before W0 (stage 0, step 4): backwards");
    breaks(desc, LISTS("F1 F0 I0 I1 W0 W1"),
           "schedule: F1 before F0 (stage 0, step 0): forwards of a chunk ascend by micro-batch");
    desc.any_order = true;
    holds(desc, LISTS("F0 F1 I1 I0 W0 W1"));
    holds(desc, LISTS("F0 F1 B1 I0 W0"));
    breaks(desc, LISTS("F1 F0 I0 I1 W0 W1"), "schedule: F1 before F0 (stage 0, step 0)");
    breaks(desc, LISTS("F0 F1 I1 W0 I0 W1"), "schedule: W0 before I0 (stage 0, step 3)");
}

Test(schedule_check, groups_held)
{
    breaks(with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 1, 3), 1, 2),
           LISTS("E0 E1 E2 BF0 BF1 BF2 F0 B0 F1 B1 F2 B2 BB0 BB1 BB2 EB0 EB1 EB2"),
           "schedule: stage 0 holds 3 groups at E2, encoder_alive is 2");
    mimo_schedule_desc frozen = with_encoder(desc_of(MIMO_SCHEDULE_FORWARD, 2, 3), 1, 1);
    breaks(frozen, LISTS("E0 BF0 E1 F0 BF1 F1 E2 BF2 F2", "E0 BF0 F0 E1 BF1 F1 E2 BF2 F2"),
           "schedule: stage 0 holds 2 groups at E1, encoder_alive is 1");
    breaks(frozen, LISTS("E0 BF0 F0 E1 BF1 F1 E2 BF2 F2", "E0 E1 BF0 F0 BF1 F1 E2 BF2 F2"),
           "schedule: stage 1 holds 2 groups at E1, encoder_alive is 1");
}

Test(schedule_check, calls_in_one_order)
{
    breaks(with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 2, 3), 1, 0),
           LISTS("E0 BF0 F0 E1 BF1 F1 E2 BF2 B0 BB0 EB0 F2 B1 BB1 EB1 B2 BB2 EB2",
                 "E0 BF0 E1 BF1 E2 F0 B0 BB0 BF2 EB0 F1 B1 BB1 EB1 F2 B2 BB2 EB2"),
           "schedule: stage 1 calls BB0 before BF2, stage 0 after it");
}

Test(schedule_check, hops_in_one_order)
{
    breaks(with_chunks(desc_of(MIMO_SCHEDULE_FORWARD, 2, 2), 2),
           LISTS("F0.0 F1.0 F0.1 F1.1", "F0.0 F0.1 F1.0 F1.1"), "");
    breaks(with_chunks(desc_of(MIMO_SCHEDULE_FORWARD, 2, 2), 2),
           LISTS("F0.0 F0.1 F1.0 F1.1", "F0.0 F1.0 F0.1 F1.1"),
           "schedule: stage 0 sends what F0.1 made, stage 1 takes for F1.0 first (steps 1 and 1)");
}

/* Three groups are encoded in the beginning. Stage 0 encodes another one before each forward, the
 * others after an encoder backward, which stands right behind the backward. So stage 0 waits for
 * the rows of group 3, and the others for the gradients of group 0. */
static void write_eager_list(FILE *stream, const mimo_schedule *order, int64_t stage)
{
    int64_t count;
    const mimo_schedule_step *steps = mimo_schedule_steps(&count, order, stage);
    fputs("E0 BF0 E1 BF1 E2 BF2", stream);
    for (int64_t i = 0; i < count; i++) {
        bool forward = steps[i].kind == MIMO_STEP_F, ahead = forward == (stage == 0);
        int m = (int)steps[i].index, next = m + (stage == 0 ? 2 : 3);
        bool one = ahead && next > 2 && next < (int)order->desc.micro_batches;
        if (one && stage == 0)
            fprintf(stream, " E%d BF%d", next, next);
        fprintf(stream, forward ? " F%d" : " B%d BB%d EB%d", m, m, m);
        if (one && stage > 0)
            fprintf(stream, " E%d BF%d", next, next);
    }
}

Test(schedule_check, stages_that_wait_for_each_other)
{
    char lists[4][400];
    const char *all[4];
    mimo_schedule *order = made(desc_of(MIMO_SCHEDULE_1F1B, 4, 8));
    for (int64_t p = 0; p < 4; p++) {
        FILE *stream = fmemopen(lists[p], sizeof lists[p], "w");
        write_eager_list(stream, order, p);
        fclose(stream);
        all[p] = lists[p];
    }
    mimo_schedule_destroy(order);
    breaks(with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 4, 8), 1, 0), all,
           "schedule: stuck: stage 0 at F3 waits for BF3 of stage 1, which is at EB0 and waits for "
           "stage 0");
    breaks(desc_of(MIMO_SCHEDULE_1F1B, 2, 2), LISTS("F0 B0 F1 B1", "F0 F1 B0 B1"),
           "schedule: stuck: stage 0 at B0 waits for B0 of stage 1, which is at F1 and waits for "
           "stage 0");
}

/* ---------------------------------- a walk that tries everything ---------------------------- */

/* Whether one of the first `done` steps of a stage is this one. */
static bool is_done(const mimo_schedule *schedule, const int64_t *done, int64_t p,
                    mimo_step_kind kind, int64_t index)
{
    for (int64_t i = 0; i < done[p]; i++) {
        const mimo_schedule_step *step = &schedule->lists[p].steps[i];
        bool back = kind == MIMO_STEP_B && step->kind == MIMO_STEP_I;
        if ((step->kind == kind || back) && step->index == index)
            return true;
    }
    return false;
}

static bool is_called(const mimo_schedule *schedule, const int64_t *done, mimo_step_kind kind,
                      int64_t group)
{
    bool all = true;
    for (int64_t p = 0; p < schedule->desc.stages; p++)
        all = all && is_done(schedule, done, p, kind, group);
    return all;
}

/* Whether the next step of a stage may begin. One chunk a stage, one micro-batch a group. */
static bool may_begin(const mimo_schedule *schedule, const int64_t *done, int64_t p)
{
    int64_t last = schedule->desc.stages - 1;
    const mimo_schedule_step *step = &schedule->lists[p].steps[done[p]];
    switch (step->kind) {
    case MIMO_STEP_F:
        return p > 0 ? is_done(schedule, done, p - 1, MIMO_STEP_F, step->index)
                     : is_called(schedule, done, MIMO_STEP_BF, step->index);
    case MIMO_STEP_B:
    case MIMO_STEP_I:
        return p < last ? is_done(schedule, done, p + 1, MIMO_STEP_B, step->index)
                        : is_done(schedule, done, p, MIMO_STEP_F, step->index);
    case MIMO_STEP_EB:
        return is_called(schedule, done, MIMO_STEP_BB, step->index);
    default:
        return true;
    }
}

static bool gets_stuck(const mimo_schedule *schedule)
{
    int64_t done[8] = {0}, left = 0;
    for (int64_t p = 0; p < schedule->desc.stages; p++)
        left += schedule->lists[p].count;
    for (bool moved = true; moved && left > 0;) {
        moved = false;
        for (int64_t p = 0; p < schedule->desc.stages; p++)
            if (done[p] < schedule->lists[p].count && may_begin(schedule, done, p)) {
                done[p]++;
                left--;
                moved = true;
            }
    }
    return left > 0;
}

/* Move a step of a stage to another place of its list. */
static void move_a_step(mimo_schedule *schedule, uint64_t random)
{
    mimo_stage_list *list = &schedule->lists[random % (uint64_t)schedule->desc.stages];
    int64_t from = (int64_t)(mimo_mix64(random + 1) % (uint64_t)list->count);
    int64_t to = (int64_t)(mimo_mix64(random + 2) % (uint64_t)list->count);
    mimo_schedule_step step = list->steps[from];
    for (; from < to; from++)
        list->steps[from] = list->steps[from + 1];
    for (; from > to; from--)
        list->steps[from] = list->steps[from - 1];
    list->steps[to] = step;
}

Test(schedule_check, random_lists)
{
    enum { DRAWN = 112000 };
    int64_t stuck = 0, whole = 0;
    for (uint64_t seed = 0; seed < DRAWN; seed++) {
        uint64_t random = mimo_mix64(seed * 1000 + 7);
        int64_t pp = 2 + (int64_t)(seed % 3), m = 3 + (int64_t)(random % 3);
        mimo_schedule *schedule = made(with_encoder(
            desc_of(seed & 1 ? MIMO_SCHEDULE_ZERO_BUBBLE : MIMO_SCHEDULE_1F1B, pp, m), 1, 0));
        for (uint64_t i = 0; i <= seed % 4; i++)
            move_a_step(schedule, mimo_mix64(random + i));
        bool right = mimo_schedule_check(schedule) == MIMO_OK;
        bool waits = !right && strstr(mimo_last_error(), "schedule: stuck: ");
        if (right || waits)
            cr_assert_eq(gets_stuck(schedule), waits, "seed %d: %s", (int)seed,
                         waits ? mimo_last_error() : "not stuck");
        stuck += waits;
        whole += right;
        mimo_schedule_destroy(schedule);
    }
    CASES_RAN(stuck, DRAWN, 3500, "lists got stuck and");
    CASES_RAN(whole, DRAWN, 6200, "lists were right and");
}
