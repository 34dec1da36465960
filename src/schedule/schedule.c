/* Schedules: sizes are checked, lists made, encoder steps put between them. */
#include "schedule/schedule_types.h"

#include <string.h>

#include "core/checked.h"
#include "core/descriptor.h"
#include "core/memory.h"

MIMO_DEFINE_INIT(mimo_step_costs, MIMO_STEP_COSTS_INIT)
MIMO_DEFINE_INIT(mimo_schedule_desc, MIMO_SCHEDULE_DESC_INIT)

/* ----------------------------------------- descriptor --------------------------------------- */

static const char *const kind_names[] = {
#define ROW(name, value, word, what) [value] = (word),
    MIMO_SCHEDULE_KIND_LIST(ROW)
#undef ROW
};

static bool forwards_fit(const mimo_schedule_desc *desc)
{
    int64_t most = MIMO_SCHEDULE_MOST_FORWARDS;
    return desc->stages <= most && desc->chunks <= most / desc->stages &&
           desc->micro_batches <= most / desc->stages / desc->chunks;
}

static mimo_status check_sizes(const mimo_schedule_desc *desc)
{
    MIMO_CHECK(desc->stages >= 1 && desc->chunks >= 1 && desc->micro_batches >= 1,
               MIMO_ERR_ARGUMENT,
               "schedule: %" PRId64 " micro-batches over pp=%" PRId64 " with %" PRId64 " chunks",
               desc->micro_batches, desc->stages, desc->chunks);
    MIMO_CHECK(forwards_fit(desc), MIMO_ERR_ARGUMENT,
               "schedule: %" PRId64 " micro-batches over pp=%" PRId64 " with %" PRId64
               " chunks: a schedule has at most %d forwards, of all stages together",
               desc->micro_batches, desc->stages, desc->chunks, MIMO_SCHEDULE_MOST_FORWARDS);
    MIMO_CHECK(desc->encoder_group >= 0 && desc->encoder_group <= desc->micro_batches,
               MIMO_ERR_ARGUMENT,
               "schedule: encoder_group %" PRId64 " of %" PRId64 " micro-batches",
               desc->encoder_group, desc->micro_batches);
    MIMO_CHECK(desc->encoder_alive >= 0, MIMO_ERR_ARGUMENT,
               "schedule: encoder_alive %" PRId64 " (0: no limit)", desc->encoder_alive);
    return MIMO_OK;
}

/* What an order that is known by name needs. A table of torch has its own. */
static mimo_status check_kind(const mimo_schedule_desc *desc)
{
    bool turns = desc->kind == MIMO_SCHEDULE_1F1B || desc->kind == MIMO_SCHEDULE_INTERLEAVED;
    bool one = desc->kind == MIMO_SCHEDULE_1F1B || desc->kind == MIMO_SCHEDULE_ZERO_BUBBLE;
    MIMO_CHECK(!one || desc->chunks == 1, MIMO_ERR_ARGUMENT,
               "schedule: %s has 1 chunk a stage, not %" PRId64, kind_names[desc->kind],
               desc->chunks);
    MIMO_CHECK(desc->kind != MIMO_SCHEDULE_INTERLEAVED || desc->micro_batches % desc->stages == 0,
               MIMO_ERR_ARGUMENT,
               "schedule: %" PRId64 " micro-batches over pp=%" PRId64 " with %" PRId64
               " chunks: interleaved needs a multiple of pp",
               desc->micro_batches, desc->stages, desc->chunks);
    MIMO_CHECK(!desc->overlap || turns, MIMO_ERR_ARGUMENT,
               "schedule: overlap pairs a forward with a whole backward, which %s has not",
               kind_names[desc->kind]);
    return MIMO_OK;
}

