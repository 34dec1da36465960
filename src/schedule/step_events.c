#include "schedule/step_events.h"

#include "core/checked.h"
#include "core/memory.h"

static mimo_status reserve_times(int64_t **out, int64_t count)
{
    MIMO_TRY(mimo_reserve(out, count, sizeof **out));
    for (int64_t i = 0; i < count; i++)
        (*out)[i] = MIMO_NOT_YET;
    return MIMO_OK;
}

mimo_status mimo_step_events_open(mimo_step_events *out, const mimo_schedule *schedule,
                                  const mimo_step_costs *costs)
{
    int64_t count = mimo_model_chunks(schedule) * schedule->desc.micro_batches;
    mimo_status status = MIMO_OK;
    *out = (mimo_step_events){schedule, costs, NULL, NULL, NULL, NULL};
    MIMO_TRY_GOTO(status, fail, reserve_times(&out->forward, count));
    MIMO_TRY_GOTO(status, fail, reserve_times(&out->gradient, count));
    MIMO_TRY_GOTO(status, fail, reserve_times(&out->rows, schedule->groups));
    MIMO_TRY_GOTO(status, fail, reserve_times(&out->sums, schedule->groups));
    return MIMO_OK;
fail:
    mimo_step_events_close(out);
    return status;
}

void mimo_step_events_close(mimo_step_events *events)
{
    mimo_release(events->forward);
    mimo_release(events->gradient);
    mimo_release(events->rows);
    mimo_release(events->sums);
    *events = (mimo_step_events){NULL, NULL, NULL, NULL, NULL, NULL};
}

/* When what chunk `from` of the model made is on a stage. */
static int64_t arrives(const mimo_step_events *events, const int64_t *made, int64_t from,
                       int64_t stage, int64_t micro_batch)
{
    int64_t at = made[from * events->schedule->desc.micro_batches + micro_batch];
    bool moves = events->schedule->stage_of[from] != stage;
    return at == MIMO_NOT_YET || !moves ? at : at + events->costs->hop;
}

static int64_t part_ready(const mimo_step_events *events, int64_t stage,
                          const mimo_schedule_step *part)
{
    const mimo_schedule *schedule = events->schedule;
    int64_t last = mimo_model_chunks(schedule) - 1;
    int64_t number =
        mimo_step_of_llm(part->kind) ? mimo_step_number(schedule, stage, part->chunk) : 0;
    switch (part->kind) {
    case MIMO_STEP_F:
        if (number > 0)
            return arrives(events, events->forward, number - 1, stage, part->index);
        return schedule->groups > 0 ? events->rows[part->index / schedule->desc.encoder_group] : 0;
    case MIMO_STEP_B:
    case MIMO_STEP_I:
        if (number < last)
            return arrives(events, events->gradient, number + 1, stage, part->index);
        return arrives(events, events->forward, number, stage, part->index);
    case MIMO_STEP_W:
        return arrives(events, events->gradient, number, stage, part->index);
    case MIMO_STEP_EB:
        return events->sums[part->index];
    default: /* E needs nothing; a stage begins a call when it comes to it */
        return 0;
    }
}

int64_t mimo_step_ready(const mimo_step_events *events, int64_t stage,
                        const mimo_schedule_step *step)
{
    mimo_schedule_step parts[2];
    int count = mimo_step_parts(parts, step);
    int64_t latest = 0;
    for (int i = 0; i < count; i++) {
        int64_t ready = part_ready(events, stage, &parts[i]);
        if (ready == MIMO_NOT_YET)
            return MIMO_NOT_YET;
        latest = ready > latest ? ready : latest;
    }
    return latest;
}

static int64_t part_duration(const mimo_step_events *events, int64_t stage,
                             const mimo_schedule_step *part)
{
    const mimo_schedule *schedule = events->schedule;
    int64_t cost = events->costs->of[part->kind];
    if (mimo_step_is_call(part->kind))
        return 0;
    if (!mimo_step_of_llm(part->kind))
        return cost * mimo_group_size(schedule, part->index);
    if (mimo_step_number(schedule, stage, part->chunk) < mimo_model_chunks(schedule) - 1)
        return cost;
    return cost + events->costs->head * (part->kind == MIMO_STEP_B ? 2 : 1);
}

int64_t mimo_step_duration(const mimo_step_events *events, int64_t stage,
                           const mimo_schedule_step *step)
{
    mimo_schedule_step parts[2];
    int count = mimo_step_parts(parts, step);
    int64_t sum = 0, single = 0, pair = events->costs->of[MIMO_STEP_FB];
    for (int i = 0; i < count; i++) {
        sum += part_duration(events, stage, &parts[i]);
        single += events->costs->of[parts[i].kind];
    }
    return count == 2 && pair > 0 ? pair + sum - single : sum; /* the head stays on top */
}

void mimo_step_ended(mimo_step_events *events, int64_t stage, const mimo_schedule_step *step,
                     int64_t end)
{
    mimo_schedule_step parts[2];
    int count = mimo_step_parts(parts, step);
    for (int i = 0; i < count; i++) {
        int64_t number = mimo_step_number(events->schedule, stage, parts[i].chunk);
        int64_t at = number * events->schedule->desc.micro_batches + parts[i].index;
        if (parts[i].kind == MIMO_STEP_F)
            events->forward[at] = end;
        else if (parts[i].kind != MIMO_STEP_W)
            events->gradient[at] = end;
    }
}
