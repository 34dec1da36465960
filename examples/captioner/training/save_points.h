/* When a run saves its model: every few steps, where it has to end early, and at its end. */
#ifndef CAPTIONER_SAVE_POINTS_H
#define CAPTIONER_SAVE_POINTS_H

#include "captioner/support/progress.h"
#include "captioner/support/stop_request.h"
#include "captioner/training/lora_setup.h"
#include "captioner/training/options.h"
#include "captioner/training/train_step.h"

typedef struct save_points {
    const struct options *options; /* borrowed, as is all that follows */
    step_trainer *trainer;
    const lora_setup *lora;
    struct progress *progress; /* of rank 0 */
    mimo_comm *world;
    int64_t saved;  /* after which step the run wrote its checkpoint last; -1: it did not yet. The
                       caller sets what an earlier generation wrote */
    bool listening; /* for signals */
    struct stop_request request;
} save_points;

/** From here on SIGTERM and SIGINT end a run that has a checkpoint to write, at its next save
 *  point. The caller sets what is borrowed before, and calls save_points_end after. Local. */
void save_points_begin(save_points *points);
void save_points_end(save_points *points);

/**
 * Between two steps, after `step` of them: save where --save-every says so. `logged` is what the
 * log said to this rank's line. A full disk under the log ends the run, and so does a signal that
 * one rank heard: then the model is saved, if there is a file for it. A save that --save-every asks
 * for and that fails does not: rank 0 warns, and the next save point is another try.
 *
 * Collective. MIMO_OK where the run goes on; otherwise, the same on every rank, MIMO_ERR_ABORTED
 * (a signal), the error of the log, or that of a transport. The sentence says what was saved.
 */
mimo_status save_points_pass(save_points *points, int64_t step, mimo_status logged);

/**
 * At the end of a run, whose model is that after `step`: all that it is to leave, the checkpoint,
 * the adapter and the merged model. Where one cannot be written the others are. Signals are heard
 * until all are there: a second one ends the process, as ever.
 *
 * Collective. The same on every rank: MIMO_OK; the error of the first that cannot be written, with
 * what --resume has; MIMO_ERR_ABORTED where all are written and a rank heard a signal.
 */
mimo_status save_points_finish(save_points *points, int64_t step);

#endif