/* No sum of times leaves 64 bits: all steps of all stages, with the largest costs, one by one. */
static mimo_status check_sum(const mimo_schedule_desc *sizes, const mimo_step_costs *costs)
{
    int64_t once = 0, steps;
    for (int kind = 0; kind < MIMO_STEP_KINDS; kind++)
        MIMO_TRY(mimo_add(&once, once, costs->of[kind]));
    MIMO_TRY(mimo_add(&once, once, costs->hop));
    for (int i = 0; i < 4; i++)
        MIMO_TRY(mimo_add(&once, once, costs->head));
    MIMO_CHECK(once > 0, MIMO_ERR_ARGUMENT, "schedule: all costs are 0");
    MIMO_TRY(mimo_mul(&steps, sizes->stages, sizes->micro_batches));
    MIMO_TRY(mimo_mul(&steps, steps, sizes->chunks));
    MIMO_TRY(mimo_mul(&steps, steps, 8 * MIMO_COST_SCALE)); /* 7 kinds at most, and room */
    return mimo_mul(&steps, steps, once);
}

mimo_status mimo_step_costs_read(mimo_step_costs *out, const mimo_schedule_desc *sizes,
                                 const mimo_step_costs *given, const mimo_step_costs *fallback)
{
    mimo_step_costs own = *fallback;
    if (given)
        MIMO_TRY(mimo_read_descriptor(&own, sizeof own, given, "mimo_step_costs"));
    for (int kind = 0; kind < MIMO_STEP_KINDS; kind++)
        MIMO_CHECK(own.of[kind] >= 0, MIMO_ERR_ARGUMENT, "schedule: the cost of %s is %" PRId64,
                   mimo_step_kind_name((mimo_step_kind)kind), own.of[kind]);
    MIMO_CHECK(own.head >= 0 && own.hop >= 0, MIMO_ERR_ARGUMENT,
               "schedule: costs head %" PRId64 ", hop %" PRId64, own.head, own.hop);
    MIMO_TRY(check_sum(sizes, &own));
    *out = own;
    out->size = sizeof own;
    return MIMO_OK;
}

static mimo_status read_desc(mimo_schedule_desc *own, const mimo_schedule_desc *desc)
{
    *own = (mimo_schedule_desc)MIMO_SCHEDULE_DESC_INIT;
    MIMO_TRY(mimo_read_descriptor(own, sizeof *own, desc, "mimo_schedule_desc"));
    MIMO_CHECK((size_t)own->kind < sizeof kind_names / sizeof kind_names[0], MIMO_ERR_ARGUMENT,
               "schedule: there is no kind %d", (int)own->kind);
    return check_sizes(own);
}

/* -------------------------------------------- life ------------------------------------------ */

static mimo_status reserve_lists(mimo_schedule *schedule)
{
    int64_t pp = schedule->desc.stages, chunks = mimo_model_chunks(schedule);
    MIMO_TRY(mimo_reserve(&schedule->lists, pp, sizeof *schedule->lists));
    MIMO_TRY(mimo_reserve(&schedule->stage_of, chunks, sizeof *schedule->stage_of));
    MIMO_TRY(mimo_reserve(&schedule->number_of, chunks, sizeof *schedule->number_of));
    for (int64_t i = 0; i < chunks; i++) {
        schedule->stage_of[i] = i % pp;
        schedule->number_of[i % pp * schedule->desc.chunks + i / pp] = i;
    }
    return MIMO_OK;
}

mimo_status mimo_schedule_begin(mimo_schedule **out, const mimo_schedule_desc *desc)
{
    static const mimo_step_costs initial = MIMO_STEP_COSTS_INIT;
    mimo_step_costs costs;
    mimo_schedule *schedule = NULL;
    mimo_status status = MIMO_OK;
    MIMO_TRY(mimo_step_costs_read(&costs, desc, desc->costs, &initial));
    MIMO_TRY(mimo_reserve(&schedule, 1, sizeof *schedule));
    schedule->desc = *desc;
    schedule->costs = costs;
    schedule->desc.costs = &schedule->costs;
    MIMO_TRY_GOTO(status, fail, reserve_lists(schedule));
    *out = schedule;
    return MIMO_OK;
fail:
    mimo_schedule_destroy(schedule);
    return status;
}

mimo_status mimo_schedule_add_encoder(mimo_schedule *schedule)
{
    int64_t size = schedule->desc.encoder_group, limit = schedule->desc.encoder_alive;
    if (size == 0)
        return MIMO_OK;
    schedule->groups = (schedule->desc.micro_batches + size - 1) / size;
    schedule->limit = limit > 0 && limit < schedule->groups ? limit : schedule->groups;
    MIMO_TRY(mimo_schedule_place_encoder(schedule));
    return mimo_schedule_check(schedule);
}

