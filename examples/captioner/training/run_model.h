/* The model that the options of a run describe, and the grids that it lies on. */
#ifndef CAPTIONER_RUN_MODEL_H
#define CAPTIONER_RUN_MODEL_H

#include "captioner/training/options.h"
#include "train/model/bridged_model.h"

/** Texts are the options' own. Where it computes and its adapters are the caller's to set. Pure. */
model_desc run_model_describe(const struct options *options);
topology_desc run_model_grids(const struct options *options);

/** Whether the options describe a model on `ranks` ranks: what topology_create and model_create
 *  would refuse of grids, sizes and schedule, in the same words. Pure. */
mimo_status run_model_check(const struct options *options, int64_t ranks);

#endif
