/* The rules of a schedule, in mimo_schedule_check's order. */
#include "schedule/schedule_walk.h"

#include <string.h>

#include "core/checked.h"
#include "core/memory.h"
#include "core/mutation.h"

/* ----------------------------------- one stage: each step once ------------------------------ */

/* What a list must have of each micro-batch and chunk, and of each group. */
typedef enum slot { FORWARD, GRADIENT, WEIGHT, ENCODED, CALLED, CALLED_BACK, RETURNED, SLOTS } slot;

/* place[slot][..]: 1 + the step that fills it; 0: none does. */
typedef struct stage_table {
    const mimo_schedule *schedule;
    int64_t stage;
    int64_t *place[SLOTS];
} stage_table;

static int64_t slot_size(const mimo_schedule *schedule, slot s)
{
    return s < ENCODED ? schedule->desc.chunks * schedule->desc.micro_batches : schedule->groups;
}

/* Whether the lists of this schedule have it. */
static bool slot_wanted(const mimo_schedule *schedule, slot s)
{
    if (s == GRADIENT || s == WEIGHT)
        return schedule->desc.kind != MIMO_SCHEDULE_FORWARD;
    return s == CALLED_BACK || s == RETURNED ? mimo_schedule_encoder_learns(schedule) : true;
}

/* The slots that a part of a step fills: from *first, this number. */
static int slots_of(slot *first, mimo_step_kind kind)
{
    static const slot of_kind[MIMO_STEP_KINDS] = {
        [MIMO_STEP_F] = FORWARD,   [MIMO_STEP_B] = GRADIENT,     [MIMO_STEP_I] = GRADIENT,
        [MIMO_STEP_W] = WEIGHT,    [MIMO_STEP_E] = ENCODED,      [MIMO_STEP_BF] = CALLED,
        [MIMO_STEP_EB] = RETURNED, [MIMO_STEP_BB] = CALLED_BACK,
    };
    *first = of_kind[kind];
    return kind == MIMO_STEP_B ? 2 : 1;
}

static int64_t *place_of(const stage_table *table, slot s, int64_t index, int64_t chunk)
{
    return &table->place[s]
                        [s < ENCODED ? chunk * table->schedule->desc.micro_batches + index : index];
}

static const mimo_schedule_step *step_at(const stage_table *table, int64_t i)
{
    return &table->schedule->lists[table->stage].steps[i];
}

#define NAME(step) (mimo_step_name_of(schedule, step).text)

static mimo_status check_range(const mimo_schedule *schedule, int64_t stage, int64_t i,
                               const mimo_schedule_step *part)
{
    bool llm = mimo_step_of_llm(part->kind);
    int64_t most = llm ? schedule->desc.micro_batches : schedule->groups;
    bool inside = part->index >= 0 && part->index < most && part->chunk >= 0 &&
                  part->chunk < schedule->desc.chunks;
    MIMO_CHECK(inside, MIMO_ERR_ARGUMENT,
               "schedule: %s (stage %" PRId64 ", step %" PRId64 ") of %" PRId64 " %s and %" PRId64
               " chunks",
               NAME(part), stage, i, most, llm ? "micro-batches" : "groups", schedule->desc.chunks);
    return MIMO_OK;
}

static mimo_status record_part(stage_table *table, int64_t i, const mimo_schedule_step *part)
{
    const mimo_schedule *schedule = table->schedule;
    slot first;
    int count = slots_of(&first, part->kind);
    MIMO_TRY(check_range(schedule, table->stage, i, part));
    for (int s = 0; s < count; s++) {
        int64_t *place = place_of(table, first + (slot)s, part->index, part->chunk);
        MIMO_CHECK(slot_wanted(schedule, first + (slot)s), MIMO_ERR_ARGUMENT,
                   "schedule: %s (stage %" PRId64 ", step %" PRId64 ") where nothing goes back",
                   NAME(part), table->stage, i);
        MIMO_CHECK(*place == 0, MIMO_ERR_ARGUMENT,
                   "schedule: stage %" PRId64 " has %s at step %" PRId64 " and %s at step %" PRId64,
                   table->stage, NAME(step_at(table, *place - 1)), *place - 1,
                   NAME(step_at(table, i)), i);
        *place = i + 1;
    }
    return MIMO_OK;
}

