#include "captioner/training/save_points.h"

#include <inttypes.h>
#include <stdio.h>

#include "train/support/train_support.h"
#include "captioner/training/checkpoint.h"

enum { REASON = 1024 };

void save_points_begin(save_points *out, const struct options *options, step_trainer *trainer,
                       mimo_comm *world)
{
    *out = (save_points){.options = options, .trainer = trainer, .world = world};
    if (options->save)
        stop_request_begin(&out->request);
}

void save_points_end(const save_points *points)
{
    if (points->options->save)
        stop_request_end(&points->request);
}

/* The error that ends the run is the last one of this thread. */
static mimo_status save_and_end(const save_points *points, int64_t step, mimo_status status)
{
    char reason[REASON];
    const char *path = points->options->save;
    if (!path)
        return status;
    snprintf(reason, sizeof reason, "%s", mimo_last_error());
    if (checkpoint_save(path, points->trainer, step) != MIMO_OK)
        return fail_prefix(status, "%s. The model after step %" PRId64 " is lost: ", reason, step);
    return mimo_fail(status,
                     "%s. The model after step %" PRId64 " of %" PRId64
                     " is in %s, and --resume goes on with it",
                     reason, step, points->options->steps, path);
}

mimo_status save_points_pass(const save_points *points, int64_t step, mimo_status logged)
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
    return due ? checkpoint_save(options->save, points->trainer, step) : MIMO_OK;
}
