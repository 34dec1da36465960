/* A whole run: data, topology, model, steps, checkpoint, and what the model can do at the end. */
#ifndef CAPTIONER_TRAINING_RUN_H
#define CAPTIONER_TRAINING_RUN_H

#include <mimo/mimo.h>

#include "captioner/training/options.h"

/** Collective; every rank returns the same status. Rank 0 alone prints results and writes files. */
mimo_status training_run(const struct options *options, mimo_comm *world);

#endif
