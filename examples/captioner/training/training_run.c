#include "captioner/training/training_run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "train/device/blas_kernels.h"
#include "train/device/compute_device.h"
#include "captioner/captions/evaluate.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/support/folders.h"
#include "captioner/support/progress.h"
#include "captioner/training/adapter_store.h"
#include "captioner/training/best_state.h"
#include "captioner/training/bridge_share.h"
#include "captioner/training/caption_data.h"
#include "captioner/training/checkpoint.h"
#include "captioner/training/expert_loads.h"
#include "captioner/training/file_wait.h"
#include "captioner/training/final_report.h"
#include "captioner/training/lane_loads.h"
#include "captioner/training/log_cut.h"
#include "captioner/training/model_hashes.h"
#include "captioner/training/run_model.h"
#include "captioner/training/run_pictures.h"
#include "captioner/training/run_schedule.h"
#include "captioner/training/save_points.h"
#include "captioner/training/train_log.h"
#include "captioner/training/train_step.h"

enum { GRID_TEXT = 256 };

typedef struct run_state {
    run_course *course;
    const struct options *options;
    mimo_comm *world;
    bool lead; /* rank 0, which prints and writes */
    compute_device device;
    caption_data data;
    rank_topology topology;
    bridged_model model;
    step_trainer trainer;
    lora_setup lora;
    int64_t first_step;    /* steps taken before this generation */
    struct train_log *log; /* on rank 0, where --log is given */
    model_hashes hashes;   /* where --log-hashes is given */
    struct progress progress;
    save_points saves;
    best_state best; /* where --evaluate-every is given */
    expert_loads loads;
    lane_rows lanes;    /* of all steps of this generation */
    bridge_share share; /* likewise */
    final_report report;
} run_state;

/* Where ranks outlive others, these must be missed. */
static file_wait_limit file_waits(const run_state *run)
{
    return run->options->survive ? FILE_WAIT_SHORT : FILE_WAIT_LONG;
}

