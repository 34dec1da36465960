/* The training step under test: encoder, bridge and LLM on this rank's share of a synthetic step,
 * gradients by the library's rules, and both optimizers. */
#ifndef ORACLE_ORACLE_CANDIDATE_H
#define ORACLE_ORACLE_CANDIDATE_H

#include "train/model/encoder.h"
#include "train/model/language.h"
#include "train/model/pair_pass.h"

#include "capture.h"
#include "oracle_pass.h"
#include "oracle_positions.h"
#include "oracle_replay.h"
#include "oracle_tiles.h"
#include "oracle_topology.h"
#include "synthetic.h"

enum { ORACLE_STORES = 2 };

typedef struct oracle_candidate {
    const oracle_topology *topology;
    ref_sizes sizes;
    oracle_case shape;
    vision_encoder encoder;
    nn_dispatch *dispatch; /* of the LLM's mixtures; NULL: there are none */
    nn_replay forced;      /* of their routers, from `replay` */
    layer_layout layout;   /* of the LLM's blocks */
    language_model llm;
    language_text *texts;              /* [states of the LLM] */
    oracle_positions positions;        /* of the image rows */
    nn_params *stores[ORACLE_STORES];  /* of the encoder and the LLM; borrowed */
    int64_t group, groups;             /* micro-batches that are encoded together; n of these */
    int64_t first_picture, pictures;   /* of a group: those that this rank encodes */
    int64_t first_sentence, sentences; /* of a micro-batch: those that it holds for the LLM */
    oracle_pass train, predict;        /* of a step, and of forwards alone */
    pair_pass pair;                    /* of a step with FB; otherwise zeroed */
    stage_streams streams;             /* of its nodes */
    stage_hops hops;                   /* between stages */
    int64_t slots;                     /* encoder groups at once */
    nn_real *patches;                  /* [slots][P, b, values], in the memory of the computation */
    nn_real *on_host;                  /* host memory for a tile, or for two parameters */
    double *losses;                    /* [S, B] in host memory */
    oracle_tiles *tiles;               /* [slots], each of a group */
    int64_t *row_of;                   /* room for the row_of of a capture_block */
    int64_t *numbers;                  /* room for whole numbers of the rows of a mixture */
    oracle_replay *replay;             /* borrowed; NULL: routers choose */
    oracle_capture sent;               /* what ranks send to experts */
    /* Of the walk in progress: */
    const oracle_pass *pass;
    const synthetic_step *step;
    oracle_capture *capture; /* NULL: nothing is captured */
    const char *logits;      /* capture these alone, under this name; NULL: everything */
} oracle_candidate;

/* Collective. With a replay, routers take its choices, and mixtures are traced. The caller zeroes
 * *out before and destroys it after, whatever the result. */
mimo_status oracle_candidate_create(oracle_candidate *out, const oracle_topology *topology,
                                    const ref_sizes *sizes, const oracle_case *shape,
                                    oracle_replay *replay);
void oracle_candidate_destroy(oracle_candidate *candidate);

/* Layers of the LLM: with many chunks some have none. */
int64_t oracle_layers(const oracle_topology *topology);

/* The sizes of a case on a topology, with its adapters. With adapters on every layer the rest is
 * frozen in the case of several micro-batches, and trained in the other one. */
ref_sizes oracle_sizes(const oracle_topology *topology, const oracle_case *shape, uint64_t seed);

/* Adapters of the topology's rank on every linear layer, where it has one. */
void oracle_set_adapters(ref_sizes *sizes, const oracle_topology *topology, bool frozen);

/* Set the parameters to the initial values of ref_model_create, from train/nn's own generator. */
mimo_status oracle_candidate_reset(oracle_candidate *candidate);
/* The same for other stores of a model of these sizes, without twins. */
mimo_status oracle_params_reset(const oracle_candidate *candidate,
                                nn_params *const stores[ORACLE_STORES]);

typedef struct oracle_step_result {
    double loss, norm; /* mean over the tokens; over all gradients */
    int64_t tokens;
} oracle_step_result;

/* Add the gradients of both stores up over the ranks, and count what they are the mean of.
 * Collective. */
mimo_status oracle_gradients_finish(oracle_step_result *result, const rank_topology *ranks,
                                    nn_params *const stores[ORACLE_STORES]);

/* Forward, backward, finalize. Where `capture` is not NULL it gets every result, under the names of
 * the reference. Collective. */
mimo_status oracle_candidate_step(oracle_candidate *candidate, const synthetic_step *step,
                                  oracle_capture *capture, oracle_step_result *result);

/* Forwards of all micro-batches. Their logits are captured under `name`. Collective. */
mimo_status oracle_candidate_predict(oracle_candidate *candidate, const synthetic_step *step,
                                     oracle_capture *capture, const char *name);

/* Capture parameters, or their gradients, under "PREFIX NAME". */
void oracle_candidate_capture_values(const oracle_candidate *candidate, oracle_capture *capture,
                                     const char *prefix);
void oracle_candidate_capture_adapters(const oracle_candidate *candidate, oracle_capture *capture,
                                       const char *prefix);
void oracle_candidate_capture_grads(const oracle_candidate *candidate, oracle_capture *capture,
                                    const char *prefix);

/* Capture the values or gradients of stores of the candidate's sizes, under "PREFIX NAME". */
void oracle_params_capture(const oracle_candidate *candidate,
                           nn_params *const stores[ORACLE_STORES], oracle_capture *capture,
                           const char *prefix, nn_part part);

/* The rule of every AdamW step of the oracle's comparison. */
extern const nn_adamw oracle_adamw;

mimo_status oracle_candidate_sgd(oracle_candidate *candidate, double lr);
mimo_status oracle_candidate_adamw(oracle_candidate *candidate, const nn_adamw *rule, double norm);

#endif
