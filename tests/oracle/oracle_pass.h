/* A walk of a schedule over the micro-batches of a step: the training step, or forwards alone. What
 * a step of it computes is the candidate's. */
#ifndef ORACLE_ORACLE_PASS_H
#define ORACLE_ORACLE_PASS_H

#include <stdio.h>

#include "train/pipeline/pipeline.h"

#include "oracle_topology.h"

typedef struct oracle_pass {
    mimo_schedule *schedule;
    mimo_schedule_desc sizes;
    stage_pipeline pipeline;
    FILE *notes; /* into `ran`: what the last walk did, written as schedules are printed */
    char *ran;
    size_t length;
} oracle_pass;

/* Make the schedule of the topology, with at most `slots` encoder groups at once; 0: as it says.
 * Local. The caller zeroes *out before and destroys it after, whatever the result. */
mimo_status oracle_pass_choose(oracle_pass *out, const oracle_topology *topology,
                               int64_t micro_batches, bool backward, int64_t slots);
/* Then the pipeline, of states[chunks] saved states and `slots`. Collective. */
mimo_status oracle_pass_create(oracle_pass *out, const oracle_topology *topology,
                               const int64_t *states, int64_t slots, stage_hops *hops,
                               const pipeline_work *work);
void oracle_pass_destroy(oracle_pass *pass);

/* The saved states that its list needs on this stage, of each chunk. The caller releases *states.
 */
mimo_status oracle_pass_states(int64_t **states, const oracle_pass *pass,
                               const oracle_topology *topology);

/* Walk the list. Collective. Each step that computes or begins a call notes itself. */
mimo_status oracle_pass_run(oracle_pass *pass);
void oracle_pass_note(const oracle_pass *pass, const pipeline_task *task);
/* Of an FB: its F and its B. */
void oracle_pass_note_pair(const oracle_pass *pass, const pipeline_task *tasks);

/* Whether the notes of the last walk are the line that is printed of this stage. */
mimo_status oracle_pass_was_printed(bool *out, const oracle_pass *pass);

#endif