mimo_status mimo_schedule_complete(mimo_schedule *schedule)
{
    MIMO_TRY(mimo_schedule_check(schedule));
    return mimo_schedule_add_encoder(schedule);
}

void mimo_schedule_destroy(mimo_schedule *schedule)
{
    if (!schedule)
        return;
    for (int64_t p = 0; schedule->lists && p < schedule->desc.stages; p++)
        mimo_release(schedule->lists[p].steps);
    mimo_release(schedule->lists);
    mimo_release(schedule->stage_of);
    mimo_release(schedule->number_of);
    mimo_release(schedule);
}

/* From a table's text, or of the kind, where that is NULL. */
static mimo_status create(mimo_schedule **out, const mimo_schedule_desc *desc, const char *text)
{
    mimo_schedule_desc own;
    mimo_schedule *schedule = NULL;
    mimo_status status = MIMO_OK;
    MIMO_TRY(read_desc(&own, desc));
    if (!text)
        MIMO_TRY(check_kind(&own));
    MIMO_TRY(mimo_schedule_begin(&schedule, &own));
    MIMO_TRY_GOTO(status, fail,
                  text ? mimo_schedule_read_csv(schedule, text) : mimo_schedule_order(schedule));
    MIMO_TRY_GOTO(status, fail, mimo_schedule_complete(schedule));
    *out = schedule;
    return MIMO_OK;
fail:
    mimo_schedule_destroy(schedule);
    return status;
}

mimo_status mimo_schedule_create(mimo_schedule **out, const mimo_schedule_desc *desc)
{
    MIMO_CHECK(out && desc, MIMO_ERR_ARGUMENT, "mimo_schedule_create: %s is NULL",
               out ? "desc" : "out");
    return create(out, desc, NULL);
}

mimo_status mimo_schedule_create_csv(mimo_schedule **out, const mimo_schedule_desc *desc,
                                     const char *text)
{
    MIMO_CHECK(out && desc && text, MIMO_ERR_ARGUMENT, "mimo_schedule_create_csv: %s is NULL",
               !out ? "out" : (desc ? "text" : "desc"));
    return create(out, desc, text);
}

static mimo_status copy_llm(mimo_schedule *out, const mimo_schedule *from)
{
    size_t chunks = (size_t)mimo_model_chunks(from);
    memcpy(out->stage_of, from->stage_of, chunks * sizeof *out->stage_of);
    memcpy(out->number_of, from->number_of, chunks * sizeof *out->number_of);
    for (int64_t p = 0; p < from->desc.stages; p++)
        for (int64_t i = 0; i < from->lists[p].count; i++)
            if (mimo_step_of_llm(from->lists[p].steps[i].kind))
                MIMO_TRY(mimo_stage_append(&out->lists[p], from->lists[p].steps[i]));
    return MIMO_OK;
}

mimo_status mimo_schedule_variant(mimo_schedule **out, const mimo_schedule *schedule,
                                  int64_t encoder_group, int64_t encoder_alive,
                                  const mimo_step_costs *costs)
{
    mimo_schedule_desc desc = schedule->desc;
    mimo_schedule *made = NULL;
    mimo_status status = MIMO_OK;
    desc.encoder_group = encoder_group;
    desc.encoder_alive = encoder_alive;
    desc.costs = costs ? costs : desc.costs;
    MIMO_TRY(check_sizes(&desc));
    MIMO_TRY(mimo_schedule_begin(&made, &desc));
    MIMO_TRY_GOTO(status, fail, copy_llm(made, schedule));
    MIMO_TRY_GOTO(status, fail, mimo_schedule_add_encoder(made));
    *out = made;
    return MIMO_OK;
fail:
    mimo_schedule_destroy(made);
    return status;
}

const mimo_schedule_step *mimo_schedule_steps(int64_t *count, const mimo_schedule *schedule,
                                              int64_t stage)
{
    bool there = stage >= 0 && stage < schedule->desc.stages;
    *count = there ? schedule->lists[stage].count : 0;
    return there ? schedule->lists[stage].steps : NULL;
}