static mimo_status record_steps(stage_table *table)
{
    const mimo_stage_list *list = &table->schedule->lists[table->stage];
    for (int s = 0; s < SLOTS; s++)
        memset(table->place[s], 0, (size_t)slot_size(table->schedule, (slot)s) * sizeof(int64_t));
    for (int64_t i = 0; i < list->count; i++) {
        mimo_schedule_step parts[2];
        int count = mimo_step_parts(parts, &list->steps[i]);
        for (int k = 0; k < count; k++)
            MIMO_TRY(record_part(table, i, &parts[k]));
    }
    return MIMO_OK;
}

static mimo_status check_complete(const stage_table *table)
{
    static const mimo_step_kind kinds[SLOTS] = {MIMO_STEP_F, MIMO_STEP_B,  MIMO_STEP_W,
                                                MIMO_STEP_E, MIMO_STEP_BF, MIMO_STEP_BB,
                                                MIMO_STEP_EB};
    const mimo_schedule *schedule = table->schedule;
    for (int s = 0; s < SLOTS; s++)
        for (int64_t i = 0; slot_wanted(schedule, (slot)s) && i < slot_size(schedule, (slot)s);
             i++) {
            int64_t per_chunk = s < ENCODED ? schedule->desc.micro_batches : schedule->groups;
            const mimo_schedule_step lost = {kinds[s], i % per_chunk, i / per_chunk, 0, 0};
            MIMO_CHECK(table->place[s][i] > 0, MIMO_ERR_ARGUMENT,
                       "schedule: stage %" PRId64 " has no %s", table->stage, NAME(&lost));
        }
    return MIMO_OK;
}

/* ------------------------------ one stage: after its own inputs ----------------------------- */

/* What step i needs of its own stage stands before it. */
static mimo_status check_before(const stage_table *table, int64_t i, slot s, int64_t index,
                                int64_t chunk)
{
    const mimo_schedule *schedule = table->schedule;
    int64_t place = *place_of(table, s, index, chunk);
    MIMO_CHECK(place <= i, MIMO_ERR_ARGUMENT,
               "schedule: %s before %s (stage %" PRId64 ", step %" PRId64 ")",
               NAME(step_at(table, i)), NAME(step_at(table, place - 1)), table->stage, i);
    return MIMO_OK;
}

/* The neighbour of a chunk in the model, where the same stage has it. */
static mimo_status check_neighbour(const stage_table *table, int64_t i, slot s, int64_t index,
                                   int64_t number)
{
    const mimo_schedule *schedule = table->schedule;
    if (number < 0 || number == mimo_model_chunks(schedule) ||
        schedule->stage_of[number] != table->stage)
        return MIMO_OK;
    return check_before(table, i, s, index, number / schedule->desc.stages);
}

static mimo_status check_llm_inputs(const stage_table *table, int64_t i,
                                    const mimo_schedule_step *part)
{
    const mimo_schedule *schedule = table->schedule;
    int64_t number = mimo_step_number(schedule, table->stage, part->chunk);
    if (part->kind == MIMO_STEP_W)
        return check_before(table, i, GRADIENT, part->index, part->chunk);
    if (part->kind != MIMO_STEP_F) {
        MIMO_TRY(check_before(table, i, FORWARD, part->index, part->chunk));
        return check_neighbour(table, i, GRADIENT, part->index, number + 1);
    }
    if (number == 0 && schedule->groups > 0)
        return check_before(table, i, CALLED, part->index / schedule->desc.encoder_group, 0);
    return check_neighbour(table, i, FORWARD, part->index, number - 1);
}

