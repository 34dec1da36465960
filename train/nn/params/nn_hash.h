/*
 * A hash of parameters that does not depend on the topology: the sum, mod 2^64, over all elements
 * of hash(hash(name), global index, bits). Each rank adds the elements that it speaks for; an
 * integer SUM over the ranks gives the hash of the whole. So two runs can be compared bit for bit
 * at every step, without a gather.
 */
#ifndef MIMO_NN_NN_HASH_H
#define MIMO_NN_NN_HASH_H

#include "train/nn/params/nn_params.h"

/** The hash of `count` elements of the tensor `name` from global index `first` on. Pure. */
uint64_t nn_hash_elements(const char *name, int64_t first, const nn_real *values, int64_t count);

/** hashes[nn_params_count] are this rank's summands for one array of each parameter of a store, in
 *  the store's order: of its slices, and on tp rank 0, of experts on etp rank 0, also of what every
 *  rank holds whole. A parameter without that array, or of other ranks, has 0. Their sums over tp
 *  and pp, of experts over the ranks that share them, are the hashes of the whole tensors. Where
 *  copies along other dimensions hold the same (gradients after finalize), every group gets the
 *  same sums. It waits for the work enqueued before it. Local.
 *  Errors: MIMO_ERR_STATE (not sealed), MIMO_ERR_MEMORY. After one the hashes are unspecified. */
mimo_status nn_hash_tensors(uint64_t *hashes, const nn_params *params, nn_part part);

/** *hash is the sum of these. The same errors. */
mimo_status nn_hash_params(uint64_t *hash, const nn_params *params, nn_part part);

#endif
