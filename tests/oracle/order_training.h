/* A training run in the fixed order of additions, as lines that every topology prints alike. */
#ifndef ORACLE_ORDER_TRAINING_H
#define ORACLE_ORDER_TRAINING_H

#include "oracle_topology.h"
#include "synthetic.h"

typedef struct order_run {
    uint64_t seed;
    int steps;
    bool sgd; /* SGD; otherwise AdamW */
} order_run;

/* An error where V does not divide the model's heads. Local, and the same on every rank. */
mimo_status order_training_check(const oracle_spec *spec);

/* Print a line for each step on rank 0: the bits of loss and norm, and the hashes of the gradients
 * and of the parameters after the step, over both modules. The sizes do not depend on the number of
 * ranks. Collective. MIMO_ERR_STATE: copies of a parameter differ between ranks. */
mimo_status order_training_run(const oracle_topology *topology, const oracle_case *shape,
                               const order_run *run);

#endif
