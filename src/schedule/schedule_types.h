/* A schedule: sizes, who has which chunk of the model, and a list of steps for each stage. */
#ifndef MIMO_SCHEDULE_TYPES_H
#define MIMO_SCHEDULE_TYPES_H

#include <mimo/schedule.h>

typedef struct mimo_stage_list {
    mimo_schedule_step *steps; /* steps[count], with memory for `capacity` */
    int64_t count, capacity;
} mimo_stage_list;

struct mimo_schedule {
    mimo_schedule_desc desc; /* desc.costs is &costs */
    mimo_step_costs costs;
    int64_t groups;         /* n; 0: no encoder */
    int64_t limit;          /* L; n where there is no limit */
    int64_t *stage_of;      /* stage_of[pp * V]: the stage that has this chunk of the model */
    int64_t *number_of;     /* number_of[stage * V + chunk]: its number in the model */
    mimo_stage_list *lists; /* lists[pp] */
};

/* -------------------------------------- making a schedule ------------------------------------ */

/* A schedule of these sizes with empty lists, chunk c of stage p being number c * pp + p. */
mimo_status mimo_schedule_begin(mimo_schedule **out, const mimo_schedule_desc *desc);

/* Check the LLM's lists, put the encoder's steps between them, and check the whole. */
mimo_status mimo_schedule_complete(mimo_schedule *schedule);

/* The same with LLM lists that were checked. */
mimo_status mimo_schedule_add_encoder(mimo_schedule *schedule);

/* A schedule with the LLM steps of `schedule`, which were checked, and other encoder steps. costs
 * NULL: its own. */
mimo_status mimo_schedule_variant(mimo_schedule **out, const mimo_schedule *schedule,
                                  int64_t encoder_group, int64_t encoder_alive,
                                  const mimo_step_costs *costs);

/* The time of such a schedule (schedule_report.c). */
mimo_status mimo_schedule_variant_time(int64_t *out, const mimo_schedule *schedule,
                                       int64_t encoder_group, int64_t encoder_alive,
                                       const mimo_step_costs *costs);

mimo_status mimo_stage_append(mimo_stage_list *list, mimo_schedule_step step);

/* Read costs that a caller passed, NULL being `fallback`. They must suit the schedule's sizes. */
mimo_status mimo_step_costs_read(mimo_step_costs *out, const mimo_schedule_desc *sizes,
                                 const mimo_step_costs *given, const mimo_step_costs *fallback);

/* Costs leave room for times of this many parts of a unit (encoder_steps.c). */
enum { MIMO_COST_SCALE = 1024 };

/* Fill the lists of the LLM by the descriptor's kind (schedule_orders.c). */
mimo_status mimo_schedule_order(mimo_schedule *schedule);

/* Read them from a table of torch (schedule_csv.c). */
mimo_status mimo_schedule_read_csv(mimo_schedule *schedule, const char *text);

/* Put the encoder's steps between those of the LLM (encoder_steps.c). */
mimo_status mimo_schedule_place_encoder(mimo_schedule *schedule);

/* The most groups of this size that stage 0 begins before it has ended the first of them, by its
 * LLM steps. 0: of size 0 (least_alive.c). */
mimo_status mimo_schedule_least_alive(int64_t *out, const mimo_schedule *schedule,
                                      int64_t encoder_group);

/* A report without the times of other schedules: three_phases and llm_alone are 0. `out` is all of
 * it (schedule_report.c). */
mimo_status mimo_schedule_report_alone(mimo_schedule_report *out, const mimo_schedule *schedule,
                                       const mimo_step_costs *costs);

/* The saved states to allocate for each chunk of a stage, into out[V]: at least 1, also where none
 * goes back. Otherwise their sum is saved_states of its memory (schedule_report.c). */
mimo_status mimo_schedule_states(int64_t *out, const mimo_schedule *schedule, int64_t stage);

/* ------------------------------------------- steps ------------------------------------------- */

const char *mimo_step_kind_name(mimo_step_kind kind);

/* "F3", with several chunks "F3.1"; "FB3/1"; "EB0". */
typedef struct mimo_step_name {
    char text[96];
} mimo_step_name;

mimo_step_name mimo_step_name_of(const mimo_schedule *schedule, const mimo_schedule_step *step);

static inline bool mimo_step_of_llm(mimo_step_kind kind)
{
    return kind < MIMO_STEP_E;
}

static inline bool mimo_step_is_call(mimo_step_kind kind)
{
    return kind == MIMO_STEP_BF || kind == MIMO_STEP_BB;
}

/* FB is a forward and a backward; every other step is itself. Returns their number. */
static inline int mimo_step_parts(mimo_schedule_step parts[2], const mimo_schedule_step *step)
{
    parts[0] = *step;
    if (step->kind != MIMO_STEP_FB)
        return 1;
    parts[0] = (mimo_schedule_step){MIMO_STEP_F, step->index, step->chunk, 0, 0};
    parts[1] = (mimo_schedule_step){MIMO_STEP_B, step->back, step->back_chunk, 0, 0};
    return 2;
}

/* Whether the encoder has a backward. */
static inline bool mimo_schedule_encoder_learns(const mimo_schedule *schedule)
{
    return schedule->groups > 0 && !schedule->desc.encoder_frozen &&
           schedule->desc.kind != MIMO_SCHEDULE_FORWARD;
}

static inline int64_t mimo_group_size(const mimo_schedule *schedule, int64_t group)
{
    int64_t size = schedule->desc.encoder_group, left = schedule->desc.micro_batches - group * size;
    return left < size ? left : size;
}

/* What a step of `stage` adds to the groups that the stage holds. A group is held from E to EB.
 * Where nothing goes back, stage 0 holds it to its last F, and the others to BF. */
static inline int mimo_step_holds(const mimo_schedule *schedule, int64_t stage,
                                  const mimo_schedule_step *step)
{
    bool forward = (step->kind == MIMO_STEP_F || step->kind == MIMO_STEP_FB) && step->chunk == 0 &&
                   schedule->groups > 0;
    if (step->kind == MIMO_STEP_E)
        return 1;
    if (mimo_schedule_encoder_learns(schedule))
        return step->kind == MIMO_STEP_EB ? -1 : 0;
    if (stage > 0)
        return step->kind == MIMO_STEP_BF ? -1 : 0;
    int64_t next = step->index + 1;
    bool last = next % (schedule->groups > 0 ? schedule->desc.encoder_group : 1) == 0 ||
                next == schedule->desc.micro_batches;
    return forward && last ? -1 : 0;
}

static inline int64_t mimo_model_chunks(const mimo_schedule *schedule)
{
    return schedule->desc.stages * schedule->desc.chunks;
}

/* The number in the model of the chunk that an LLM step works on. */
static inline int64_t mimo_step_number(const mimo_schedule *schedule, int64_t stage, int64_t chunk)
{
    return schedule->number_of[stage * schedule->desc.chunks + chunk];
}

/* part / whole in thousandths, rounded down; 0 of nothing. */
static inline int mimo_permille(int64_t part, int64_t whole)
{
    return whole > 0 ? (int)((double)part / (double)whole * 1000) : 0;
}

#endif
