/* What the oracle sees of mixtures of experts: what routers give, what comes to experts and what
 * they make of it, and what goes back. */
#ifndef ORACLE_ORACLE_MIXTURES_H
#define ORACLE_ORACLE_MIXTURES_H

#include "oracle_candidate.h"

/* The mixture of a block of the model; NULL: it has none, or is another stage's. */
const nn_moe *oracle_mixture_at(const language_model *llm, int64_t block);

/* Elements of the widest tile of a mixture's experts, and its rows; 0 without mixtures. */
int64_t oracle_mixtures_elements(const language_model *llm);
int64_t oracle_mixtures_rows(const language_model *llm);

/* Before the forward of micro-batch m: where its rows stand, for the replay, and their tokens,
 * which go to the experts beside them. Where nothing is replayed it does nothing. */
mimo_status oracle_mixtures_begin(oracle_candidate *candidate, int64_t m, int64_t state);

/* After it, into candidate->capture. What ranks send goes to candidate->sent. */
void oracle_mixtures_capture(oracle_candidate *candidate, int64_t state);

#endif
