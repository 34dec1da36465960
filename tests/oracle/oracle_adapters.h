/* Which linear layers of the model under test have adapters, as the reference's sizes say. */
#ifndef ORACLE_ORACLE_ADAPTERS_H
#define ORACLE_ORACLE_ADAPTERS_H

#include "train/nn/layers/nn_lora.h"

#include "ref_model.h"

enum { ORACLE_ADAPTED_BYTES = 200 }; /* of the text that chooses them, with its end */

typedef struct oracle_adapters {
    nn_lora_selection choice;
    const char *ends[ORACLE_ADAPTED_BYTES / 2];
    char texts[ORACLE_ADAPTED_BYTES];
} oracle_adapters;

/* The choice, in *room; NULL: there are none. */
const nn_lora_selection *oracle_adapters_of(oracle_adapters *room, const ref_sizes *sizes);

#endif
