#include "train/nn/params/nn_hash.h"

#include <string.h>

#include "core/check.h"
#include "core/hash.h"
#include "core/memory.h"

static int64_t bits_of(nn_real value)
{
#ifdef NN_REAL_F64
    int64_t bits;
#else
    uint32_t bits;
#endif
    memcpy(&bits, &value, sizeof bits);
    return (int64_t)bits;
}

uint64_t nn_hash_elements(const char *name, int64_t first, const nn_real *values, int64_t count)
{
    uint64_t key = mimo_hash_bytes(MIMO_HASH_START, name, strlen(name)), sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += mimo_hash_int(mimo_hash_int(key, first + i), bits_of(values[i]));
    return sum;
}

static uint64_t hash_param(const nn_param *param, const nn_real *values)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < nn_placement_runs(&param->placement); i++) {
        nn_run run = nn_placement_run(&param->placement, param->rank, i);
        sum += nn_hash_elements(param->name, run.global, values + run.local, run.count);
    }
    return sum;
}

mimo_status nn_hash_tensors(uint64_t *hashes, const nn_params *params, nn_part part)
{
    nn_real *room;
    MIMO_TRY(mimo_reserve(&room, nn_params_largest(params), sizeof *room));
    mimo_status status = MIMO_OK;
    for (int i = 0; i < nn_params_count(params) && status == MIMO_OK; i++) {
        const nn_param *param = nn_params_at(params, i);
        hashes[i] = 0;
        bool copy = param->placement.cut < 0 && param->rank > 0;
        if (!param->held || !nn_param_has(param, part) || copy)
            continue;
        status = nn_params_read(params, i, part, room);
        hashes[i] = status == MIMO_OK ? hash_param(param, room) : 0;
    }
    mimo_release(room);
    return status;
}

mimo_status nn_hash_params(uint64_t *hash, const nn_params *params, nn_part part)
{
    uint64_t *hashes, sum = 0;
    int count = nn_params_count(params);
    MIMO_TRY(mimo_reserve(&hashes, count, sizeof *hashes));
    mimo_status status = nn_hash_tensors(hashes, params, part);
    for (int i = 0; i < count && status == MIMO_OK; i++)
        sum += hashes[i];
    mimo_release(hashes);
    *hash = sum;
    return status;
}
