#include "captioner/training/run_schedule.h"

#include <inttypes.h>

#include "captioner/training/run_drawing.h"
#include "captioner/training/run_files.h"
#include "captioner/training/run_nodes.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "tools/options/option_costs.h"

enum { NANOSECONDS = 1000 /* in a microsecond */ };
static const char planned_file[] = RUN_FILE_PLANNED, run_file[] = RUN_FILE_RAN;

mimo_status run_schedule_probe(const char *folder)
{
    TRY(run_drawing_probe(folder, planned_file));
    return run_drawing_probe(folder, run_file);
}

/* ----------------------------------------- all stages' times ---------------------------------- */

/* What a stage kept, and what its list kept the host (microseconds). */
typedef enum stage_number {
    SAVED_STATES,
    SAVED_BYTES,
    ENCODER_ALIVE, /* micro-batches */
    ENCODER_BYTES,
    WALKED,
    STAGE_NUMBERS,
} stage_number;

/* Microseconds of every step of every stage, and each one's numbers. */
typedef struct stage_times {
    model_pass *pass;
    int64_t stages, most;         /* most: steps of the longest list */
    int64_t length;               /* of what a rank tells: 2 * most + STAGE_NUMBERS */
    int64_t *all;                 /* [ranks][length] begins, ends and numbers of each rank */
    int64_t *own;                 /* [length] */
    const int64_t **begin, **end; /* [stages] of the first rank of each, in `all` */
} stage_times;

static void release_times(stage_times *times)
{
    memory_release(times->all);
    memory_release(times->own);
    memory_release(times->begin);
    memory_release(times->end);
}

static mimo_status reserve_times(stage_times *out)
{
    const mimo_schedule *schedule = out->pass->schedule;
    int64_t count, ranks = mimo_comm_size(out->pass->model->topology->world);
    for (int64_t p = 0; p < out->stages; p++) {
        mimo_schedule_steps(&count, schedule, p);
        out->most = count > out->most ? count : out->most;
    }
    out->length = 2 * out->most + STAGE_NUMBERS;
    TRY(memory_reserve(&out->all, ranks * out->length, sizeof *out->all));
    TRY(memory_reserve(&out->own, out->length, sizeof *out->own));
    TRY(memory_reserve(&out->begin, out->stages, sizeof *out->begin));
    return memory_reserve(&out->end, out->stages, sizeof *out->end);
}

static void fill_numbers(int64_t *numbers, const model_pass *pass)
{
    const language_model *language = &pass->model->language;
    const vision_encoder *encoder = &pass->model->encoder;
    numbers[SAVED_STATES] = language->states;
    for (int64_t i = 0; i < language->states; i++)
        numbers[SAVED_BYTES] += language->saved[i].room.bytes;
    numbers[ENCODER_ALIVE] = encoder->states * pass->model->batch.desc.group;
    for (int64_t i = 0; i < encoder->states; i++)
        numbers[ENCODER_BYTES] += encoder->saved[i].room.bytes;
    numbers[WALKED] = pass->pipeline.walked / NANOSECONDS;
}

static mimo_status gather_times(stage_times *times)
{
    stage_pipeline *pipeline = &times->pass->pipeline;
    const rank_topology *topology = times->pass->model->topology;
    int64_t ranks = mimo_comm_size(topology->world), stage;
    TRY(mimo_comm_agree(topology->world, pipeline_times(pipeline)));
    for (int64_t i = 0; i < pipeline->done; i++) {
        times->own[i] = pipeline->ran[i].begin / NANOSECONDS;
        times->own[times->most + i] = pipeline->ran[i].end / NANOSECONDS;
    }
    fill_numbers(times->own + 2 * times->most, times->pass);
    TRY(mimo_comm_host_allgather(topology->world, times->all, times->own,
                                 (int)(times->length * (int64_t)sizeof *times->own)));
    for (int64_t rank = ranks - 1; rank >= 0; rank--) {
        TRY(mimo_grid_coord(&stage, topology->llm, rank, "pp"));
        times->begin[stage] = times->all + rank * times->length;
        times->end[stage] = times->begin[stage] + times->most;
    }
    return MIMO_OK;
}

/* ---------------------------------------------- costs ----------------------------------------- */

/* What steps of a kind took on average, on the stages [first, end); 0 where there is none. */
static int64_t mean_of(const stage_times *times, mimo_step_kind kind, int64_t first, int64_t end)
{
    int64_t sum = 0, found = 0, count;
    for (int64_t p = first; p < end; p++) {
        const mimo_schedule_step *steps = mimo_schedule_steps(&count, times->pass->schedule, p);
        for (int64_t i = 0; i < count; i++)
            if (steps[i].kind == kind) {
                sum += times->end[p][i] - times->begin[p][i];
                found++;
            }
    }
    return found > 0 ? sum / found : 0;
}

/* A list has backwards whole or in halves. The next run may choose the other kind. */
static void fill_backward(mimo_step_costs *costs)
{
    int64_t *whole = &costs->of[MIMO_STEP_B];
    int64_t *input = &costs->of[MIMO_STEP_I], *weights = &costs->of[MIMO_STEP_W];
    if (*whole == 0)
        *whole = *input + *weights;
    if (*input + *weights == 0) {
        *weights = *whole / 2;
        *input = *whole - *weights;
    }
}

/* The head is what the last stage takes more: once for a forward, and once for each half of a
 * backward. */
