/*
 * The arrays that make up a model between two steps: of each parameter its value, and of a trained
 * one the two moments of AdamW. Beside them there is the number of steps. The next step reads
 * nothing else of those before: samples and learning rate follow from its number, and gradients and
 * the counts of routers begin at 0.
 *
 * Checkpoints and the best state of a run go through this list, so neither forgets an array that
 * the other one has.
 */
#ifndef CAPTIONER_MODEL_STATE_H
#define CAPTIONER_MODEL_STATE_H

#include <stddef.h>

#include "train/model/bridged_model.h"
#include "train/nn/params/nn_whole.h"

typedef enum state_choice {
    STATE_ALL,
    STATE_CHANGING, /* what a step can change, of what this rank holds */
    STATE_TRAINED,  /* what a step can change, on any rank */
    STATE_BASE,     /* values of what is no adapter */
} state_choice;

typedef struct state_array {
    const nn_param *param;
    nn_param_part place;
    const char *suffix; /* of its name in files, behind the parameter's */
} state_array;

typedef struct model_state {
    state_array *arrays; /* by store and parameter; except STATE_CHANGING the same everywhere */
    int64_t count;
} model_state;

/** Local. The caller zeroes *out before and calls model_state_release after, whatever the result.
 *  MIMO_ERR_MEMORY. */
mimo_status model_state_list(model_state *out, const bridged_model *model, state_choice choice);
void model_state_release(model_state *state);

/** The letters of the parameter's name at the beginning of an array's name in files. Pure. */
size_t model_state_param_length(const char *name);

/** Both modules have taken that number of steps: AdamW's corrections go on from there. Local. */
void model_state_set_steps(const bridged_model *model, int64_t steps);

#endif
