/* Times, memory and the report of a schedule. */
#include "schedule/schedule_walk.h"

#include <string.h>

#include "core/checked.h"
#include "core/descriptor.h"
#include "core/memory.h"

MIMO_DEFINE_INIT(mimo_schedule_memory, MIMO_SCHEDULE_MEMORY_INIT)
MIMO_DEFINE_INIT(mimo_schedule_report, MIMO_SCHEDULE_REPORT_INIT)

static mimo_status check_stage_number(const mimo_schedule *schedule, int64_t stage,
                                      const char *function)
{
    MIMO_CHECK(stage >= 0 && stage < schedule->desc.stages, MIMO_ERR_ARGUMENT,
               "%s: there is no stage %" PRId64 " of %" PRId64, function, stage,
               schedule->desc.stages);
    return MIMO_OK;
}

/* ------------------------------------------- times ------------------------------------------ */

mimo_status mimo_schedule_times(int64_t *begin, int64_t *end, const mimo_schedule *schedule,
                                int64_t stage, const mimo_step_costs *costs)
{
    mimo_schedule_walk walk;
    mimo_step_costs own;
    MIMO_CHECK(begin && end && schedule, MIMO_ERR_ARGUMENT, "mimo_schedule_times: %s is NULL",
               !begin ? "begin" : (end ? "schedule" : "end"));
    MIMO_TRY(check_stage_number(schedule, stage, "mimo_schedule_times"));
    MIMO_TRY(mimo_step_costs_read(&own, &schedule->desc, costs, &schedule->costs));
    MIMO_TRY(mimo_schedule_walk_open(&walk, schedule, &own));
    size_t bytes = (size_t)schedule->lists[stage].count * sizeof *begin;
    memcpy(begin, walk.begin[stage], bytes);
    memcpy(end, walk.end[stage], bytes);
    mimo_schedule_walk_close(&walk);
    return MIMO_OK;
}

/* ------------------------------------------- memory ----------------------------------------- */

/* What is held at one moment. */
typedef struct holding {
    int64_t encoder, chunks, weights;
    int64_t *of_chunk, *most_of_chunk; /* [V] */
} holding;

static void hold(holding *now, mimo_schedule_memory *most, const mimo_schedule_step *part)
{
    bool frees = part->kind == MIMO_STEP_B || part->kind == MIMO_STEP_W;
    int64_t change = part->kind == MIMO_STEP_F ? 1 : (frees ? -1 : 0);
    now->chunks += change;
    now->of_chunk[part->chunk] += change;
    now->weights += (part->kind == MIMO_STEP_I) - (part->kind == MIMO_STEP_W);
    now->most_of_chunk[part->chunk] =
        mimo_larger(now->most_of_chunk[part->chunk], now->of_chunk[part->chunk]);
    most->chunks_alive = mimo_larger(most->chunks_alive, now->chunks);
    most->weights_waiting = mimo_larger(most->weights_waiting, now->weights);
}

/* The group that a step takes or frees: of an F, that of its micro-batch. */
static void hold_group(holding *now, mimo_schedule_memory *most, const mimo_schedule *schedule,
                       int64_t stage, const mimo_schedule_step *step)
{
    int change = mimo_step_holds(schedule, stage, step);
    if (change == 0)
        return;
    int64_t group =
        mimo_step_of_llm(step->kind) ? step->index / schedule->desc.encoder_group : step->index;
    now->encoder += change * mimo_group_size(schedule, group);
    most->encoder_alive = mimo_larger(most->encoder_alive, now->encoder);
}

/* Forward alone saves nothing: one state serves every chunk, at a time. */
static void walk_memory(mimo_schedule_memory *most, holding *now, const mimo_schedule *schedule,
                        int64_t stage)
{
    const mimo_stage_list *list = &schedule->lists[stage];
    bool forward = schedule->desc.kind == MIMO_SCHEDULE_FORWARD;
    for (int64_t i = 0; i < list->count; i++) {
        mimo_schedule_step parts[2];
        int count = mimo_step_parts(parts, &list->steps[i]);
        for (int k = 0; k < count; k++) {
            hold_group(now, most, schedule, stage, &parts[k]);
            if (mimo_step_of_llm(parts[k].kind) && !forward)
                hold(now, most, &parts[k]);
        }
    }
    for (int64_t c = 0; c < schedule->desc.chunks; c++)
        most->saved_states += now->most_of_chunk[c];
}

/* of_chunk[V] gets each chunk's states; NULL: it is not asked. */
static mimo_status memory_of(mimo_schedule_memory *out, int64_t *of_chunk,
                             const mimo_schedule *schedule, int64_t stage)
{
    holding now = {0};
    mimo_schedule_memory most = MIMO_SCHEDULE_MEMORY_INIT;
    int64_t chunks = schedule->desc.chunks;
    MIMO_TRY(mimo_reserve(&now.of_chunk, 2 * chunks, sizeof *now.of_chunk));
    now.most_of_chunk = now.of_chunk + chunks;
    walk_memory(&most, &now, schedule, stage);
    if (of_chunk)
        memcpy(of_chunk, now.most_of_chunk, (size_t)chunks * sizeof *of_chunk);
    mimo_release(now.of_chunk);
    *out = most;
    return MIMO_OK;
}

