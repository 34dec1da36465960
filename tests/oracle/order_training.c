#include "order_training.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/check.h"
#include "core/memory.h"

#include "oracle_candidate.h"

enum { ROUND = 5, UNIT = 8 };

#define SGD_RATE 0.2

/* The settings of a usual training run, with a clip that takes effect. */
static const nn_adamw rule = {
    .lr = 0.003, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1, .clip = 0.2};

/* A grid's parameters are cut over the dimensions of `cut` (ends with NULL). This says how many
 * ranks hold the same part, and whether this rank is the first of them. */
static mimo_status find_copies(int64_t *copies, bool *first, const oracle_topology *topology,
                               const mimo_grid *grid, const char *const *cut)
{
    *copies = 1;
    *first = true;
    for (int i = 0; i < mimo_grid_ndims(grid); i++) {
        mimo_dim dim = mimo_grid_dim(grid, i);
        bool is_cut = false;
        int64_t place;
        for (int c = 0; cut[c]; c++)
            is_cut = is_cut || strcmp(dim.name, cut[c]) == 0;
        MIMO_TRY(mimo_grid_coord(&place, grid, mimo_comm_rank(topology->ranks.world), dim.name));
        *first = *first && (place == 0 || is_cut);
        *copies *= is_cut ? 1 : dim.size;
    }
    return MIMO_OK;
}

/* Add the hash of what `own` is this rank's summand of: of its first copy, after a look at the
 * others. */
static mimo_status add_hash(uint64_t *hash, const oracle_topology *topology, uint64_t own,
                            const mimo_grid *grid, const char *const *cut)
{
    int64_t copies, sums[2]; /* over the first copy; over all */
    bool first;
    MIMO_TRY(find_copies(&copies, &first, topology, grid, cut));
    sums[0] = first ? (int64_t)own : 0;
    sums[1] = (int64_t)own;
    MIMO_TRY(mimo_comm_allreduce(topology->host, sums, 2, MIMO_I64, MIMO_SUM, NULL));
    MIMO_CHECK((uint64_t)sums[1] == (uint64_t)sums[0] * (uint64_t)copies, MIMO_ERR_STATE,
               "the %" PRId64 " copies of a module differ", copies);
    *hash += (uint64_t)sums[0];
    return MIMO_OK;
}

/* The hashes of one array of a module's parameters: of those of experts, and of all others. */
static mimo_status hash_store(uint64_t *others, uint64_t *experts, const nn_params *params,
                              nn_part part)
{
    uint64_t *hashes;
    *others = *experts = 0;
    MIMO_TRY(mimo_reserve(&hashes, nn_params_count(params), sizeof *hashes));
    mimo_status status = nn_hash_tensors(hashes, params, part);
    for (int i = 0; i < nn_params_count(params) && status == MIMO_OK; i++)
        *(nn_params_at(params, i)->rule >= NN_EXPERT_REPLICATED ? experts : others) += hashes[i];
    mimo_release(hashes);
    return status;
}

static mimo_status hash_module(uint64_t *hash, const oracle_topology *topology,
                               const nn_params *params, const mimo_grid *grid, nn_part part)
{
    static const char *const over_tp[] = {"tp", "pp", NULL};
    static const char *const over_all[] = {"etp", "ep", "pp", NULL};
    uint64_t others, experts;
    mimo_grid *view;
    MIMO_TRY(hash_store(&others, &experts, params, part));
    MIMO_TRY(add_hash(hash, topology, others, grid, over_tp));
    if (topology->experts == 0 || grid != topology->ranks.llm)
        return MIMO_OK;
    MIMO_TRY(mimo_grid_view(&view, topology->ranks.llm, NN_EXPERT_GRID));
    return add_hash(hash, topology, experts, view, over_all);
}

static mimo_status hash_all(uint64_t *hash, const oracle_candidate *candidate, nn_part part)
{
    const oracle_topology *topology = candidate->topology;
    *hash = 0;
    MIMO_TRY(hash_module(hash, topology, candidate->stores[0], topology->ranks.encoder, part));
    return hash_module(hash, topology, candidate->stores[1], topology->ranks.llm, part);
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
    sizes.experts = topology->experts;
    sizes.top_k = topology->top_k;
    sizes.twins = topology->experts > 1;
    for (int i = 0; i < ROUND; i++)
        synthetic_create(&data[i], &sizes, shape, i);
    mimo_status status = oracle_candidate_create(&candidate, topology, &sizes, shape, NULL);
    for (int i = 0; i < run->steps && status == MIMO_OK; i++)
        status = take_step(&candidate, &data[i % ROUND], run, i + 1);
    oracle_candidate_destroy(&candidate);
    for (int i = 0; i < ROUND; i++)
        synthetic_destroy(&data[i]);
    return status;
}
