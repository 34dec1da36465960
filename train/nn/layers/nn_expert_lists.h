/*
 * What calls on groups of rows take from each of a rank's experts (nn_ops.h): lists of the arrays
 * of its parameters. The arrays of a store stay where they are, so lists change only where adapters
 * are merged into their weights, or taken out again.
 */
#ifndef MIMO_NN_NN_EXPERT_LISTS_H
#define MIMO_NN_NN_EXPERT_LISTS_H

#include "train/nn/layers/nn_lora.h"
#include "train/nn/params/nn_params.h"

typedef struct nn_expert_linear {
    int weight, bias;
    nn_lora lora;
} nn_expert_linear;

typedef struct nn_expert {
    nn_expert_linear up, down;
} nn_expert;

typedef enum nn_expert_layer {
    NN_EXPERT_UP = 0,
    NN_EXPERT_DOWN = 1,
    NN_EXPERT_LAYERS
} nn_expert_layer;
typedef enum nn_expert_part {
    NN_EXPERT_WEIGHT = 0,
    NN_EXPERT_BIAS = 1,
    NN_EXPERT_A = 2, /* of the adapter; NULL where there is none, or it is merged */
    NN_EXPERT_B = 3,
    NN_EXPERT_PARTS,
} nn_expert_part;

typedef struct nn_expert_lists {
    int64_t count;
    void **made;  /* [layers, values and gradients, parts, count], on the host */
    void **there; /* where calls read them: `made`, or its copy on a device */
} nn_expert_lists;

/** Room for the lists of `count` experts, which hold nothing yet. Local. Errors: MIMO_ERR_MEMORY.
 *  Release accepts a zeroed struct. */
mimo_status nn_expert_lists_init(nn_expert_lists *lists, const nn_runtime *runtime, int64_t count);
void nn_expert_lists_release(nn_expert_lists *lists, const nn_runtime *runtime);

/** Take the arrays of a sealed store. Where lists on a device change it enqueues a copy; the host
 *  does not wait. Local. */
mimo_status nn_expert_lists_update(const nn_expert_lists *lists, const nn_params *params,
                                   const nn_expert *experts);

/** [count] values, and what a gradient is added to: NULL in it where the part is frozen, or there
 *  is none. */
const nn_real *const *nn_expert_values(const nn_expert_lists *lists, nn_expert_layer layer,
                                       nn_expert_part part);
void *const *nn_expert_gradients(const nn_expert_lists *lists, nn_expert_layer layer,
                                 nn_expert_part part);

#endif
