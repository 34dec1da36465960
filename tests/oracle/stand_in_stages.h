/* A pipeline whose stages only add numbers, beside an encoder on all ranks that makes them: one
 * rank a stage. It has everything of a real one that waits: hops, and the bridge's calls. */
#ifndef ORACLE_STAND_IN_STAGES_H
#define ORACLE_STAND_IN_STAGES_H

#include <mimo/mimo.h>

#include "train/pipeline/pipeline.h"

enum {
    STAND_IN_ROWS = 3,
    STAND_IN_TILE = STAND_IN_ROWS * 4,
    STAND_IN_RANKS = 8,
    STAND_IN_STATES = 24, /* the most saved states, and slots */
};

typedef nn_real stand_in_tile[STAND_IN_TILE];

typedef struct stand_in_stages {
    mimo_comm *comm;
    mimo_grid *encoders, *stages;
    mimo_bridge *bridge;
    stage_hops hops;
    mimo_schedule *schedule;
    stage_pipeline pipeline;
    stand_in_tile input[STAND_IN_STATES], output[STAND_IN_STATES];
    stand_in_tile encoded[STAND_IN_STATES], brought[STAND_IN_STATES][STAND_IN_RANKS];
    int64_t stage, count;
    int64_t chunks; /* of the model: count * V */
    int64_t
        right; /* backwards of the encoder with the right gradients, and without encoder those of
                      the first stage */
    /* Called before each step that computes or begins a call; what it returns is the step's status.
     * NULL: no */
    mimo_status (*before)(struct stand_in_stages *own, const pipeline_task *task);
    int64_t steps; /* before which it was called */
} stand_in_stages;

/* Collective. `spare` is added to the saved states that the list needs. The caller zeroes *out
 * before and calls stand_in_destroy after, whatever the result. */
mimo_status stand_in_create(stand_in_stages *out, mimo_comm *comm, const mimo_schedule_desc *sizes,
                            int64_t spare);
void stand_in_destroy(stand_in_stages *own);

#endif