static mimo_status check_encoder_inputs(const stage_table *table, int64_t i,
                                        const mimo_schedule_step *step)
{
    int64_t first = step->index * table->schedule->desc.encoder_group;
    int64_t size = mimo_group_size(table->schedule, step->index);
    if (step->kind != MIMO_STEP_E)
        MIMO_TRY(check_before(table, i, ENCODED, step->index, 0));
    if (step->kind == MIMO_STEP_EB)
        MIMO_TRY(check_before(table, i, CALLED_BACK, step->index, 0));
    for (int64_t m = 0; step->kind == MIMO_STEP_BB && table->stage == 0 && m < size; m++)
        MIMO_TRY(check_before(table, i, GRADIENT, first + m, 0));
    return MIMO_OK;
}

static mimo_status check_inputs(const stage_table *table)
{
    const mimo_stage_list *list = &table->schedule->lists[table->stage];
    for (int64_t i = 0; i < list->count; i++) {
        mimo_schedule_step parts[2];
        int count = mimo_step_parts(parts, &list->steps[i]);
        for (int k = 0; k < count; k++)
            MIMO_TRY(mimo_step_of_llm(parts[k].kind) ? check_llm_inputs(table, i, &parts[k])
                                                     : check_encoder_inputs(table, i, &parts[k]));
    }
    return MIMO_OK;
}

/* Steps of a kind and chunk stand in the order of their micro-batches. */
static mimo_status check_ascending(const stage_table *table, slot s, const char *rule)
{
    const mimo_schedule *schedule = table->schedule;
    for (int64_t c = 0; c < schedule->desc.chunks; c++)
        for (int64_t m = 1; m < schedule->desc.micro_batches; m++) {
            int64_t place = *place_of(table, s, m, c), before = *place_of(table, s, m - 1, c);
            MIMO_CHECK(before < place, MIMO_ERR_ARGUMENT,
                       "schedule: %s before %s (stage %" PRId64 ", step %" PRId64 "): %s",
                       NAME(step_at(table, place - 1)), NAME(step_at(table, before - 1)),
                       table->stage, place - 1, rule);
        }
    return MIMO_OK;
}

/* Each parameter gets its micro-batches in order, so its bits depend on no schedule. Forwards in
 * order take the encoder's groups in order. */
static mimo_status check_order(const stage_table *table)
{
    static const char backwards[] =
        "backwards of a chunk ascend by micro-batch, so that gradients, which are sums, have the "
        "same bits under every schedule; any_order takes them as they are";
    MIMO_TRY(check_ascending(table, FORWARD, "forwards of a chunk ascend by micro-batch"));
    if (table->schedule->desc.any_order || !slot_wanted(table->schedule, GRADIENT))
        return MIMO_OK;
    MIMO_TRY(check_ascending(table, GRADIENT, backwards));
    return check_ascending(table, WEIGHT, backwards);
}

static mimo_status check_alive(const stage_table *table)
{
    const mimo_schedule *schedule = table->schedule;
    const mimo_stage_list *list = &schedule->lists[table->stage];
    int64_t held = 0;
    for (int64_t i = 0; i < list->count; i++) {
        held += mimo_step_holds(schedule, table->stage, &list->steps[i]);
        MIMO_CHECK(held <= schedule->limit, MIMO_ERR_ARGUMENT,
                   "schedule: stage %" PRId64 " holds %" PRId64
                   " groups at %s, encoder_alive is %" PRId64,
                   table->stage, held, NAME(&list->steps[i]), schedule->limit);
    }
    return MIMO_OK;
}

static mimo_status check_stage(stage_table *table)
{
    MIMO_TRY(record_steps(table));
    MIMO_TRY(check_complete(table));
    MIMO_TRY(check_inputs(table));
    MIMO_TRY(check_order(table));
    return check_alive(table);
}

static mimo_status check_stages(const mimo_schedule *schedule)
{
    stage_table table = {.schedule = schedule};
    mimo_status status = MIMO_OK;
    for (int s = 0; status == MIMO_OK && s < SLOTS; s++)
        status = mimo_reserve(&table.place[s], slot_size(schedule, (slot)s), sizeof(int64_t));
    for (; status == MIMO_OK && table.stage < schedule->desc.stages; table.stage++)
        status = check_stage(&table);
    for (int s = 0; s < SLOTS; s++)
        mimo_release(table.place[s]);
    return status;
}

