/* A longer training run, to see what a bug does to it: the data are a few steps' over and over. */
#ifndef ORACLE_TRAINING_H
#define ORACLE_TRAINING_H

#include "oracle_topology.h"
#include "synthetic.h"

typedef struct training_outcome {
    double reported; /* mean of the last round's losses, as the run itself reports them */
    double judged;   /* rank 0: loss of the reference with the weights that came out */
} training_outcome;

/* Collective. */
mimo_status training_run(training_outcome *out, const oracle_topology *topology,
                         const oracle_case *shape, uint64_t seed, int steps);

#endif
