/* Steps of a pass by nodes: a forward beside the backward of another micro-batch, as one step FB
 * does, forwards and backwards alone, and the encoder's. */
#ifndef TRAIN_PAIR_PASS_H
#define TRAIN_PAIR_PASS_H

#include "train/model/encoder.h"
#include "train/model/language.h"
#include "train/pipeline/pipeline.h"

/** What the caller has around the LLM's chunks. */
typedef struct pair_pass_work {
    void *context;
    /** The text of the task's micro-batch: behind `begin`. */
    const language_text *(*text)(void *context, const pipeline_task *task);
    /** In front of a forward: image rows come into its input. */
    mimo_status (*begin)(void *context, const pipeline_task *task);
    /** Behind a forward, its losses included. NULL: nothing. */
    mimo_status (*end)(void *context, const pipeline_task *task);
    /** The gradient of a backward's input is there. */
    mimo_status (*give)(void *context, const pipeline_task *task);
    /** A piece of the encoder's forward or backward of a group; {1, 1}: the whole. NULL: the caller
     *  runs steps E and EB by itself. */
    mimo_status (*encode)(void *context, const mimo_node *node, encoder_piece at);
} pair_pass_work;

typedef struct pair_pass_desc {
    language_model *language;      /* borrowed */
    const layer_layout *layout;    /* of its layers on all stages; not kept */
    bool mixtures;                 /* blocks 1, 3, ... are some */
    int stage, stages;             /* of this rank, and all */
    const mimo_schedule *schedule; /* not kept */
    /* Of a device: with a lane for exchanges, and the mixtures' dispatch. Borrowed. */
    const stage_streams *streams;
    nn_dispatch *dispatch;
    int64_t pieces;               /* of the encoder's steps; 0: they are whole */
    const mimo_node_costs *costs; /* of nodes, not kept; NULL: those of the library */
    pair_pass_work work;
} pair_pass_desc;

typedef struct pair_pass {
    language_model *language;
    mimo_nodes *nodes; /* of the whole schedule */
    stack_walk walk;
    step_clock clock; /* of the walk */
    int64_t pieces;
    pair_pass_work work;
    const pipeline_task *tasks; /* of the step that runs: its F and its B */
} pair_pass;

/** Cut a schedule of the model into nodes. Local; the same answer on every rank. The caller zeroes
 *  *out before and calls pair_pass_destroy after, whatever the result; *out stays where it is.
 *  Errors: MIMO_ERR_UNSUPPORTED (stages on a device), those of mimo_nodes_create (no layer has
 *  experts). */
mimo_status pair_pass_create(pair_pass *out, const pair_pass_desc *desc);
void pair_pass_destroy(pair_pass *pair);

/** Run a step, as pipeline_work.compute_pair. */
mimo_status pair_pass_run(pair_pass *pair, const pipeline_task *tasks, int64_t step);

/** Run another step; `step` is its place in the list. Of BF and BB only what is cut from steps of
 *  the encoder. */
mimo_status pair_pass_run_alone(pair_pass *pair, const pipeline_task *task, int64_t step);

/** Times count from here on: at the begin of each walk of the list. Local. */
mimo_status pair_pass_begin(pair_pass *pair);

/** When the stage's nodes ran, in nanoseconds, into times[walk.count]: those of steps that were run
 *  above; all others at 0. Once for each pair_pass_begin. Local. */
mimo_status pair_pass_times(mimo_node_time *times, pair_pass *pair);

#endif
