/*
 * The encoder's steps between those of the LLM.
 *
 * All stages are simulated at once, with the costs. An encoder group is a step of each stage. In
 * each turn the stage acts that can begin something first. While the next LLM step of a stage waits
 * for its inputs, the stage encodes a group ahead or sends one back, where that ends in time; where
 * stage 0 is about to need a group, encoding comes first.
 *
 * A call of the bridge ends when all stages have begun it. So its place on every stage follows from
 * one moment, its key: BF when the last stage has encoded the group, BB when stage 0 has the last
 * gradient of it. Calls are sorted by key, and stand on each stage before the first step that ends
 * later. So all stages begin them in one order, within a step of each other.
 */
#include "schedule/stage_queue.h"
#include "schedule/step_events.h"

#include <stdlib.h>

#include "core/checked.h"
#include "core/memory.h"
#include "core/mutation.h"

typedef struct placed_step {
    mimo_schedule_step step;
    int64_t end;
} placed_step;

/* What a stage can do next. begin MIMO_NOT_YET: nothing. */
typedef struct choice {
    mimo_schedule_step step;
    int64_t begin, end;
} choice;

/* What a stage has done so far. */
typedef struct stage_place {
    int64_t clock, next;       /* next: of its LLM steps */
    int64_t encoded, returned; /* groups; where the encoder does not learn, none returns */
    placed_step *done;
    int64_t count;
    choice choice; /* what it does next, unless the stage is in `forgotten` */
} stage_place;

/* What stage 0 and the encoders have done of a group. */
typedef struct group_place {
    int64_t encoders, encoded_at;   /* stages that have encoded it, and the latest end */
    int64_t forwards, forward_at;   /* chunk 0 on stage 0: micro-batches, and the latest end */
    int64_t backwards, backward_at; /* the same */
} group_place;

typedef struct placing {
    mimo_schedule *schedule;
    mimo_step_costs costs;
    mimo_step_events events;
    stage_place *stages;
    group_place *groups;
    mimo_stage_set forgotten; /* stages whose choice may be another one now */
    mimo_stage_queue queue;   /* of the choices of the others */
    bool learns;
} placing;

static const choice nothing = {{MIMO_STEP_F, 0, 0, 0, 0}, MIMO_NOT_YET, MIMO_NOT_YET};

static choice choose(const placing *own, int64_t p, mimo_schedule_step step, int64_t begin)
{
    return (choice){step, begin, begin + mimo_step_duration(&own->events, p, &step)};
}

static const mimo_schedule_step *next_llm(const placing *own, int64_t p)
{
    const mimo_stage_list *list = &own->schedule->lists[p];
    return own->stages[p].next < list->count ? &list->steps[own->stages[p].next] : NULL;
}

/* ------------------------------------------- choices ---------------------------------------- */

/* The group whose rows an LLM step of stage 0 takes; -1: none. */
static int64_t group_opened_by(const placing *own, const mimo_schedule_step *step)
{
    bool forward = step->kind == MIMO_STEP_F || step->kind == MIMO_STEP_FB;
    return forward && step->chunk == 0 ? step->index / own->schedule->desc.encoder_group : -1;
}

/* The next LLM step of stage 0 is the first one that needs a group which `p` has not encoded. */
static bool stage_0_needs(const placing *own, int64_t p)
{
    const mimo_schedule_step *next = next_llm(own, 0);
    return next && group_opened_by(own, next) >= own->stages[p].encoded;
}

/* Stage p holds as many groups as it may. */
static bool is_full(const placing *own, int64_t p)
{
    const stage_place *stage = &own->stages[p];
    int64_t oldest = stage->encoded - own->schedule->limit;
    if (MIMO_MUTATED("limit-plus-one"))
        oldest--;
    if (own->learns)
        return stage->returned <= oldest;
    return oldest >= 0 && own->groups[oldest].forwards < mimo_group_size(own->schedule, oldest);
}

static choice to_encode(const placing *own, int64_t p)
{
    const stage_place *stage = &own->stages[p];
    int64_t oldest = stage->encoded - own->schedule->limit, begin = stage->clock;
    if (stage->encoded == own->schedule->groups || is_full(own, p))
        return nothing;
    if (!own->learns && oldest >= 0)
        begin = mimo_larger(begin, own->groups[oldest].forward_at);
    return choose(own, p, (mimo_schedule_step){MIMO_STEP_E, stage->encoded, 0, 0, 0}, begin);
}

