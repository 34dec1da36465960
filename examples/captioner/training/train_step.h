/* One optimizer step over a global batch, by the gradient rules of <mimo/gradient.h>. */
#ifndef CAPTIONER_TRAIN_STEP_H
#define CAPTIONER_TRAIN_STEP_H

#include "train/formats/adapter_config.h"
#include "train/model/checkpoint_keys.h"
#include "train/model/model_pass.h"
#include "captioner/training/file_wait.h"
#include "captioner/training/turn_choice.h"

typedef struct trainer_desc {
    const batch_item *items; /* the training samples; borrowed */
    int64_t samples;
    int64_t steps;        /* where the learning rate's schedule ends */
    int64_t global_batch; /* cut into micro-batches of the size that the model has */
    uint64_t seed;
    double lr;                             /* at its height */
    double decay;                          /* of AdamW */
    unsigned augment;                      /* kinds of changes to the samples */
    int64_t least_images;                  /* pictures of a sample; at most the model's */
    const struct adapter_config *adapters; /* for checkpoints; borrowed; NULL: there are none */
    checkpoint_keys keys;                  /* that checkpoints are written with */
    file_wait_limit waits;                 /* of their saves */
} trainer_desc;

typedef struct step_trainer {
    trainer_desc desc;
    bridged_model *model;
    nn_gradients gradients; /* of both modules: one norm over both */
    int64_t *chosen;        /* [global_batch] */
    batch_item *gathered;   /* [global_batch] */
    batch_item *further;    /* [global_batch, most_images - 1] turns that follow them */
    model_pass pass;        /* over the micro-batches of a step */
    int64_t *loads;         /* of this stage's last step (language_adjust) */
    lane_rows lanes;        /* likewise: what the encoder's lanes had to do */
    bool stepped;           /* it has changed the weights */
} step_trainer;

typedef struct step_result {
    double loss;      /* mean over the step's tokens */
    double grad_norm; /* before clipping, over both modules */
    int64_t tokens;
} step_result;

/** Collective. The caller zeroes *out before and calls trainer_destroy after. */
mimo_status trainer_create(step_trainer *out, bridged_model *model, const trainer_desc *desc);
void trainer_destroy(step_trainer *trainer);

/** Step `step`, from 0. Collective. */
mimo_status train_step(step_trainer *trainer, int64_t step, step_result *result);

/** The learning rate of step `step`: a linear warmup, then half a cosine down to a tenth. Pure. */
double learning_rate(const trainer_desc *desc, int64_t step);

#endif
