/* A forward beside the backward of another micro-batch, by nodes: what a step FB of a pass does. */
#ifndef TRAIN_PAIR_PASS_H
#define TRAIN_PAIR_PASS_H

#include "train/model/bridged_model.h"

/** What stands in front of a chunk and behind it, of the pass. */
typedef struct pair_pass_work {
    void *context;
    /** Image rows into the input of a forward; gradients of them out of that of a backward. */
    mimo_status (*take_rows)(void *context, const pipeline_task *task);
    mimo_status (*give_rows)(void *context, const pipeline_task *task);
} pair_pass_work;

typedef struct pair_pass {
    language_model *language; /* borrowed */
    const language_text *texts;
    mimo_nodes *nodes; /* of the whole schedule */
    stack_walk walk;
    pair_pass_work work;
    const pipeline_task *tasks; /* of the step that runs: its F and its B */
} pair_pass;

/** Cut a schedule of the model into nodes. texts: of each micro-batch, borrowed. Local; the same
 *  answer on every rank. The caller zeroes *out before and calls pair_pass_destroy after, whatever
 *  the result. Errors: MIMO_ERR_UNSUPPORTED (on a device; blocks that recompute), those of
 *  mimo_nodes_create (no layer has experts). */
mimo_status pair_pass_create(pair_pass *out, bridged_model *model, const mimo_schedule *schedule,
                             const language_text *texts, const pair_pass_work *work);
void pair_pass_destroy(pair_pass *pair);

/** Run a step, as pipeline_work.compute_pair. */
mimo_status pair_pass_run(pair_pass *pair, const pipeline_task *tasks, int64_t step);

#endif
