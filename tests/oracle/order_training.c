#include "order_training.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/check.h"

#include "oracle_candidate.h"

enum { ROUND = 5, UNIT = 8 };

#define SGD_RATE 0.2

/* The settings of a usual training run, with a clip that takes effect. */
static const nn_adamw rule = {
    .lr = 0.003, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1, .clip = 0.2};

/* How many ranks hold the same part of a module, and whether this rank is the first of them. */
static mimo_status find_copies(int64_t *copies, bool *first, const oracle_topology *topology,
                               const mimo_grid *grid)
{
    *copies = mimo_grid_size(grid) / mimo_grid_dim_size(grid, "tp");
    *first = true;
    for (int i = 0; i < mimo_grid_ndims(grid); i++) {
        const char *name = mimo_grid_dim(grid, i).name;
        int64_t place;
        MIMO_TRY(mimo_grid_coord(&place, grid, mimo_comm_rank(topology->world), name));
        *first = *first && (place == 0 || strcmp(name, "tp") == 0);
    }
    return MIMO_OK;
}

/* The hash of one array of a module: of its first copy, after a look at the others. */
static mimo_status hash_module(uint64_t *hash, const oracle_topology *topology,
                               const nn_params *params, const mimo_grid *grid, nn_part part)
{
    int64_t copies, sums[2]; /* over the first copy; over all */
    bool first;
    uint64_t own;
    MIMO_TRY(find_copies(&copies, &first, topology, grid));
    MIMO_TRY(nn_hash_params(&own, params, part));
    sums[0] = first ? (int64_t)own : 0;
    sums[1] = (int64_t)own;
    MIMO_TRY(mimo_comm_allreduce(topology->host, sums, 2, MIMO_I64, MIMO_SUM, NULL));
    MIMO_CHECK((uint64_t)sums[1] == (uint64_t)sums[0] * (uint64_t)copies, MIMO_ERR_STATE,
               "the %" PRId64 " copies of a module differ", copies);
    *hash += (uint64_t)sums[0];
    return MIMO_OK;
}

static mimo_status hash_all(uint64_t *hash, const oracle_candidate *candidate, nn_part part)
{
    const oracle_topology *topology = candidate->topology;
    *hash = 0;
    MIMO_TRY(hash_module(hash, topology, candidate->stores[0], topology->encoder, part));
    return hash_module(hash, topology, candidate->stores[1], topology->llm, part);
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static mimo_status update(oracle_candidate *candidate, const order_run *run, double norm)
{
    return run->sgd ? oracle_candidate_sgd(candidate, SGD_RATE)
                    : oracle_candidate_adamw(candidate, &rule, norm);
}

static mimo_status take_step(oracle_candidate *candidate, const synthetic_step *data,
                             const order_run *run, int step)
{
    oracle_step_result result;
    uint64_t gradients, parameters;
    MIMO_TRY(oracle_candidate_step(candidate, data, NULL, &result));
    MIMO_TRY(hash_all(&gradients, candidate, NN_GRAD));
    MIMO_TRY(update(candidate, run, result.norm));
    MIMO_TRY(hash_all(&parameters, candidate, NN_VALUE));
    if (mimo_comm_rank(candidate->topology->host) == 0)
        printf("step %d loss %016" PRIx64 " norm %016" PRIx64 " grads %016" PRIx64
               " params %016" PRIx64 "\n",
               step, bits_of(result.loss), bits_of(result.norm), gradients, parameters);
    return MIMO_OK;
}

mimo_status order_training_check(const oracle_spec *spec)
{
    ref_sizes sizes = synthetic_sizes(UNIT, 0);
    MIMO_CHECK(sizes.heads % spec->shards == 0, MIMO_ERR_SHAPE,
               "--same-bits with V %" PRId64 ": %" PRId64 " heads do not divide into %" PRId64
               " parts",
               spec->shards, sizes.heads, spec->shards);
    return MIMO_OK;
}

mimo_status order_training_run(const oracle_topology *topology, const oracle_case *shape,
                               const order_run *run)
{
    oracle_candidate candidate = {0};
    synthetic_step data[ROUND];
    ref_sizes sizes = synthetic_sizes(UNIT, run->seed);
    oracle_set_adapters(&sizes, topology, false);
    for (int i = 0; i < ROUND; i++)
        synthetic_create(&data[i], &sizes, shape, i);
    mimo_status status = oracle_candidate_create(&candidate, topology, &sizes, shape);
    for (int i = 0; i < run->steps && status == MIMO_OK; i++)
        status = take_step(&candidate, &data[i % ROUND], run, i + 1);
    oracle_candidate_destroy(&candidate);
    for (int i = 0; i < ROUND; i++)
        synthetic_destroy(&data[i]);
    return status;
}
