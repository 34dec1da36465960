#include "train/nn/params/nn_initial.h"

#include <math.h>
#include <string.h>

#include "core/hash.h"
#include "core/mutation.h"

static uint64_t element_key(uint64_t seed, const char *name)
{
    return mimo_hash_bytes(mimo_hash_int(MIMO_HASH_START, (int64_t)seed), name, strlen(name));
}

/* Uniform in (0, 1], from the upper 53 bits. */
static double uniform(uint64_t key, int64_t index)
{
    return (double)((mimo_hash_int(key, index) >> 11) + 1) * 0x1p-53;
}

/* Box-Muller. Each element has two counters of its own. */
static double keyed_normal(uint64_t key, int64_t index)
{
    double radius = sqrt(-2.0 * log(uniform(key, 2 * index)));
    return radius * cos(6.283185307179586 * uniform(key, 2 * index + 1));
}

static double keyed_uniform(uint64_t key, int64_t index)
{
    return 2 * uniform(key, index) - 1;
}

double nn_normal(uint64_t seed, const char *name, int64_t index)
{
    return keyed_normal(element_key(seed, name), index);
}

double nn_uniform(uint64_t seed, const char *name, int64_t index)
{
    return keyed_uniform(element_key(seed, name), index);
}

static nn_real initial(const nn_param *param, uint64_t key, int64_t index)
{
    switch (param->init) {
    case NN_INIT_NORMAL:
        return (nn_real)(param->std * keyed_normal(key, index));
    case NN_INIT_UNIFORM:
        return (nn_real)(param->std * keyed_uniform(key, index));
    default:
        return (nn_real)(param->init == NN_INIT_ONES);
    }
}

void nn_initial_values(nn_real *value, const nn_param *param, uint64_t seed)
{
    uint64_t key = element_key(seed, param->name);
    if (MIMO_MUTATED("init-by-rank"))
        key = mimo_hash_int(key, param->rank);
    for (int64_t i = 0; i < nn_placement_runs(&param->placement); i++) {
        nn_run run = nn_placement_run(&param->placement, param->rank, i);
        for (int64_t j = 0; j < run.count; j++)
            value[run.local + j] = initial(param, key, run.global + j);
    }
}