static mimo_status build_model(run_state *run)
{
    const struct options *options = run->options;
    model_desc desc = run_model_describe(options);
    desc.runtime = &run->device.runtime;
    desc.adapters = run->lora.on ? &run->lora.choice : NULL;
    TRY(model_create(&run->model, &run->topology, &desc));
    trainer_desc trainer = {.adapters = run->lora.config,
                            .keys = options->megatron_keys ? CHECKPOINT_KEYS_MEGATRON
                                                           : CHECKPOINT_KEYS_OWN,
                            .items = run->data.training,
                            .samples = run->data.training_count,
                            .steps = options->steps,
                            .global_batch = options->global_batch,
                            .seed = options->seed,
                            .lr = options->lr,
                            .decay = options->decay,
                            .augment = options->augment,
                            .least_images = options->least_images,
                            .waits = file_waits(run)};
    TRY(trainer_create(&run->trainer, &run->model, &trainer));
    return nn_gradients_prepare(&run->trainer.gradients); /* so that no step makes communicators */
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

/* A stopped rank may wake, and write behind a run that went on without it. So its file is replaced,
 * and was another run's before. */
static mimo_status replace_log(run_state *run, int64_t last)
{
    int fd;
    TRY(log_replace_after(&fd, run->options->log, last));
    return train_log_take(&run->log, run->options->log, fd);
}

/* A run that goes on writes its steps behind those of the checkpoint that it went on from. */
static mimo_status open_log(run_state *run)
{
    const char *path = run->options->log;
    int64_t first = run->first_step;
    bool more = first < run->options->steps;
    if (run->options->survive)
        return replace_log(run, more ? first : INT64_MAX);
    if (first > 0 && more)
        TRY(log_cut_after(path, first));
    return train_log_open(&run->log, path, first > 0);
}

/* The log comes last: it is opened here, where nothing else can fail any more. */
static mimo_status try_results(run_state *run)
{
    const struct options *options = run->options;
    if (options->save)
        TRY(checkpoint_probe(options->save, &run->trainer));
    if (options->merge)
        TRY(checkpoint_probe_merged(options->merge, &run->trainer));
    if (options->adapter_out)
        TRY(adapter_store_probe(options->adapter_out, &run->lora, &run->model));
    if (options->out)
        TRY(run_pictures_probe(options->out));
    if (options->out && (run->topology.stages > 1 || options->overlap))
        TRY(run_schedule_probe(options->out));
    return options->log ? open_log(run) : MIMO_OK;
}

/* What can fail for the sake of a path or a missing module fails before training, not after it, and
 * leaves nothing behind. The folder is made first, as the other files may be meant to lie in it. */
static mimo_status open_on_lead(run_state *run)
{
    const char *folder = run->options->out;
    size_t kept = 0;
    if (folder)
        TRY(make_folders(folder, &kept));
    mimo_status status = try_results(run);
    if (status != MIMO_OK && folder)
        remove_folders(folder, kept);
    return status;
}

static int64_t steps_of_run(const run_state *run)
{
    int64_t steps = run->options->steps - run->first_step;
    return steps > 0 ? steps : 0;
}

static mimo_status reserve_losses(run_state *run)
{
    TRY(run_course_reserve(run->course, run->first_step, steps_of_run(run)));
    TRY(expert_loads_make(&run->loads, &run->model.language, run->topology.stages));
    return run->options->evaluate_every > 0 ? best_state_reserve(&run->best, &run->model) : MIMO_OK;
}

static mimo_status open_results(run_state *run)
{
    file_wait wait;
    TRY(mimo_comm_agree(run->world, reserve_losses(run)));
    TRY(file_wait_begin(&wait, run->world, file_waits(run), "look at where results go"));
    mimo_status status = file_wait_agree(&wait, run->lead ? open_on_lead(run) : MIMO_OK);
    file_wait_end(&wait);
    return status;
}

static bool of_tensors(const run_state *run)
{
    return run->options->log_hashes == OPTIONS_TENSOR_HASHES;
}

static mimo_status write_start(run_state *run, const struct train_log_hashes *hashes)
{
    char encoder[GRID_TEXT], llm[GRID_TEXT], experts[GRID_TEXT], order[48];
    const mimo_grid *view = run->topology.experts.view;
    const struct options *options = run->options;
    snprintf(order, sizeof order, "%" PRId64 ",%" PRId64, options->shards, options->pairs);
    int64_t batch = options->global_batch, part = run->model.desc.micro_batch;
    struct train_log_start start = {
        .first_step = run->first_step + 1,
        .micro_batches = (batch + part - 1) / part,
        .encoder = mimo_grid_text(encoder, sizeof encoder, run->topology.encoder),
        .llm = mimo_grid_text(llm, sizeof llm, run->topology.llm),
        .experts = view ? mimo_grid_text(experts, sizeof experts, view) : NULL,
        .same_bits = options->shards > 0 ? order : NULL,
        .hashes = hashes};
    return train_log_begin(run->log, &start);
}

static mimo_status begin_log(run_state *run)
{
    struct train_log_hashes hashes;
    bool hashed = run->options->log_hashes != OPTIONS_NO_HASHES;
    if (!run->options->log || (!hashed && run->options->shards == 0))
        return MIMO_OK;
    if (hashed) {
        TRY(mimo_comm_agree(run->world, model_hashes_make(&run->hashes, &run->model)));
        TRY(model_hashes_begin(&hashes, &run->hashes, of_tensors(run)));
    }
    mimo_status written = run->lead ? write_start(run, hashed ? &hashes : NULL) : MIMO_OK;
    return mimo_comm_agree(run->world, written);
}

/* *logged is what the lead's log says to it. */
static mimo_status log_step(run_state *run, int64_t step, const step_result *result, double ms,
                            mimo_status *logged)
{
    struct train_log_hashes hashes;
    const double *held_out = &run->course->held_out[step - 1 - run->course->first_step];
    const struct train_log_balance balance = lane_loads_balance(&run->trainer.lanes);
    struct train_log_line line = {.step = step,
                                  .loss = result->loss,
                                  .tokens = result->tokens,
                                  .grad_norm = result->grad_norm,
                                  .ms = ms,
                                  .held_out = isnan(*held_out) ? NULL : held_out,
                                  .lanes = run->options->balance ? &balance : NULL};
    *logged = MIMO_OK;
    if (!run->options->log)
        return MIMO_OK;
    if (run->options->log_hashes) {
        TRY(model_hashes_take(&hashes, &run->hashes, of_tensors(run)));
        line.hashes = &hashes;
    }
    if (run->lead)
        *logged = train_log_write(run->log, &line);
    return MIMO_OK;
}

/* AdamW keeps two moments of each element that is trained. */
static void print_trained(const run_state *run)
{
    const double mb = 1e-6 * (double)sizeof(nn_real);
    const model_elements count = model_count_elements(&run->model);
    const double trained = mb * (double)count.trained;
    fprintf(stderr,
            "training %" PRId64 " of %" PRId64 " parameters: %.2f MB of %.2f, gradients %.2f MB, "
            "moments %.2f MB\n",
            count.trained, count.all, trained, mb * (double)count.all, trained, 2 * trained);
}

static void print_saved(const run_state *run)
{
    const model_saved saved = model_count_saved(&run->model);
    fprintf(stderr, "saved for backward on rank 0: %.2f MB a micro-batch",
            1e-6 * (double)saved.micro_batch);
    if (saved.shared > 0)
        fprintf(stderr, ", and %.2f MB to recompute", 1e-6 * (double)saved.shared);
    fputc('\n', stderr);
}

/* Once, behind the first step: a run that can't log it says only why. */
static void print_first_step(const run_state *run)
{
    print_trained(run);
    print_saved(run);
    if (run->options->device != OPTIONS_CUDA)
        blas_kernels_print(stderr);
}

static void begin_progress(run_state *run)
{
    enum progress_kind kind = progress_kind_of(stderr);
    if (run->options->progress != OPTIONS_PROGRESS_AUTO)
        kind = run->options->progress == OPTIONS_PROGRESS_BAR ? PROGRESS_BAR : PROGRESS_LINES;
    progress_begin(&run->progress, stderr, kind, run->first_step, run->options->steps);
}

/* After every N steps and after the last one. */
static mimo_status look_at_held_out(run_state *run, int64_t step)
{
    const struct options *options = run->options;
    const caption_data *data = &run->data;
    double *loss = &run->course->held_out[step - 1 - run->course->first_step];
    *loss = (double)NAN;
    if (options->evaluate_every == 0 ||
        (step % options->evaluate_every != 0 && step != options->steps))
        return MIMO_OK;
    TRY(evaluate_loss(&run->model, data->held_out, data->held_out_count, 0, loss));
    if (run->lead)
        progress_note(&run->progress, "held-out loss %.4f after step %" PRId64, *loss, step);
    return mimo_comm_agree(run->world, best_state_offer(&run->best, step, *loss));
}

/* Every K steps; the last step has its file. */
static mimo_status keep_in_memory(run_state *run, int64_t step)
{
    const struct options *options = run->options;
    bool due = options->save_memory > 0 && step % options->save_memory == 0;
    return due && step < options->steps ? memory_save_take(&run->course->memory, step) : MIMO_OK;
}

static mimo_status step_by_step(run_state *run)
{
    double begun = now_ms();
    for (int64_t step = run->first_step; step < run->options->steps; step++) {
        step_result result;
        mimo_status logged;
        double start = now_ms();
        TRY(train_step(&run->trainer, step, &result));
        double end = now_ms();
        run->course->losses[step - run->course->first_step] = result.loss;
        if (step >= run->options->steps - LOAD_STEPS)
            expert_loads_add(&run->loads, run->trainer.loads);
        lane_loads_add(&run->lanes, &run->trainer.lanes);
        bridge_share_add(&run->share, &run->trainer.pass, end - start);
        TRY(look_at_held_out(run, step + 1));
        TRY(log_step(run, step + 1, &result, end - start, &logged));
        TRY(keep_in_memory(run, step + 1));
        TRY(save_points_pass(&run->saves, step + 1, logged));
        if (run->lead && step == run->first_step)
            print_first_step(run);
        if (run->lead)
            progress_step(&run->progress, step + 1, result.loss, 1e-3 * (end - begun));
    }
    return MIMO_OK;
}

static mimo_status take_steps(run_state *run)
{
    if (run->lead)
        begin_progress(run);
    mimo_status status = step_by_step(run);
    if (run->lead)
        progress_end(&run->progress);
    return status;
}

static mimo_status go_back_to_best(run_state *run)
{
    const best_state *best = &run->best;
    if (best->step == 0 || best->step == run->options->steps)
        return MIMO_OK;
    if (run->lead)
        fprintf(stderr, "back to step %" PRId64 ", where the held-out loss was lowest: %.4f\n",
                best->step, best->loss);
    return mimo_comm_agree(run->world, best_state_restore(best));
}

static mimo_status train(run_state *run)
{
    if (run->first_step >= run->options->steps)
        return MIMO_OK;
    TRY(begin_log(run));
    TRY(take_steps(run));
    return go_back_to_best(run);
}

/* --steps is where training ends, resumed or not; a checkpoint may lie past it, and the best model
 * before it. */
static int64_t steps_taken(const run_state *run)
{
    if (run->best.step > 0)
        return run->best.step;
    return run->first_step > run->options->steps ? run->first_step : run->options->steps;
}

static mimo_status draw_pictures(const run_state *run)
{
    const run_course *course = run->course;
    if (!run->options->out)
        return MIMO_OK;
    int64_t count = run->options->steps - course->first_step;
    run_pictures pictures = {.folder = run->options->out,
                             .report = &run->report,
                             .image_size = run->options->image_size,
                             .losses = course->losses,
                             .held_out = run->options->evaluate_every > 0 ? course->held_out : NULL,
                             .count = count > 0 ? count : 0,
                             .loads = &run->loads,
                             .first_step = course->first_step + 1};
    file_wait wait;
    TRY(file_wait_begin(&wait, run->world, file_waits(run), "pictures in %s", run->options->out));
    mimo_status status =
        file_wait_agree(&wait, run->lead ? run_pictures_draw(&pictures, stdout) : MIMO_OK);
    file_wait_end(&wait);
    return status;
}

static mimo_status report_bridge(const run_state *run)
{
    mimo_status status = MIMO_OK;
    if (run->lead)
        status = bridge_share_print(&run->share, &run->trainer.pass, run->options, stdout);
    return mimo_comm_agree(run->world, status);
}

static mimo_status report_schedule(run_state *run)
{
    if ((run->topology.stages == 1 && !run->options->overlap) || steps_of_run(run) == 0)
        return MIMO_OK;
    return run_schedule_report(&run->trainer.pass, run->options->out, stdout);
}

static mimo_status finish(run_state *run)
{
    const struct options *options = run->options;
    if (run->lead)
        fprintf(stderr, "evaluating on %" PRId64 " held-out emoji\n", run->data.held_out_count);
    TRY(final_report_make(&run->report, &run->model, &run->data));
    TRY(expert_loads_collect(&run->loads, run->topology.llm_pp));
    if (run->lead) {
        final_report_print(&run->report, stdout);
        putchar('\n');
        expert_loads_print(&run->loads, stdout);
        if (options->balance)
            lane_loads_print(&run->lanes, stdout);
    }
    TRY(report_bridge(run));
    TRY(draw_pictures(run));
    TRY(report_schedule(run));
    if (run->lead && options->log)
        printf("log: %s\n", options->log);
    if (run->lead && options->save)
        printf("checkpoint: %s\n", options->save);
    if (run->lead && options->adapter_out)
        printf("adapter: %s\n", options->adapter_out);
    if (run->lead && options->merge)
        printf("merged checkpoint: %s\n", options->merge);
    return MIMO_OK;
}

static mimo_status read_model(run_state *run)
{
    const struct options *options = run->options;
    if (options->base)
        TRY(checkpoint_load_base(options->base, &run->trainer));
    if (options->adapter)
        TRY(adapter_store_load(options->adapter, &run->lora, &run->model));
    return options->resume ? checkpoint_load(options->resume, &run->trainer, &run->first_step)
                           : MIMO_OK;
}

/* Each rank reads by itself, and one may have a slower disk. */
static mimo_status load_model(run_state *run)
{
    file_wait wait;
    TRY(file_wait_begin(&wait, run->device.world, file_waits(run), "reading of the model"));
    mimo_status status = read_model(run);
    file_wait_end(&wait);
    return status;
}

/* New adapters add nothing yet: the model is the base. */
static mimo_status ask_base(run_state *run)
{
    bool asked = run->options->base && run->lora.on && !run->options->adapter;
    return asked ? final_report_ask_base(&run->report, &run->model, &run->data) : MIMO_OK;
}

/* What a later generation goes back to. The first one has nothing yet. */
static mimo_status recover(run_state *run)
{
    run_course *course = run->course;
    bool later = course->generation > 0;
    if (run->options->save_memory > 0)
        TRY(memory_save_begin(&course->memory, run->world, &run->model, course->generation));
    if (later)
        TRY(ask_base(run));
    return later ? run_course_recover(course, &run->first_step, run->options, &run->trainer,
                                      run->world)
                 : MIMO_OK;
}

static mimo_status run_all(run_state *run)
{
    const struct options *options = run->options;
    nn_runtime_desc runtime = {
        .memory = options->device == OPTIONS_CUDA ? MIMO_MEMORY_CUDA : MIMO_MEMORY_HOST,
        .precision = options->precision == MIMO_BF16 ? NN_PRECISION_BF16 : NN_PRECISION_FULL,
        .order = options->shards > 0 ? NN_ORDER_FIXED : NN_ORDER_FAST};
    TRY(compute_device_open(&run->device, run->world, &runtime));
    const topology_desc grids = run_model_grids(options);
    TRY(topology_create(&run->topology, run->device.world, &grids));
    TRY(caption_data_load(&run->data, run->world, run->options));
    TRY(lora_setup_make(&run->lora, options, run->world));
    TRY(build_model(run));
    TRY(load_model(run));
    TRY(recover(run));
    TRY(open_results(run));
    run->course->from = run->first_step;
    if (run->course->generation == 0)
        TRY(ask_base(run));
    /* So that a rank that dies at once costs no step. */
    if (options->save_memory > 0)
        TRY(memory_save_take(&run->course->memory, run->first_step));
    save_points_begin(&run->saves);
    TRY(train(run));
    TRY(save_points_finish(&run->saves, steps_taken(run)));
    return finish(run);
}

mimo_status training_generation(run_course *course, const struct options *options, mimo_comm *world)
{
    run_state run = {
        .course = course, .options = options, .world = world, .lead = mimo_comm_rank(world) == 0};
    run.saves = (save_points){.options = options,
                              .trainer = &run.trainer,
                              .lora = &run.lora,
                              .progress = &run.progress,
                              .world = world,
                              .saved = course->saved};
    mimo_status status = run_all(&run);
    course->saved = run.saves.saved;
    save_points_end(&run.saves);
    mimo_status closed = train_log_close(run.log);
    if (status == MIMO_OK)
        status = mimo_comm_agree(world, closed);
    memory_save_pause(&course->memory);
    best_state_release(&run.best);
    expert_loads_release(&run.loads);
    model_hashes_release(&run.hashes);
    trainer_destroy(&run.trainer);
    model_destroy(&run.model);
    lora_setup_release(&run.lora);
    topology_destroy(&run.topology);
    compute_device_close(&run.device);
    caption_data_release(&run.data);
    return status;
}

mimo_status training_run(const struct options *options, mimo_comm *world)
{
    run_course course = RUN_COURSE_INIT;
    mimo_status status = training_generation(&course, options, world);
    run_course_release(&course);
    return status;
}
