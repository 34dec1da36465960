/* A whole run: data, topology, model, steps, checkpoint, and what the model can do at the end. */
#ifndef CAPTIONER_TRAINING_RUN_H
#define CAPTIONER_TRAINING_RUN_H

#include <mimo/mimo.h>

#include "captioner/training/options.h"
#include "captioner/training/run_course.h"

/** Collective; every rank returns the same status. Rank 0 alone prints results and writes files. */
mimo_status training_run(const struct options *options, mimo_comm *world);

/** The same of one generation of a run: it makes and destroys all that depends on its ranks. The
 *  course has what the next one goes on with. */
mimo_status training_generation(run_course *course, const struct options *options,
                                mimo_comm *world);

#endif
