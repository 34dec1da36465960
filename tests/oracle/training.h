/* A longer training run, to see what a bug does to it. It repeats the data of a few steps. */
#ifndef ORACLE_TRAINING_H
#define ORACLE_TRAINING_H

#include "oracle_topology.h"
#include "synthetic.h"

typedef struct training_outcome {
    double reported; /* mean of the last repetition's losses, as the run reports them */
    double judged;   /* on rank 0: the reference's loss with the final weights */
} training_outcome;

/* Collective. */
mimo_status training_run(training_outcome *out, const oracle_topology *topology,
                         const oracle_case *shape, uint64_t seed, int steps);

#endif