/* ------------------------------------- between stages ---------------------------------------- */

/* The next call of the bridge from step *i on, or NULL. */
static const mimo_schedule_step *next_call(const mimo_stage_list *list, int64_t *i)
{
    while (*i < list->count)
        if (mimo_step_is_call(list->steps[(*i)++].kind))
            return &list->steps[*i - 1];
    return NULL;
}

static mimo_status check_calls(const mimo_schedule *schedule)
{
    for (int64_t p = 1; p < schedule->desc.stages; p++) {
        int64_t i = 0, j = 0;
        const mimo_schedule_step *first = next_call(&schedule->lists[0], &i);
        const mimo_schedule_step *own = next_call(&schedule->lists[p], &j);
        if (MIMO_MUTATED("bridge-order-by-stage"))
            continue;
        while (first && own) {
            MIMO_CHECK(first->kind == own->kind && first->index == own->index, MIMO_ERR_ARGUMENT,
                       "schedule: stage %" PRId64 " calls %s before %s, stage 0 after it", p,
                       NAME(own), NAME(first));
            first = next_call(&schedule->lists[0], &i);
            own = next_call(&schedule->lists[p], &j);
        }
    }
    return MIMO_OK;
}

/* One direction between two stages: activations go on in the model, gradients go back. */
typedef struct hops {
    const mimo_schedule *schedule;
    int64_t from, to;
    bool forward;
} hops;

/* From step *i of `stage` on, the next part that leaves for `to` or comes from `from`. `towards`: 1
 * where the other side is behind in the model, otherwise -1. *number: the chunk that sends. */
static bool next_hop(const hops *own, int64_t stage, int64_t *i, mimo_schedule_step *out,
                     int64_t *number)
{
    const mimo_schedule *schedule = own->schedule;
    const mimo_stage_list *list = &schedule->lists[stage];
    int64_t on = own->forward ? 1 : -1, other = stage == own->from ? own->to : own->from;
    while (*i < list->count) {
        mimo_schedule_step parts[2];
        int count = mimo_step_parts(parts, &list->steps[(*i)++]);
        for (int k = 0; k < count; k++) {
            if (!mimo_step_of_llm(parts[k].kind) || parts[k].kind == MIMO_STEP_W ||
                (parts[k].kind == MIMO_STEP_F) != own->forward)
                continue;
            int64_t here = mimo_step_number(schedule, stage, parts[k].chunk);
            int64_t there = stage == own->from ? here + on : here - on;
            if (there < 0 || there >= mimo_model_chunks(schedule) ||
                schedule->stage_of[there] != other)
                continue;
            *out = parts[k];
            *number = stage == own->from ? here : there;
            return true;
        }
    }
    return false;
}

static mimo_status check_direction(const hops *own)
{
    const mimo_schedule *schedule = own->schedule;
    mimo_schedule_step sent, taken;
    int64_t i = 0, j = 0, number, expected;
    while (next_hop(own, own->from, &i, &sent, &number)) {
        bool there = next_hop(own, own->to, &j, &taken, &expected);
        MIMO_CHECK(there && number == expected && sent.index == taken.index, MIMO_ERR_ARGUMENT,
                   "schedule: stage %" PRId64 " sends what %s made, stage %" PRId64
                   " takes for %s first (steps %" PRId64 " and %" PRId64 ")",
                   own->from, NAME(&sent), own->to, NAME(&taken), i - 1, j - 1);
    }
    return MIMO_OK;
}

/* The chunks n and n + 1 are the first ones that lie on their two stages in this order. Only chunks
 * of the first stage can say otherwise. */
static bool is_first_boundary(const mimo_schedule *schedule, int64_t n)
{
    int64_t stage = schedule->stage_of[n], behind = schedule->stage_of[n + 1];
    for (int64_t c = 0; c < schedule->desc.chunks; c++) {
        int64_t before = mimo_step_number(schedule, stage, c);
        if (before < n && schedule->stage_of[before + 1] == behind)
            return false;
    }
    return true;
}

