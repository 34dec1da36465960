/*
 * Initial values come from a counter-based generator. Its key is (seed, name, global element
 * index). So every topology starts from the same model, bit for bit. Pure.
 */
#ifndef MIMO_NN_NN_INITIAL_H
#define MIMO_NN_NN_INITIAL_H

#include "train/nn/params/nn_params.h"

/** The number of (seed, name, index), standard normal or uniform in (-1, 1]. */
double nn_normal(uint64_t seed, const char *name, int64_t index);
double nn_uniform(uint64_t seed, const char *name, int64_t index);

/** Set value[param->count], in host memory, to what this rank's part of the parameter begins
 *  with. */
void nn_initial_values(nn_real *value, const nn_param *param, uint64_t seed);

#endif