static mimo_step_costs measure_costs(const stage_times *times)
{
    static const mimo_step_kind llm[] = {MIMO_STEP_F, MIMO_STEP_B, MIMO_STEP_I, MIMO_STEP_W};
    mimo_step_costs costs = MIMO_STEP_COSTS_INIT;
    int64_t stages = times->stages, more = 0;
    int64_t others = stages > 1 && times->pass->sizes.chunks == 1 ? stages - 1 : stages;
    for (int kind = 0; kind < MIMO_STEP_KINDS; kind++)
        costs.of[kind] = 0; /* of calls the record has the begin alone */
    for (size_t i = 0; i < sizeof llm / sizeof *llm; i++) {
        costs.of[llm[i]] = mean_of(times, llm[i], 0, others);
        more += mean_of(times, llm[i], stages - 1, stages) - costs.of[llm[i]];
    }
    fill_backward(&costs);
    costs.head = others < stages && more > 0 ? more / 3 : 0;
    costs.of[MIMO_STEP_E] =
        mean_of(times, MIMO_STEP_E, 0, stages) / times->pass->sizes.encoder_group;
    costs.of[MIMO_STEP_EB] =
        mean_of(times, MIMO_STEP_EB, 0, stages) / times->pass->sizes.encoder_group;
    return costs;
}

/* What the last step's list took, beside what the costs make of it, and the most that a stage has
 * of each number. */
static mimo_status print_run(FILE *stream, const stage_times *times, const mimo_step_costs *costs)
{
    static const char *const names[STAGE_NUMBERS] = {"saved_states", "saved_bytes", "encoder_alive",
                                                     "encoder_bytes", "walked"};
    mimo_schedule_report report = MIMO_SCHEDULE_REPORT_INIT;
    int64_t last = 0, most[STAGE_NUMBERS] = {0}, count;
    TRY(mimo_schedule_report_of(&report, times->pass->schedule, costs));
    for (int64_t p = 0; p < times->stages; p++) {
        const int64_t *numbers = times->end[p] + times->most;
        mimo_schedule_steps(&count, times->pass->schedule, p);
        for (int64_t i = 0; i < count; i++)
            last = times->end[p][i] > last ? times->end[p][i] : last;
        for (int i = 0; i < STAGE_NUMBERS; i++)
            most[i] = numbers[i] > most[i] ? numbers[i] : most[i];
    }
    fprintf(stream, "ran time=%" PRId64 ",simulated=%" PRId64, last, report.time);
    for (int i = 0; i < STAGE_NUMBERS; i++)
        fprintf(stream, ",%s=%" PRId64, names[i], most[i]);
    fputc('\n', stream);
    return MIMO_OK;
}

/* --------------------------------------------- pictures --------------------------------------- */

typedef struct drawn_run {
    const mimo_schedule *schedule;
    mimo_schedule_run run;
} drawn_run;

static mimo_status draw_plan(FILE *stream, const void *context)
{
    const drawn_run *own = context;
    return mimo_schedule_print(stream, own->schedule, MIMO_SCHEDULE_SVG);
}

static mimo_status draw_run(FILE *stream, const void *context)
{
    const drawn_run *own = context;
    return mimo_schedule_print_run(stream, own->schedule, MIMO_SCHEDULE_SVG, &own->run);
}

static mimo_status draw(const stage_times *times, const mimo_step_costs *costs, const char *folder,
                        FILE *stream)
{
    drawn_run drawn = {times->pass->schedule, MIMO_SCHEDULE_RUN_INIT};
    drawn.run.begin = times->begin;
    drawn.run.end = times->end;
    drawn.run.costs = costs;
    drawn.run.unit = "us";
    TRY(run_drawing_write(folder, planned_file, draw_plan, &drawn));
    TRY(run_drawing_write(folder, run_file, draw_run, &drawn));
    fprintf(stream, "schedule: %s/%s, and its last step in microseconds: %s\n", folder,
            planned_file, run_file);
    return MIMO_OK;
}

/* By nodes there are other pictures in the same files. */
static mimo_status report(const stage_times *times, const run_nodes *nodes, const char *folder,
                          FILE *stream)
{
    const mimo_step_costs costs = measure_costs(times);
    if (folder && nodes->nodes)
        TRY(run_nodes_draw(nodes, folder, stream));
    else if (folder)
        TRY(draw(times, &costs, folder, stream));
    fputs("cost ", stream);
    option_print_step_costs(stream, &costs);
    fputc('\n', stream);
    if (nodes->nodes)
        run_nodes_print_costs(stream, nodes);
    return print_run(stream, times, &costs);
}

mimo_status run_schedule_report(model_pass *pass, const char *folder, FILE *stream)
{
    const rank_topology *topology = pass->model->topology;
    stage_times times = {.pass = pass, .stages = topology->stages};
    run_nodes nodes = {0};
    mimo_status status = mimo_comm_agree(topology->world, reserve_times(&times));
    if (status == MIMO_OK)
        status = gather_times(&times);
    if (status == MIMO_OK && pass->pair.nodes)
        status = run_nodes_gather(&nodes, pass);
    if (status == MIMO_OK && mimo_comm_rank(topology->world) == 0)
        status = report(&times, &nodes, folder, stream);
    release_times(&times);
    run_nodes_release(&nodes);
    return mimo_comm_agree(topology->world, status);
}
