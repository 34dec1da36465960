#include "oracle_adapter_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/formats/adapter_file.h"
#include "train/support/train_memory.h"
#include "core/check.h"
#include "core/memory.h"
#include "core/mutation.h"
#include "train/nn/params/nn_whole.h"

enum { MOST_FACTORS = 128, PATH_BYTES = 256 };

typedef struct factors {
    oracle_candidate *candidate;
    nn_owners owners[ORACLE_STORES];
    struct adapter_tensor tensors[MOST_FACTORS];
    nn_param_part places[MOST_FACTORS];
    int64_t count;
    nn_real *whole, *slices; /* room for the largest whole factor */
    nn_real *gathered;       /* the same in the memory of the computation */
    char folder[PATH_BYTES]; /* the same on every rank */
} factors;

static const nn_param *param_of(const factors *all, int64_t i)
{
    return nn_params_at(all->places[i].owners->params, all->places[i].index);
}

static mimo_status list_factors(factors *all)
{
    const oracle_topology *topology = all->candidate->topology;
    int64_t largest = 1;
    for (int store = 0; store < ORACLE_STORES; store++) {
        nn_params *params = all->candidate->stores[store];
        for (int i = 0; i < nn_params_count(params); i++) {
            const nn_param *param = nn_params_at(params, i);
            if (!param->adapter)
                continue;
            MIMO_CHECK(all->count < MOST_FACTORS, MIMO_ERR_OVERFLOW, "more than %d factors",
                       MOST_FACTORS);
            const int64_t *shape = param->placement.shape;
            all->tensors[all->count] =
                (struct adapter_tensor){param->name, {shape[0], shape[1]}, NULL};
            all->places[all->count++] = (nn_param_part){&all->owners[store], i, NN_VALUE};
            largest = nn_placement_elements(&param->placement) > largest
                          ? nn_placement_elements(&param->placement)
                          : largest;
        }
    }
    MIMO_CHECK(all->count > 0, MIMO_ERR_ARGUMENT, "no linear layer ends with one of %s",
               topology->adapted);
    MIMO_TRY(mimo_reserve(&all->whole, largest, sizeof *all->whole));
    MIMO_TRY(mimo_reserve(&all->slices, largest, sizeof *all->slices));
    return nn_runtime_reserve(topology->runtime, &all->gathered, largest, sizeof *all->gathered);
}

/* Collective. */
static mimo_status find_owners(factors *all)
{
    const oracle_topology *topology = all->candidate->topology;
    const mimo_grid *grids[ORACLE_STORES] = {topology->ranks.encoder, topology->ranks.llm};
    mimo_grid *experts[ORACLE_STORES] = {NULL, NULL};
    if (topology->experts > 0)
        MIMO_TRY(mimo_grid_view(&experts[1], topology->ranks.llm, NN_EXPERT_GRID));
    for (int store = 0; store < ORACLE_STORES; store++) {
        const nn_owners_desc desc = {.params = all->candidate->stores[store],
                                     .comm = topology->ranks.world,
                                     .grid = grids[store],
                                     .experts = experts[store]};
        MIMO_TRY(nn_owners_init(&all->owners[store], &desc));
    }
    return MIMO_OK;
}

static void release_factors(factors *all)
{
    for (int store = 0; store < ORACLE_STORES; store++)
        nn_owners_release(&all->owners[store]);
    mimo_release(all->whole);
    mimo_release(all->slices);
    nn_runtime_free(all->candidate->topology->runtime, all->gathered);
}

/* -------------------------------------------- write ------------------------------------------- */

static mimo_status make_folder(factors *all)
{
    const char *parent = getenv("TMPDIR");
    snprintf(all->folder, sizeof all->folder, "%s/mimo-oracle-XXXXXX", parent ? parent : "/tmp");
    MIMO_CHECK(mkdtemp(all->folder), MIMO_ERR_IO, "can't make the folder %s", all->folder);
    return MIMO_OK;
}

static mimo_status create_file(adapter_writer **out, factors *all)
{
    const char *const everything[] = {ADAPTER_ALL_LINEAR};
    const ref_sizes *sizes = &all->candidate->sizes;
    struct adapter_config config = {.rank = sizes->adapter,
                                    .alpha = sizes->adapter_alpha,
                                    .targets = everything,
                                    .target_count = 1};
    struct adapter_tensors tensors = {all->tensors, all->count};
    MIMO_TRY(make_folder(all));
    return adapter_create(out, all->folder, &config, &tensors);
}

static mimo_status write_factors(const factors *all, adapter_writer *writer)
{
    const nn_whole_rooms rooms = {all->whole, all->slices, all->gathered};
    mimo_status written = MIMO_OK;
    for (int64_t i = 0; i < all->count; i++) {
        MIMO_TRY(nn_whole_gather(&rooms, &all->places[i]));
        if (writer && written == MIMO_OK)
            written = adapter_write(writer, i, all->whole);
    }
    return written;
}

static mimo_status write_file(factors *all)
{
    mimo_comm *host = all->candidate->topology->host;
    bool lead = mimo_comm_rank(host) == 0;
    adapter_writer *writer = NULL;
    MIMO_TRY(mimo_comm_agree(host, lead ? create_file(&writer, all) : MIMO_OK));
    MIMO_TRY(mimo_comm_broadcast(host, all->folder, sizeof all->folder, 0, NULL));
    mimo_status status = write_factors(all, writer);
    if (status == MIMO_OK)
        status = adapter_commit(writer);
    else
        adapter_discard(writer);
    return mimo_comm_agree(host, status);
}

static void remove_file(const factors *all)
{
    static const char *const names[] = {"adapter_config.json", "adapter_model.safetensors"};
    char path[PATH_BYTES + 64];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", all->folder, names[i]);
        unlink(path);
    }
    rmdir(all->folder);
}