static choice to_return(const placing *own, int64_t p)
{
    const stage_place *stage = &own->stages[p];
    if (!own->learns || stage->returned == stage->encoded ||
        own->events.sums[stage->returned] == MIMO_NOT_YET)
        return nothing;
    return choose(own, p, (mimo_schedule_step){MIMO_STEP_EB, stage->returned, 0, 0, 0},
                  mimo_larger(stage->clock, own->events.sums[stage->returned]));
}

/* The one that begins first, the way back before the way there. */
static choice earlier(choice back, choice there)
{
    if (back.begin == MIMO_NOT_YET)
        return there;
    return there.begin == MIMO_NOT_YET || back.begin <= there.begin ? back : there;
}

static choice unless_later(choice one, int64_t end)
{
    return one.end > end ? nothing : one;
}

/* An LLM step whose inputs are there at `ready` begins before that time. */
static bool begins_before(const placing *own, int64_t p, int64_t ready, int64_t time)
{
    return ready != MIMO_NOT_YET && mimo_larger(ready, own->stages[p].clock) < time;
}

static choice next_of(const placing *own, int64_t p)
{
    const mimo_schedule_step *llm = next_llm(own, p);
    int64_t ready = llm ? mimo_step_ready(&own->events, p, llm) : MIMO_NOT_YET;
    choice there = to_encode(own, p), back = to_return(own, p);
    bool needed = stage_0_needs(own, p), full = own->learns && is_full(own, p);
    bool can_return = back.begin != MIMO_NOT_YET;
    if (needed && there.begin != MIMO_NOT_YET && !begins_before(own, p, ready, there.begin))
        return there;
    if (full && can_return && (needed || back.begin <= own->stages[p].clock))
        return back;
    if (ready == MIMO_NOT_YET) /* a stage that is full, and can return nothing, has no choice */
        return earlier(back, there);
    if (ready <= own->stages[p].clock)
        return choose(own, p, *llm, own->stages[p].clock);
    choice filler = earlier(unless_later(back, ready), unless_later(there, ready));
    return filler.begin != MIMO_NOT_YET ? filler : choose(own, p, *llm, ready);
}

/* -------------------------------------------- turns ----------------------------------------- */

static void note_encoded(placing *own, int64_t group, int64_t end)
{
    group_place *place = &own->groups[group];
    place->encoded_at = mimo_larger(place->encoded_at, end);
    if (++place->encoders < own->schedule->desc.stages)
        return;
    own->events.rows[group] = place->encoded_at + own->events.costs->of[MIMO_STEP_BF];
    mimo_stage_set_add(&own->forgotten, 0);
}

static void forget_all(placing *own)
{
    mimo_stage_set_add_all(&own->forgotten, own->schedule->desc.stages);
}

/* Chunk 0 on stage 0 takes the rows of a group. Where nothing goes back, a stage may hold another
 * group once all of them are taken. */
static void note_first_forward(placing *own, int64_t group, int64_t end)
{
    group_place *place = &own->groups[group];
    place->forward_at = mimo_larger(place->forward_at, end);
    if (++place->forwards == mimo_group_size(own->schedule, group))
        forget_all(own);
}

/* It gives back their gradients, which all stages wait for. */
static void note_first_backward(placing *own, int64_t group, int64_t end)
{
    group_place *place = &own->groups[group];
    place->backward_at = mimo_larger(place->backward_at, end);
    bool whole = ++place->backwards == mimo_group_size(own->schedule, group);
    if (!whole && !MIMO_MUTATED("group-back-early"))
        return;
    own->events.sums[group] = place->backward_at + own->events.costs->of[MIMO_STEP_BB];
    forget_all(own);
}

static void note_first_chunk(placing *own, const mimo_schedule_step *step, int64_t end)
{
    mimo_schedule_step parts[2];
    int count = mimo_step_parts(parts, step);
    for (int i = 0; i < count; i++) {
        int64_t group = parts[i].index / own->schedule->desc.encoder_group;
        if (parts[i].chunk > 0 || parts[i].kind == MIMO_STEP_W)
            continue;
        if (parts[i].kind == MIMO_STEP_F)
            note_first_forward(own, group, end);
        else
            note_first_backward(own, group, end);
    }
}

/* Stages encode at once what stage 0 needs. It goes on when all have encoded the group, so a group
 * is needed once, and all stages together are asked once for each group. */
