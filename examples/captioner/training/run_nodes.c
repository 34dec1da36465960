#include "captioner/training/run_nodes.h"

#include <inttypes.h>

#include "captioner/training/run_drawing.h"
#include "captioner/training/run_files.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"

enum { NANOSECONDS = 1000 /* in a microsecond */ };

/* -------------------------------------------- times ------------------------------------------ */

static mimo_status reserve(run_nodes *out, const model_pass *pass)
{
    int64_t count, ranks = mimo_comm_size(pass->model->topology->world);
    out->nodes = pass->pair.nodes;
    out->stages = pass->model->topology->stages;
    for (int64_t p = 0; p < out->stages; p++) {
        mimo_nodes_of(&count, out->nodes, p);
        out->most = count > out->most ? count : out->most;
    }
    TRY(memory_reserve(&out->all, ranks * out->most, sizeof *out->all));
    TRY(memory_reserve(&out->own, out->most, sizeof *out->own));
    return memory_reserve(&out->times, out->stages, sizeof *out->times);
}

/* What is no LLM step the pipeline has run, and knows when. */
static mimo_status read_own(run_nodes *out, model_pass *pass)
{
    int64_t count;
    const mimo_node *list = mimo_nodes_of(&count, out->nodes, pass->pair.walk.stage);
    TRY(pair_pass_times(out->own, &pass->pair));
    for (int64_t i = 0; i < count; i++) {
        const pipeline_record *ran = &pass->pipeline.ran[list[i].step];
        if (list[i].part == MIMO_NODE_ENCODER || list[i].part == MIMO_NODE_CALL)
            out->own[i] = (mimo_node_time){ran->begin, ran->end, 0};
        out->own[i].begin /= NANOSECONDS;
        out->own[i].end /= NANOSECONDS;
    }
    return MIMO_OK;
}

mimo_status run_nodes_gather(run_nodes *out, model_pass *pass)
{
    const rank_topology *topology = pass->model->topology;
    int64_t stage;
    mimo_status status = reserve(out, pass);
    if (status == MIMO_OK)
        status = read_own(out, pass);
    TRY(mimo_comm_agree(topology->world, status));
    TRY(mimo_comm_host_allgather(topology->world, out->all, out->own,
                                 (int)(out->most * (int64_t)sizeof *out->own)));
    for (int64_t rank = mimo_comm_size(topology->world) - 1; rank >= 0; rank--) {
        TRY(mimo_grid_coord(&stage, topology->llm, rank, "pp"));
        out->times[stage] = out->all + rank * out->most;
    }
    return MIMO_OK;
}

void run_nodes_release(run_nodes *nodes)
{
    memory_release(nodes->all);
    memory_release(nodes->own);
    memory_release(nodes->times);
    *nodes = (run_nodes){0};
}

/* ------------------------------------------- pictures ---------------------------------------- */

static mimo_status draw_plan(FILE *stream, const void *context)
{
    const run_nodes *own = context;
    return mimo_nodes_print(stream, own->nodes, MIMO_SCHEDULE_SVG);
}

static mimo_status draw_as(FILE *stream, const run_nodes *own, mimo_schedule_format format)
{
    mimo_nodes_run run = MIMO_NODES_RUN_INIT;
    run.times = own->times;
    run.unit = "us";
    return mimo_nodes_print_run(stream, own->nodes, format, &run);
}

static mimo_status draw_run(FILE *stream, const void *context)
{
    return draw_as(stream, context, MIMO_SCHEDULE_SVG);
}

static mimo_status draw_events(FILE *stream, const void *context)
{
    return draw_as(stream, context, MIMO_SCHEDULE_TRACE);
}

mimo_status run_nodes_draw(const run_nodes *nodes, const char *folder, FILE *stream)
{
    TRY(run_drawing_write(folder, RUN_FILE_PLANNED, draw_plan, nodes));
    TRY(run_drawing_write(folder, RUN_FILE_RAN, draw_run, nodes));
    TRY(run_drawing_write(folder, RUN_FILE_EVENTS, draw_events, nodes));
    fprintf(stream,
            "schedule: %s/schedule.svg by nodes, and its last step in microseconds: "
            "schedule_run.svg, schedule_run.json\n",
            folder);
    return MIMO_OK;
}

/* --------------------------------------------- costs ----------------------------------------- */

static const char *word_of(mimo_node_part part)
{
    static const char *const words[MIMO_NODE_PARTS] = {
#define ROW(name, word, lane, what) (word),
        MIMO_NODE_PART_LIST(ROW)
#undef ROW
    };
    return words[part];
}

/* -1: there is no such node. */
static int64_t mean_of(const run_nodes *nodes, int part, int pass)
{
    int64_t sum = 0, found = 0, count;
    for (int64_t p = 0; p < nodes->stages; p++) {
        const mimo_node *list = mimo_nodes_of(&count, nodes->nodes, p);
        for (int64_t i = 0; i < count; i++)
            if ((int)list[i].part == part && (int)list[i].pass == pass) {
                sum += nodes->times[p][i].end - nodes->times[p][i].begin;
                found++;
            }
    }
    return found > 0 ? sum / found : -1;
}

void run_nodes_print_costs(FILE *stream, const run_nodes *nodes)
{
    static const char *const endings[MIMO_NODE_PASSES] = {"fwd", "replay", "bwd", "dw"};
    const char *before = "node-cost ";
    for (int part = 0; part < MIMO_NODE_PARTS; part++)
        for (int pass = 0; pass < MIMO_NODE_PASSES; pass++) {
            int64_t mean = mean_of(nodes, part, pass);
            if (mean < 0)
                continue;
            fprintf(stream, "%s%s.%s=%" PRId64, before, word_of((mimo_node_part)part),
                    endings[pass], mean);
            before = ",";
        }
    fputc('\n', stream);
}