mimo_status mimo_schedule_memory_of(mimo_schedule_memory *out, const mimo_schedule *schedule,
                                    int64_t stage)
{
    mimo_schedule_memory own;
    MIMO_CHECK(out && schedule, MIMO_ERR_ARGUMENT, "mimo_schedule_memory_of: %s is NULL",
               out ? "schedule" : "out");
    MIMO_TRY(check_stage_number(schedule, stage, "mimo_schedule_memory_of"));
    MIMO_TRY(memory_of(&own, NULL, schedule, stage));
    return mimo_write_descriptor(out, &own, sizeof own, "mimo_schedule_memory");
}

mimo_status mimo_schedule_states(int64_t *out, const mimo_schedule *schedule, int64_t stage)
{
    mimo_schedule_memory all;
    MIMO_TRY(memory_of(&all, out, schedule, stage));
    for (int64_t c = 0; c < schedule->desc.chunks; c++)
        out[c] = mimo_larger(out[c], 1);
    return MIMO_OK;
}

/* ------------------------------------------- report ----------------------------------------- */

static mimo_status add_memory(mimo_schedule_report *own, const mimo_schedule *schedule)
{
    for (int64_t p = 0; p < schedule->desc.stages; p++) {
        mimo_schedule_memory memory;
        MIMO_TRY(memory_of(&memory, NULL, schedule, p));
        own->encoder_alive = mimo_larger(own->encoder_alive, memory.encoder_alive);
        own->chunks_alive = mimo_larger(own->chunks_alive, memory.chunks_alive);
        own->weights_waiting = mimo_larger(own->weights_waiting, memory.weights_waiting);
        own->saved_states = mimo_larger(own->saved_states, memory.saved_states);
    }
    return MIMO_OK;
}

static mimo_status add_times(mimo_schedule_report *own, const mimo_schedule *schedule,
                             const mimo_step_costs *costs)
{
    mimo_schedule_walk walk;
    int64_t all = 0;
    MIMO_TRY(mimo_schedule_walk_open(&walk, schedule, costs));
    own->time = mimo_schedule_walk_time(&walk);
    for (int64_t p = 0; p < schedule->desc.stages; p++) {
        int64_t busy = 0;
        for (int64_t i = 0; i < schedule->lists[p].count; i++)
            busy += mimo_step_duration(&walk.events, p, &schedule->lists[p].steps[i]);
        own->lower_bound = mimo_larger(own->lower_bound, busy);
        all += busy;
    }
    own->idle = schedule->desc.stages * own->time - all;
    mimo_schedule_walk_close(&walk);
    return MIMO_OK;
}

mimo_status mimo_schedule_variant_time(int64_t *out, const mimo_schedule *schedule,
                                       int64_t encoder_group, int64_t encoder_alive,
                                       const mimo_step_costs *costs)
{
    mimo_schedule *variant;
    mimo_schedule_walk walk;
    MIMO_TRY(mimo_schedule_variant(&variant, schedule, encoder_group, encoder_alive, costs));
    mimo_status status = mimo_schedule_walk_open(&walk, variant, &variant->costs);
    if (status == MIMO_OK) {
        *out = mimo_schedule_walk_time(&walk);
        mimo_schedule_walk_close(&walk);
    }
    mimo_schedule_destroy(variant);
    return status;
}

mimo_status mimo_schedule_report_alone(mimo_schedule_report *out, const mimo_schedule *schedule,
                                       const mimo_step_costs *costs)
{
    mimo_schedule_report report = MIMO_SCHEDULE_REPORT_INIT;
    MIMO_TRY(add_times(&report, schedule, costs));
    MIMO_TRY(add_memory(&report, schedule));
    MIMO_TRY(
        mimo_schedule_least_alive(&report.least_alive, schedule, schedule->desc.encoder_group));
    *out = report;
    return MIMO_OK;
}

mimo_status mimo_schedule_report_of(mimo_schedule_report *out, const mimo_schedule *schedule,
                                    const mimo_step_costs *costs)
{
    mimo_schedule_report report;
    mimo_step_costs own;
    MIMO_CHECK(out && schedule, MIMO_ERR_ARGUMENT, "mimo_schedule_report_of: %s is NULL",
               out ? "schedule" : "out");
    MIMO_TRY(mimo_step_costs_read(&own, &schedule->desc, costs, &schedule->costs));
    MIMO_TRY(mimo_schedule_report_alone(&report, schedule, &own));
    MIMO_TRY(mimo_schedule_variant_time(&report.llm_alone, schedule, 0, 0, &own));
    report.three_phases = report.llm_alone;
    if (schedule->groups > 0)
        MIMO_TRY(mimo_schedule_variant_time(&report.three_phases, schedule,
                                            schedule->desc.micro_batches, 0, &own));
    return mimo_write_descriptor(out, &report, sizeof report, "mimo_schedule_report");
}