/* -------------------------------------------- read -------------------------------------------- */

static mimo_status capture_file(const factors *all, const adapter_file *file,
                                oracle_capture *capture)
{
    char name[80];
    int64_t *row_of = all->candidate->row_of;
    for (int64_t i = 0; i < all->count; i++) {
        const int64_t *shape = all->tensors[i].shape;
        MIMO_TRY(adapter_read(file, i, 0, shape[0] * shape[1], all->whole));
        snprintf(name, sizeof name, "file %s", all->tensors[i].name);
        for (int64_t row = 0; row < shape[0]; row++)
            row_of[row] = row;
        capture_block block = {name, row_of, shape[0], 0, shape[1], all->whole};
        capture_add(capture, &block);
    }
    return MIMO_OK;
}

/* The tp rank of a slice. The planted bug counts in the LLM's tp, for the encoder as well. */
static int slice_rank(const factors *all, int64_t i)
{
    const nn_params *params = all->places[i].owners->params;
    const oracle_topology *topology = all->candidate->topology;
    if (!MIMO_MUTATED("slice-by-world-rank"))
        return param_of(all, i)->rank;
    int64_t rank = mimo_comm_rank(topology->host) % topology->tp_size;
    return (int)(rank * nn_params_tp_size(params) / topology->tp_size);
}

/* The tensor of the file that a factor is. The planted bug counts a rank's own experts from 0. */
static int64_t tensor_of(const factors *all, int64_t i)
{
    enum { FACTORS = 4 }; /* of an expert */
    const oracle_topology *topology = all->candidate->topology;
    if (!MIMO_MUTATED("expert-local-id") || param_of(all, i)->rule < NN_EXPERT_REPLICATED)
        return i;
    return i - topology->ranks.experts.coords.ep_rank *
                   (topology->experts / topology->ranks.experts.coords.ep_size) * FACTORS;
}

static mimo_status load_own(const factors *all, const adapter_file *file)
{
    for (int64_t i = 0; i < all->count; i++) {
        const nn_param_part *place = &all->places[i];
        const nn_placement *placement = &param_of(all, i)->placement;
        if (!param_of(all, i)->held)
            continue;
        for (int64_t r = 0; r < nn_placement_runs(placement); r++) {
            nn_run run = nn_placement_run(placement, slice_rank(all, i), r);
            MIMO_TRY(adapter_read(file, tensor_of(all, i), run.global, run.count,
                                  all->slices + run.local));
        }
        MIMO_TRY(nn_params_write(place->owners->params, place->index, NN_VALUE, all->slices));
    }
    return MIMO_OK;
}

static mimo_status load_by_root(const factors *all, const adapter_file *file)
{
    mimo_comm *host = all->candidate->topology->host;
    int root = mimo_comm_size(host) - 1;
    bool reads = mimo_comm_rank(host) == root;
    for (int64_t i = 0; i < all->count; i++) {
        mimo_status status =
            reads ? adapter_read(file, i, 0, nn_placement_elements(&param_of(all, i)->placement),
                                 all->whole)
                  : MIMO_OK;
        MIMO_TRY(mimo_comm_agree(host, status));
        MIMO_TRY(nn_params_distribute(&all->places[i], reads ? all->whole : NULL, root));
    }
    return MIMO_OK;
}

static mimo_status clear_factors(const factors *all)
{
    for (int64_t i = 0; i < all->count; i++) {
        const nn_param_part *place = &all->places[i];
        if (!param_of(all, i)->held)
            continue;
        memset(all->slices, 0, (size_t)param_of(all, i)->count * sizeof *all->slices);
        MIMO_TRY(nn_params_write(place->owners->params, place->index, NN_VALUE, all->slices));
    }
    return MIMO_OK;
}

static mimo_status read_back(const factors *all, const adapter_file *file, oracle_capture *capture)
{
    const oracle_candidate *candidate = all->candidate;
    if (mimo_comm_rank(candidate->topology->host) == 0)
        MIMO_TRY(capture_file(all, file, capture));
    MIMO_TRY(clear_factors(all));
    MIMO_TRY(load_own(all, file));
    oracle_candidate_capture_adapters(candidate, capture, "loaded ");
    MIMO_TRY(clear_factors(all));
    MIMO_TRY(load_by_root(all, file));
    oracle_candidate_capture_adapters(candidate, capture, "distributed ");
    return MIMO_OK;
}

static mimo_status open_file(adapter_file **out, const factors *all)
{
    struct adapter_tensors tensors = {all->tensors, all->count};
    struct adapter_config *config;
    MIMO_TRY(adapter_read_config(&config, NULL, all->folder));
    mimo_status status = adapter_open(out, all->folder, config, &tensors);
    memory_release(config);
    return status;
}

static mimo_status run(factors *all, oracle_capture *capture)
{
    mimo_comm *host = all->candidate->topology->host;
    adapter_file *file = NULL;
    MIMO_TRY(write_file(all));
    mimo_status status = mimo_comm_agree(host, open_file(&file, all));
    if (mimo_comm_rank(host) == 0) /* an open file stays readable */
        remove_file(all);
    if (status == MIMO_OK)
        status = read_back(all, file, capture);
    adapter_close(file);
    return status;
}

mimo_status oracle_adapter_file_run(oracle_candidate *candidate, oracle_capture *capture)
{
    factors all = {.candidate = candidate};
    mimo_status status = mimo_comm_agree(candidate->topology->host, list_factors(&all));
    if (status == MIMO_OK)
        status = find_owners(&all);
    if (status == MIMO_OK)
        status = run(&all, capture);
    release_factors(&all);
    return status;
}
