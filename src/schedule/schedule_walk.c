#include "schedule/schedule_walk.h"

#include "core/memory.h"
#include "core/mutation.h"

static int which(mimo_step_kind kind)
{
    return kind == MIMO_STEP_BB;
}

/* A stage comes to a call. The last one to come lets it end; calls of a bridge end one after the
 * other. */
static void begin_call(mimo_schedule_walk *walk, int64_t stage, const mimo_schedule_step *step)
{
    int way = which(step->kind);
    int64_t g = step->index, pp = walk->events.schedule->desc.stages, now = walk->clock[stage];
    int64_t *done = way == 0 ? walk->events.rows : walk->events.sums;
    walk->callers[way][g * pp + stage] = 1;
    walk->latest[way][g] = now > walk->latest[way][g] ? now : walk->latest[way][g];
    bool last = ++walk->begun[way][g] == pp;
    if (!last && !MIMO_MUTATED("call-ends-alone"))
        return;
    int64_t from = walk->latest[way][g] > walk->bridge ? walk->latest[way][g] : walk->bridge;
    walk->bridge = from + walk->events.costs->of[step->kind];
    done[g] = walk->bridge;
    if (way == 0)
        mimo_stage_set_add(&walk->ready, walk->events.schedule->stage_of[0]);
    else
        mimo_stage_set_add_all(&walk->ready, pp);
}

/* The stages that take what a part of the LLM made. */
static void wake_takers(mimo_schedule_walk *walk, int64_t stage, const mimo_schedule_step *step)
{
    const mimo_schedule *schedule = walk->events.schedule;
    mimo_schedule_step parts[2];
    int count = mimo_step_parts(parts, step);
    for (int i = 0; i < count; i++) {
        int64_t number = mimo_step_number(schedule, stage, parts[i].chunk);
        int64_t taker = parts[i].kind == MIMO_STEP_F ? number + 1 : number - 1;
        if (taker >= 0 && taker < mimo_model_chunks(schedule))
            mimo_stage_set_add(&walk->ready, schedule->stage_of[taker]);
    }
}

/* Do the next step of a stage, if what it waits for is there. */
static bool advance(mimo_schedule_walk *walk, int64_t p)
{
    const mimo_stage_list *list = &walk->events.schedule->lists[p];
    int64_t i = walk->at[p];
    if (i == list->count)
        return false;
    const mimo_schedule_step *step = &list->steps[i];
    int64_t ready = mimo_step_ready(&walk->events, p, step);
    if (ready == MIMO_NOT_YET)
        return false;
    walk->begin[p][i] = ready > walk->clock[p] ? ready : walk->clock[p];
    walk->end[p][i] = walk->begin[p][i] + mimo_step_duration(&walk->events, p, step);
    walk->clock[p] = walk->end[p][i];
    walk->at[p]++;
    if (mimo_step_is_call(step->kind))
        begin_call(walk, p, step);
    if (mimo_step_of_llm(step->kind)) {
        mimo_step_ended(&walk->events, p, step, walk->end[p][i]);
        wake_takers(walk, p, step);
    }
    return true;
}

/* Calls end when their rows are there, which the stage did not wait for. */
static void end_calls(mimo_schedule_walk *walk, int64_t p)
{
    const mimo_stage_list *list = &walk->events.schedule->lists[p];
    for (int64_t i = 0; i < walk->at[p]; i++) {
        const mimo_schedule_step *step = &list->steps[i];
        if (mimo_step_is_call(step->kind))
            walk->end[p][i] =
                (step->kind == MIMO_STEP_BF ? walk->events.rows : walk->events.sums)[step->index];
    }
}

static mimo_status reserve_walk(mimo_schedule_walk *walk, const mimo_schedule *schedule)
{
    int64_t pp = schedule->desc.stages;
    MIMO_TRY(mimo_reserve(&walk->at, pp, sizeof *walk->at));
    MIMO_TRY(mimo_reserve(&walk->clock, pp, sizeof *walk->clock));
    MIMO_TRY(mimo_reserve(&walk->begin, pp, sizeof *walk->begin));
    MIMO_TRY(mimo_reserve(&walk->end, pp, sizeof *walk->end));
    MIMO_TRY(mimo_stage_set_open(&walk->ready, pp));
    for (int64_t p = 0; p < pp; p++) {
        MIMO_TRY(mimo_reserve(&walk->begin[p], schedule->lists[p].count, sizeof **walk->begin));
        MIMO_TRY(mimo_reserve(&walk->end[p], schedule->lists[p].count, sizeof **walk->end));
    }
    for (int way = 0; way < 2; way++) {
        MIMO_TRY(mimo_reserve(&walk->begun[way], schedule->groups, sizeof *walk->begun[way]));
        MIMO_TRY(mimo_reserve(&walk->latest[way], schedule->groups, sizeof *walk->latest[way]));
        MIMO_TRY(
            mimo_reserve(&walk->callers[way], schedule->groups * pp, sizeof *walk->callers[way]));
    }
    return MIMO_OK;
}

mimo_status mimo_schedule_walk_open(mimo_schedule_walk *out, const mimo_schedule *schedule,
                                    const mimo_step_costs *costs)
{
    int64_t pp = schedule->desc.stages;
    *out = (mimo_schedule_walk){0};
    MIMO_TRY(mimo_step_events_open(&out->events, schedule, costs));
    mimo_status status = reserve_walk(out, schedule);
    if (status != MIMO_OK) {
        mimo_schedule_walk_close(out);
        return status;
    }
    mimo_stage_set_add_all(&out->ready, pp);
    for (int64_t p; (p = mimo_stage_set_take(&out->ready)) >= 0;)
        while (advance(out, p))
            ;
    for (int64_t p = 0; p < pp; p++)
        end_calls(out, p);
    return MIMO_OK;
}

void mimo_schedule_walk_close(mimo_schedule_walk *walk)
{
    int64_t pp = walk->events.schedule ? walk->events.schedule->desc.stages : 0;
    for (int64_t p = 0; p < pp; p++) {
        if (walk->begin)
            mimo_release(walk->begin[p]);
        if (walk->end)
            mimo_release(walk->end[p]);
    }
    mimo_release(walk->begin);
    mimo_release(walk->end);
    mimo_release(walk->at);
    mimo_release(walk->clock);
    mimo_stage_set_close(&walk->ready);
    for (int way = 0; way < 2; way++) {
        mimo_release(walk->begun[way]);
        mimo_release(walk->latest[way]);
        mimo_release(walk->callers[way]);
    }
    mimo_step_events_close(&walk->events);
}

int64_t mimo_schedule_walk_stuck(const mimo_schedule_walk *walk)
{
    const mimo_schedule *schedule = walk->events.schedule;
    for (int64_t p = 0; p < schedule->desc.stages; p++)
        if (walk->at[p] < schedule->lists[p].count)
            return p;
    return -1;
}

int64_t mimo_schedule_walk_time(const mimo_schedule_walk *walk)
{
    int64_t time = walk->bridge;
    for (int64_t p = 0; p < walk->events.schedule->desc.stages; p++)
        time = walk->clock[p] > time ? walk->clock[p] : time;
    return time;
}
