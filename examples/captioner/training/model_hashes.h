/* Hashes of the model that do not depend on the topology (nn/nn_hash.h), for the log. */
#ifndef BRIDGED_MODEL_HASHES_H
#define BRIDGED_MODEL_HASHES_H

#include "train/model/bridged_model.h"
#include "captioner/training/train_log.h"

typedef struct model_hashes {
    const bridged_model *model;       /* borrowed */
    struct train_log_tensor *tensors; /* of the encoder, then of the LLM, as the stores have them */
    int64_t count;
    uint64_t *own;      /* [2][tensors of a store]: this rank's summands */
    uint64_t *gathered; /* [ranks] of these */
} model_hashes;

/** Local. The caller zeroes *out before and calls model_hashes_release after, whatever the result.
 *  MIMO_ERR_MEMORY. */
mimo_status model_hashes_make(model_hashes *out, const bridged_model *model);
void model_hashes_release(model_hashes *hashes);

/** Hash values and gradients after a step: the gradients are those that it used. The result has
 *  every tensor where `tensors` is true, and is borrowed until the next call. Collective; every
 *  rank gets the same status and the same hashes. MIMO_ERR_STATE where a gradient is still a sum in
 *  fixed point, MIMO_ERR_MEMORY, MIMO_ERR_COMM. */
mimo_status model_hashes_take(struct train_log_hashes *out, model_hashes *hashes, bool tensors);

/** The same before the first step: of values alone, as there is no gradient. Hashes of gradients
 *  are 0. */
mimo_status model_hashes_begin(struct train_log_hashes *out, model_hashes *hashes, bool tensors);

/** *out is the hash of the values of all frozen parameters: of the base, where there are adapters.
 *  Collective, with the same result on every rank. MIMO_ERR_MEMORY, MIMO_ERR_COMM. */
mimo_status model_hashes_base(uint64_t *out, const bridged_model *model);

#endif