static void note_need(placing *own)
{
    const mimo_schedule_step *next = next_llm(own, 0);
    int64_t group = next ? group_opened_by(own, next) : -1;
    if (group >= 0 && own->groups[group].encoders < own->schedule->desc.stages)
        forget_all(own);
}

/* The stages that receive what an LLM step made. */
static void forget_takers(placing *own, int64_t p, const mimo_schedule_step *step)
{
    const mimo_schedule *schedule = own->schedule;
    mimo_schedule_step parts[2];
    int count = mimo_step_parts(parts, step);
    for (int i = 0; i < count; i++) {
        int64_t number = mimo_step_number(schedule, p, parts[i].chunk);
        int64_t taker = parts[i].kind == MIMO_STEP_F ? number + 1 : number - 1;
        if (taker >= 0 && taker < mimo_model_chunks(schedule))
            mimo_stage_set_add(&own->forgotten, schedule->stage_of[taker]);
    }
}

/* After a step these stages must be asked again: its own; those that receive what an LLM step made;
 * stage 0 where its rows came (note_encoded); all where stage 0 took the last rows of a group, gave
 * back its last gradients, or needs a group. */
static void act(placing *own, int64_t p)
{
    stage_place *stage = &own->stages[p];
    const choice *chosen = &stage->choice;
    stage->clock = chosen->end;
    stage->done[stage->count++] = (placed_step){chosen->step, chosen->end};
    mimo_stage_set_add(&own->forgotten, p);
    if (chosen->step.kind == MIMO_STEP_E) {
        stage->encoded++;
        note_encoded(own, chosen->step.index, chosen->end);
    } else if (chosen->step.kind == MIMO_STEP_EB) {
        stage->returned++;
    } else {
        stage->next++;
        mimo_step_ended(&own->events, p, &chosen->step, chosen->end);
        forget_takers(own, p, &chosen->step);
    }
    if (p == 0 && mimo_step_of_llm(chosen->step.kind)) {
        note_first_chunk(own, &chosen->step, chosen->end);
        note_need(own);
    }
}

/* One step of the stage that can begin first; the lowest one of equals. */
static bool take_turn(placing *own)
{
    for (int64_t p; (p = mimo_stage_set_take(&own->forgotten)) >= 0;) {
        own->stages[p].choice = next_of(own, p);
        mimo_stage_queue_put(&own->queue, p, own->stages[p].choice.begin);
    }
    int64_t who = mimo_stage_queue_first(&own->queue);
    if (who >= 0)
        act(own, who);
    return who >= 0;
}

static bool all_are_done(const placing *own)
{
    const mimo_schedule *schedule = own->schedule;
    for (int64_t p = 0; p < schedule->desc.stages; p++) {
        const stage_place *stage = &own->stages[p];
        if (stage->next < schedule->lists[p].count || stage->encoded < schedule->groups ||
            (own->learns && stage->returned < schedule->groups))
            return false;
    }
    return true;
}

static mimo_status take_all_turns(placing *own)
{
    const mimo_schedule_desc *desc = &own->schedule->desc;
    int64_t least;
    forget_all(own);
    while (take_turn(own))
        ;
    if (all_are_done(own))
        return MIMO_OK;
    MIMO_TRY(mimo_schedule_least_alive(&least, own->schedule, desc->encoder_group));
    return mimo_fail(MIMO_ERR_ARGUMENT,
                     "schedule: encoder_alive %" PRId64 ": stage 0 needs %" PRId64
                     " groups before the first one is done",
                     desc->encoder_alive, least);
}

/* -------------------------------------------- calls ----------------------------------------- */

typedef struct call {
    mimo_schedule_step step;
    int64_t key;
} call;

static int by_key(const void *a, const void *b)
{
    const call *one = a, *other = b;
    if (one->key != other->key)
        return one->key < other->key ? -1 : 1;
    if (one->step.kind != other->step.kind)
        return one->step.kind < other->step.kind ? -1 : 1; /* BF before BB */
    return (one->step.index > other->step.index) - (one->step.index < other->step.index);
}

static int64_t sort_calls(call *calls, const placing *own)
{
    int64_t count = 0;
    for (int64_t g = 0; g < own->schedule->groups; g++) {
        calls[count++] = (call){{MIMO_STEP_BF, g, 0, 0, 0}, own->groups[g].encoded_at};
        if (own->learns)
            calls[count++] = (call){{MIMO_STEP_BB, g, 0, 0, 0}, own->groups[g].backward_at};
    }
    if (!MIMO_MUTATED("calls-by-group"))
        qsort(calls, (size_t)count, sizeof *calls, by_key);
    return count;
}