static mimo_status check_hops(const mimo_schedule *schedule)
{
    for (int64_t n = 0; n + 1 < mimo_model_chunks(schedule); n++) {
        int64_t a = schedule->stage_of[n], b = schedule->stage_of[n + 1];
        if (a == b || !is_first_boundary(schedule, n))
            continue;
        MIMO_TRY(check_direction(&(hops){schedule, a, b, true}));
        MIMO_TRY(check_direction(&(hops){schedule, b, a, false}));
    }
    return MIMO_OK;
}

/* ---------------------------------------- no deadlock ---------------------------------------- */

typedef struct wait {
    int64_t stage;           /* who must do something first */
    mimo_schedule_step step; /* what */
} wait;

/* The first stage that has not begun a call. */
static wait wait_for_call(const mimo_schedule_walk *walk, mimo_step_kind kind, int64_t group)
{
    int64_t pp = walk->events.schedule->desc.stages, p = 0;
    while (p + 1 < pp && walk->callers[kind == MIMO_STEP_BB][group * pp + p])
        p++;
    return (wait){p, {kind, group, 0, 0, 0}};
}

/* The chunk before or behind, in the model. */
static wait wait_for_chunk(const mimo_schedule *schedule, mimo_step_kind kind, int64_t number,
                           int64_t index)
{
    return (wait){schedule->stage_of[number], {kind, index, number / schedule->desc.stages, 0, 0}};
}

/* What the next step of a stage, which can't begin, waits for. */
static wait wait_of(const mimo_schedule_walk *walk, int64_t p)
{
    const mimo_schedule *schedule = walk->events.schedule;
    mimo_schedule_step parts[2], part;
    int count = mimo_step_parts(parts, &schedule->lists[p].steps[walk->at[p]]);
    part =
        mimo_step_ready(&walk->events, p, &parts[0]) == MIMO_NOT_YET ? parts[0] : parts[count - 1];
    if (part.kind == MIMO_STEP_EB)
        return wait_for_call(walk, MIMO_STEP_BB, part.index);
    int64_t number = mimo_step_number(schedule, p, part.chunk);
    if (part.kind == MIMO_STEP_F)
        return number == 0
                   ? wait_for_call(walk, MIMO_STEP_BF, part.index / schedule->desc.encoder_group)
                   : wait_for_chunk(schedule, MIMO_STEP_F, number - 1, part.index);
    /* the last chunk's backward stands behind its own forward, so it never waits */
    return wait_for_chunk(schedule, MIMO_STEP_B, number + 1, part.index);
}

static mimo_status check_walk(const mimo_schedule_walk *walk)
{
    const mimo_schedule *schedule = walk->events.schedule;
    int64_t p = mimo_schedule_walk_stuck(walk);
    if (p < 0)
        return MIMO_OK;
    wait first = wait_of(walk, p), second = wait_of(walk, first.stage);
    return mimo_fail(MIMO_ERR_ARGUMENT,
                     "schedule: stuck: stage %" PRId64 " at %s waits for %s of stage %" PRId64
                     ", which is at %s and waits for stage %" PRId64,
                     p, NAME(&schedule->lists[p].steps[walk->at[p]]), NAME(&first.step),
                     first.stage, NAME(&schedule->lists[first.stage].steps[walk->at[first.stage]]),
                     second.stage);
}

static mimo_status check_deadlock(const mimo_schedule *schedule)
{
    mimo_schedule_walk walk;
    MIMO_TRY(mimo_schedule_walk_open(&walk, schedule, &schedule->costs));
    mimo_status status = check_walk(&walk);
    mimo_schedule_walk_close(&walk);
    return status;
}

mimo_status mimo_schedule_check(const mimo_schedule *schedule)
{
    MIMO_CHECK(schedule, MIMO_ERR_ARGUMENT, "mimo_schedule_check: schedule is NULL");
    MIMO_TRY(check_stages(schedule));
    MIMO_TRY(check_deadlock(schedule));
    MIMO_TRY(check_calls(schedule));
    return check_hops(schedule);
}
