/* What the steps of a schedule compute on the model under test, and what is captured of each. */
#ifndef ORACLE_ORACLE_STEPS_H
#define ORACLE_ORACLE_STEPS_H

#include "oracle_candidate.h"

/* For a pipeline. The candidate is borrowed; its step, capture and logits say what a walk is of. */
pipeline_work oracle_steps_of(oracle_candidate *candidate);

/* Around a forward and a backward that run by nodes; likewise. */
pair_pass_work oracle_pairs_of(oracle_candidate *candidate);

#endif
