#include "training_run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/check.h"
#include "core/memory.h"

#include "caption_data.h"
#include "evaluate.h"
#include "final_report.h"
#include "generate.h"
#include "train_step.h"

typedef struct run_state {
    const struct options *options;
    mimo_comm *world;
    bool lead; /* rank 0, which prints and writes */
    caption_data data;
    rank_topology topology;
    captioner_model model;
    step_trainer trainer;
    int64_t first_step; /* steps taken before this run */
    FILE *log;
} run_state;

static mimo_status build_model(run_state *run)
{
    const struct options *options = run->options;
    model_desc desc = {.hidden = options->hidden,
                       .heads = options->heads,
                       .encoder_layers = options->encoder_layers,
                       .llm_layers = options->llm_layers,
                       .side = options->image_size,
                       .seq = options->seq,
                       .micro_batch = options->global_batch / options->micro_batches,
                       .seed = options->seed,
                       .bridge_dtype = options->dtype};
    MIMO_TRY(model_create(&run->model, &run->topology, &desc));
    trainer_desc trainer = {.items = run->data.training,
                            .samples = run->data.training_count,
                            .steps = options->steps,
                            .global_batch = options->global_batch,
                            .micro_batches = options->micro_batches,
                            .seed = options->seed,
                            .lr = options->lr};
    return trainer_create(&run->trainer, &run->model, &trainer);
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static mimo_status open_log(run_state *run)
{
    mimo_status status = MIMO_OK;
    const char *path = run->options->log;
    if (run->lead && path && !(run->log = fopen(path, "w")))
        status = mimo_fail(MIMO_ERR_IO, "cannot write the log %s: %s", path, strerror(errno));
    return mimo_comm_agree(run->world, status);
}

static mimo_status write_step(run_state *run, int64_t step, const step_result *result, double ms)
{
    if (step % 50 == 0)
        printf("step %" PRId64 " loss %.4f  %.0f ms\n", step, result->loss, ms), fflush(stdout);
    if (!run->log)
        return MIMO_OK;
    fprintf(run->log,
            "{\"step\":%" PRId64 ",\"loss\":%.9g,\"tokens\":%" PRId64
            ",\"grad_norm\":%.9g,\"ms\":%.1f}\n",
            step, result->loss, result->tokens, result->grad_norm, ms);
    MIMO_CHECK(fflush(run->log) == 0, MIMO_ERR_IO, "cannot write the log %s: %s", run->options->log,
               strerror(errno));
    return MIMO_OK;
}

static mimo_status close_log(run_state *run)
{
    if (run->log)
        fclose(run->log);
    return MIMO_OK;
}

static mimo_status train(run_state *run)
{
    for (int64_t step = run->first_step; step < run->options->steps; step++) {
        step_result result;
        double start = now_ms();
        MIMO_TRY(train_step(&run->trainer, step, &result));
        mimo_status status = MIMO_OK;
        if (run->lead)
            status = write_step(run, step + 1, &result, now_ms() - start);
        MIMO_TRY(mimo_comm_agree(run->world, status)); /* a full disk ends the run on every rank */
    }
    return MIMO_OK;
}

static mimo_status finish(run_state *run)
{
    final_report report;
    MIMO_TRY(final_report_make(&report, &run->model, &run->data));
    if (run->lead)
        final_report_print(&report, stdout);
    return MIMO_OK;
}

static mimo_status run_all(run_state *run)
{
    MIMO_TRY(topology_create(&run->topology, run->world, run->options->encoder, run->options->llm));
    MIMO_TRY(caption_data_load(&run->data, run->world, run->options));
    MIMO_TRY(build_model(run));
    MIMO_TRY(open_log(run));
    MIMO_TRY(train(run));
    return finish(run);
}

mimo_status training_run(const struct options *options, mimo_comm *world)
{
    run_state run = {.options = options, .world = world, .lead = mimo_comm_rank(world) == 0};
    mimo_status status = run_all(&run);
    MIMO_KEEP_FIRST(status, close_log(&run));
    trainer_destroy(&run.trainer);
    model_destroy(&run.model);
    topology_destroy(&run.topology);
    caption_data_release(&run.data);
    return status;
}
