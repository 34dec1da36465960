/*
 * The grids of --survive: how a run goes on where fewer ranks are left.
 *
 *     7: --encoder=tp=1,dp=7 --llm=tp=1,cp=1,dp=7; 6: --encoder=tp=2,dp=3 --llm=tp=2,cp=1,dp=3
 *
 * Each entry has the number of ranks that are left, and options for them, over the usual ones: each
 * rank has all layers and experts (dp alone), and 1f1b with the run's micro-batches. Without a text
 * every number of ranks has the usual ones. An entry may say how the work is cut and in which order
 * it is done, and nothing of the model or its training.
 */
#ifndef CAPTIONER_SURVIVE_GRIDS_H
#define CAPTIONER_SURVIVE_GRIDS_H

#include "captioner/training/options.h"

typedef struct survive_entry {
    int ranks;
    struct options options; /* of the run on them; texts lie in `text` or below */
    char encoder[32], llm[32];
} survive_entry;

typedef struct survive_grids {
    char *text;             /* of the option, cut into words */
    survive_entry *entries; /* [count]: of the text; without one of each number of ranks */
    int count;
} survive_grids;

/** Read options->survive for a run of `ranks` ranks, and check that each entry holds the model
 *  (run_model_check). Local, the same answer on every rank. The caller zeroes *out before and
 *  releases it after, whatever the result. MIMO_ERR_ARGUMENT for what is not understood, with the
 *  entry; the errors of run_model_check behind the entry's name; MIMO_ERR_MEMORY. */
mimo_status survive_grids_read(survive_grids *out, const struct options *options, int ranks);
void survive_grids_release(survive_grids *grids);

/** *out: the options of a run on `ranks` ranks; they borrow from the grids. MIMO_ERR_NOT_FOUND: the
 *  text has no such entry; the sentence has those that it has. */
mimo_status survive_grids_choose(const struct options **out, const survive_grids *grids, int ranks);

#endif
