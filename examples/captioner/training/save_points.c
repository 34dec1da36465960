#include "captioner/training/save_points.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "train/support/train_support.h"
#include "captioner/training/adapter_store.h"
#include "captioner/training/checkpoint.h"

enum { REASON = 1024 };

static void listen(save_points *points)
{
    if (!points->listening)
        stop_request_begin(&points->request);
    points->listening = true;
}

void save_points_begin(save_points *points)
{
    if (points->options->save)
        listen(points);
}

void save_points_end(save_points *points)
{
    if (points->listening)
        stop_request_end(&points->request);
    points->listening = false;
}

/* Whether a later save may succeed: a disk was full, or memory was short. Other errors are of the
 * ranks, which have parted. */
static bool is_of_a_save(mimo_status status)
{
    return status == MIMO_ERR_IO || status == MIMO_ERR_MEMORY;
}

static mimo_status save(save_points *points, int64_t step)
{
    mimo_status status = checkpoint_save(points->options->save, points->trainer, step);
    if (status == MIMO_OK)
        points->saved = step;
    return status;
}

/* What --resume would go on with. Files that fail leave what was there before them. */
static const char *spell_saved(char text[REASON], const save_points *points)
{
    const char *path = points->options->save;
    if (points->saved >= 0)
        snprintf(text, REASON, "%s has the model after step %" PRId64, path, points->saved);
    else if (access(path, F_OK) == 0)
        snprintf(text, REASON, "%s is as it was before this run", path);
    else
        snprintf(text, REASON, "there is no %s yet", path);
    return text;
}

/* The sentence is the last error, and then has what is lost. */
static mimo_status lose(mimo_status status, const save_points *points, int64_t step)
{
    char reason[REASON], had[REASON];
    snprintf(reason, sizeof reason, "%s", mimo_last_error());
    return mimo_fail(status, "%s. The model after step %" PRId64 " is lost: for --resume, %s",
                     reason, step, spell_saved(had, points));
}

/* The error that ends the run is the last one of this thread. */
static mimo_status save_and_end(save_points *points, int64_t step, mimo_status status)
{
    char reason[REASON];
    const char *path = points->options->save;
    if (!path)
        return status;
    snprintf(reason, sizeof reason, "%s", mimo_last_error());
    if (save(points, step) != MIMO_OK) {
        lose(status, points, step);
        return fail_prefix(status, "%s. ", reason);
    }
    return mimo_fail(status,
                     "%s. The model after step %" PRId64 " of %" PRId64
                     " is in %s, and --resume goes on with it",
                     reason, step, points->options->steps, path);
}

/* The next one is another try: a disk may have room again. */
static mimo_status save_in_passing(save_points *points, int64_t step)
{
    char had[REASON];
    const struct options *options = points->options;
    int64_t next = step + options->save_every;
    mimo_status status = save(points, step);
    if (!is_of_a_save(status))
        return status;
    if (mimo_comm_rank(points->world) == 0)
        progress_note(points->progress,
                      "captioner: warning: the save after step %" PRId64 " failed: %s. For "
                      "--resume, %s; the next try is after step %" PRId64,
                      step, mimo_last_error(), spell_saved(had, points),
                      next < options->steps ? next : options->steps);
    return MIMO_OK;
}

mimo_status save_points_pass(save_points *points, int64_t step, mimo_status logged)
{
    const struct options *options = points->options;
    const char *heard = options->save ? stop_request_heard() : NULL;
    if (!options->log && !options->save) /* then no rank has anything to say */
        return MIMO_OK;
    mimo_status status = logged;
    if (status == MIMO_OK && heard)
        status = mimo_fail(MIMO_ERR_ABORTED, "%s ended the run", heard);
    status = mimo_comm_agree(points->world, status);
    if (status == MIMO_ERR_IO || status == MIMO_ERR_ABORTED)
        return save_and_end(points, step, status);
    TRY(status);
    bool due = options->save_every > 0 && step % options->save_every == 0 && step < options->steps;
    return due ? save_in_passing(points, step) : MIMO_OK;
}

static mimo_status save_checkpoint(save_points *points, int64_t step)
{
    mimo_status status = points->options->save ? save(points, step) : MIMO_OK;
    return is_of_a_save(status) ? lose(status, points, step) : status;
}

static mimo_status save_adapter(save_points *points, int64_t step)
{
    (void)step;
    const char *path = points->options->adapter_out;
    return path ? adapter_store_save(path, points->lora, points->trainer->model) : MIMO_OK;
}

static mimo_status save_merged(save_points *points, int64_t step)
{
    const char *path = points->options->merge;
    return path ? checkpoint_save_merged(path, points->trainer, step) : MIMO_OK;
}

/* The first error of a save, once each had its turn. Any other one ends the turns. */
static mimo_status save_each(save_points *points, int64_t step)
{
    mimo_status (*const turns[])(save_points *, int64_t) = {save_checkpoint, save_adapter,
                                                            save_merged};
    mimo_status first = MIMO_OK;
    char reason[REASON];
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        mimo_status status = turns[i](points, step);
        if (status != MIMO_OK && !is_of_a_save(status))
            return status;
        if (status == MIMO_OK || first != MIMO_OK)
            continue;
        first = status;
        snprintf(reason, sizeof reason, "%s", mimo_last_error());
    }
    return first == MIMO_OK ? MIMO_OK : mimo_fail(first, "%s", reason);
}

static mimo_status check_heard(int64_t step)
{
    const char *heard = stop_request_heard();
    CHECK(!heard, MIMO_ERR_ABORTED,
          "%s ended the run. What it was to save after step %" PRId64
          " is saved, and nothing was evaluated",
          heard, step);
    return MIMO_OK;
}

mimo_status save_points_finish(save_points *points, int64_t step)
{
    const struct options *options = points->options;
    if (!options->save && !options->adapter_out && !options->merge)
        return MIMO_OK;
    listen(points);
    mimo_status status = save_each(points, step);
    if (status == MIMO_OK)
        status = mimo_comm_agree(points->world, check_heard(step));
    save_points_end(points);
    return status;
}
