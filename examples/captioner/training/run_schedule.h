/* The schedule of a run's pipeline as it was planned and as it went: schedule.svg and
 * schedule_run.svg in the folder of --out, and what the steps cost. */
#ifndef CAPTIONER_RUN_SCHEDULE_H
#define CAPTIONER_RUN_SCHEDULE_H

#include <stdio.h>

#include "train/model/model_pass.h"

/** Whether both pictures could be written now. Leaves nothing behind. Local: for rank 0.
 *  MIMO_ERR_IO, MIMO_ERR_ARGUMENT (the folder's name is too long). */
mimo_status run_schedule_probe(const char *folder);

/**
 * Gather when the steps of the last run of a pass ran, on the first rank of each stage. Rank 0
 * draws them in microseconds into the folder (NULL: no pictures), says on `stream` where the files
 * are, and what each kind of step cost there on average, as --cost takes it; under --overlap nodes
 * are drawn (run_nodes.h), and a second line has what they cost. A line that begins
 * with "ran " has the microseconds that the list took, those that the simulator finds with these
 * costs, and of the stage with the most: what it keeps for the list, and the microseconds for which
 * the walk kept the host (pipeline.h). Once for each run. Collective over the world. Errors, on all
 * ranks: MIMO_ERR_IO, MIMO_ERR_MEMORY, MIMO_ERR_DEVICE.
 */
mimo_status run_schedule_report(model_pass *pass, const char *folder, FILE *stream);

#endif
