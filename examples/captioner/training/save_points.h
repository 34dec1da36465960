/* When a run saves its model before its end: every few steps, and where it has to end early. */
#ifndef CAPTIONER_SAVE_POINTS_H
#define CAPTIONER_SAVE_POINTS_H

#include "captioner/support/stop_request.h"
#include "captioner/training/options.h"
#include "captioner/training/train_step.h"

typedef struct save_points {
    const struct options *options; /* borrowed, as is the trainer */
    step_trainer *trainer;
    mimo_comm *world;
    struct stop_request request;
} save_points;

/** From here on SIGTERM and SIGINT end a run that has a checkpoint to write, at its next save
 *  point. Local; the caller calls save_points_end after. */
void save_points_begin(save_points *out, const struct options *options, step_trainer *trainer,
                       mimo_comm *world);
void save_points_end(const save_points *points);

/**
 * Between two steps, after `step` of them: save where --save-every says so. `logged` is what the
 * log said to this rank's line. A full disk under the log ends the run, and so does a signal that
 * one rank heard: then the model is saved, if there is a file for it.
 *
 * Collective. MIMO_OK where the run goes on; otherwise, the same on every rank, MIMO_ERR_ABORTED
 * (a signal), the error of the log, or that of the checkpoint. The sentence says what was saved.
 */
mimo_status save_points_pass(const save_points *points, int64_t step, mimo_status logged);

#endif
