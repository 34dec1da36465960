/*
 * A pass over micro-batches: forward alone, or forward and backward of each. A schedule says what
 * every stage does and in which order; this is the work of its steps (pipeline.h).
 */
#ifndef TRAIN_MODEL_PASS_H
#define TRAIN_MODEL_PASS_H

#include "train/model/bridged_model.h"
#include "train/model/pair_pass.h"

typedef struct model_pass_desc {
    bool backward;
    int64_t micro_batches; /* at most those that the model was made for */
    int64_t samples;       /* of a micro-batch, at most its total: the next ones go to the next */
} model_pass_desc;

typedef struct model_pass {
    model_pass_desc desc;
    bridged_model *model;
    mimo_schedule *schedule;
    mimo_schedule_desc sizes; /* of the schedule */
    stage_pipeline pipeline;
    pair_pass pair;       /* of a schedule with steps FB, all of whose LLM steps it runs */
    language_text *texts; /* [micro_batches], all read before the first one goes forward */
    picture_deal *deals;  /* [groups], all dealt before the first one is encoded */
    int64_t groups;
    int64_t *picked;              /* [G * total]: the samples of a group; -1: masked */
    const model_samples *samples; /* of a run */
    bool warm;                    /* it has run, on a device */
} model_pass;

/** Collective over the world. The model is borrowed, and has one pass at a time that runs. The
 *  caller zeroes *out before and calls model_pass_destroy after, whatever the result. Errors:
 *  MIMO_ERR_ARGUMENT (more micro-batches than the model was made for), those of schedule_choose,
 *  pair_pass_create and pipeline_create. */
mimo_status model_pass_create(model_pass *out, bridged_model *model, const model_pass_desc *desc);
void model_pass_destroy(model_pass *pass);

/** Run the pass over samples, at most micro_batches * desc.samples; what they do not fill is
 *  masked. Losses add up in language_losses; gradients in both stores. Where nothing of the encoder
 *  is trained, no gradient crosses the bridge. In stages on a device the first run takes twice as
 *  long, and both stores' gradients begin at zero. Collective over the world; the ranks agree once,
 *  when all texts are read and all pictures dealt, and where samples have several pictures, once
 *  more in the bridge's update. With experts on a device in the fixed order it waits for the last
 *  move, and the ranks agree once more: until then nobody has asked whether a tile was too small.
 *  Errors: those of pipeline_run and of nn_dispatch_check. */
mimo_status model_pass_run(model_pass *pass, const model_samples *samples);

/** What the deals of the last run gave the encoder's lanes. Local. */
lane_rows model_pass_lanes(const model_pass *pass);

#endif