/* Every list ends with a step that needs its last call. */
static mimo_status join_calls(mimo_stage_list *list, const stage_place *stage, const call *calls,
                              int64_t count)
{
    int64_t next = 0;
    for (int64_t i = 0; i < stage->count; i++) {
        for (; next < count && calls[next].key < stage->done[i].end; next++)
            MIMO_TRY(mimo_stage_append(list, calls[next].step));
        if (MIMO_MUTATED("backward-right-away") && next < count &&
            calls[next].step.kind == MIMO_STEP_BB)
            MIMO_TRY(mimo_stage_append(list, calls[next++].step));
        MIMO_TRY(mimo_stage_append(list, stage->done[i].step));
    }
    return MIMO_OK;
}

/* Replace the LLM's lists by the joined ones. */
static mimo_status join_lists(placing *own)
{
    mimo_schedule *schedule = own->schedule;
    call *calls = NULL;
    mimo_status status = MIMO_OK;
    MIMO_TRY(mimo_reserve(&calls, 2 * schedule->groups, sizeof *calls));
    int64_t count = sort_calls(calls, own);
    for (int64_t p = 0; status == MIMO_OK && p < schedule->desc.stages; p++) {
        mimo_stage_list joined = {NULL, 0, 0};
        status = join_calls(&joined, &own->stages[p], calls, count);
        mimo_release(status == MIMO_OK ? schedule->lists[p].steps : joined.steps);
        if (status == MIMO_OK)
            schedule->lists[p] = joined;
    }
    mimo_release(calls);
    return status;
}

/* -------------------------------------------- life ------------------------------------------ */

/* A step without a cost would end when it begins, and what happens at one time has no order. Where
 * there are such steps, they take the smallest part of what others take. */
static mimo_step_costs costs_above_0(const mimo_step_costs *costs)
{
    static const mimo_step_kind kinds[] = {MIMO_STEP_F, MIMO_STEP_B, MIMO_STEP_I,
                                           MIMO_STEP_W, MIMO_STEP_E, MIMO_STEP_EB};
    mimo_step_costs scaled = *costs;
    bool above = true;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        above = above && costs->of[kinds[i]] > 0;
    if (above)
        return *costs;
    for (int kind = 0; kind < MIMO_STEP_KINDS; kind++)
        scaled.of[kind] *= MIMO_COST_SCALE;
    scaled.head *= MIMO_COST_SCALE;
    scaled.hop *= MIMO_COST_SCALE;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        scaled.of[kinds[i]] += costs->of[kinds[i]] == 0;
    return scaled;
}

static mimo_status open_placing(placing *own, mimo_schedule *schedule)
{
    int64_t pp = schedule->desc.stages;
    own->schedule = schedule;
    own->costs = costs_above_0(&schedule->costs);
    own->learns = mimo_schedule_encoder_learns(schedule);
    MIMO_TRY(mimo_step_events_open(&own->events, schedule, &own->costs));
    MIMO_TRY(mimo_reserve(&own->groups, schedule->groups, sizeof *own->groups));
    MIMO_TRY(mimo_reserve(&own->stages, pp, sizeof *own->stages));
    MIMO_TRY(mimo_stage_set_open(&own->forgotten, pp));
    MIMO_TRY(mimo_stage_queue_open(&own->queue, pp));
    for (int64_t p = 0; p < pp; p++)
        MIMO_TRY(mimo_reserve(&own->stages[p].done, schedule->lists[p].count + 2 * schedule->groups,
                              sizeof *own->stages[p].done));
    return MIMO_OK;
}

static void close_placing(placing *own)
{
    for (int64_t p = 0; own->stages && p < own->schedule->desc.stages; p++)
        mimo_release(own->stages[p].done);
    mimo_release(own->stages);
    mimo_release(own->groups);
    mimo_stage_set_close(&own->forgotten);
    mimo_stage_queue_close(&own->queue);
    mimo_step_events_close(&own->events);
}

mimo_status mimo_schedule_place_encoder(mimo_schedule *schedule)
{
    placing own = {0};
    mimo_status status = open_placing(&own, schedule);
    if (status == MIMO_OK)
        status = take_all_turns(&own);
    if (status == MIMO_OK)
        status = join_lists(&own);
    close_placing(&own);
    return status;
}
