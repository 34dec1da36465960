#include "captioner/training/model_hashes.h"

#include <string.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/nn/params/nn_hash.h"

/* What is hashed of a tensor: before the first step the value alone. */
enum { HASHED = 2 };
static const nn_part parts[HASHED] = {NN_VALUE, NN_GRAD};

static const char *const module_names[MODEL_STORES] = {"encoder", "llm"};

/* Over tp, or over etp. */
static const char *rule_name(const nn_param *param)
{
    static const char *const names[NN_RULES] = {
        [NN_REPLICATED] = "replicated",  [NN_SHARDED] = "sharded",
        [NN_PARTIAL] = "partial",        [NN_EXPERT_REPLICATED] = "replicated",
        [NN_EXPERT_SHARDED] = "sharded", [NN_EXPERT_PARTIAL] = "partial"};
    return param->frozen ? "frozen" : names[param->rule];
}

static void describe(struct train_log_tensor *tensor, const bridged_model *model, int store,
                     int index)
{
    const nn_param *param = nn_params_at(model->owners[store].params, index);
    *tensor = (struct train_log_tensor){
        .name = param->name,
        .module = param->rule >= NN_EXPERT_REPLICATED ? NN_EXPERT_GRID : module_names[store],
        .rule = rule_name(param),
        .shape = param->placement.shape,
        .ndim = param->ndim,
        .trained = nn_param_has(param, NN_GRAD)};
}

mimo_status model_hashes_make(model_hashes *out, const bridged_model *model)
{
    int64_t most = 0, ranks = mimo_comm_size(model->topology->world);
    out->model = model;
    for (int s = 0; s < MODEL_STORES; s++) {
        int64_t count = nn_params_count(model->owners[s].params);
        most = count > most ? count : most;
        out->count += count;
    }
    TRY(memory_reserve(&out->tensors, out->count, sizeof *out->tensors));
    TRY(memory_reserve(&out->own, HASHED * most, sizeof *out->own));
    TRY(memory_reserve(&out->gathered, HASHED * most * ranks, sizeof *out->gathered));
    struct train_log_tensor *next = out->tensors;
    for (int s = 0; s < MODEL_STORES; s++)
        for (int i = 0; i < nn_params_count(model->owners[s].params); i++)
            describe(next++, model, s, i);
    return MIMO_OK;
}

void model_hashes_release(model_hashes *hashes)
{
    memory_release(hashes->tensors);
    memory_release(hashes->own);
    memory_release(hashes->gathered);
    *hashes = (model_hashes){0};
}

/* The first `hashed` of the parts, of the tensors that this rank speaks for; 0 for the others. */
static mimo_status hash_own(uint64_t *own, const nn_owners *owners, int hashed)
{
    int count = nn_params_count(owners->params);
    memset(own, 0, (size_t)(HASHED * count) * sizeof *own);
    for (int part = 0; part < hashed; part++) {
        uint64_t *hashes = own + (ptrdiff_t)part * count;
        TRY(nn_hash_tensors(hashes, owners->params, parts[part]));
        for (int i = 0; i < count; i++)
            hashes[i] = nn_owners_speak(owners, i) ? hashes[i] : 0;
    }
    return MIMO_OK;
}

/* tensors[count] get the sums over all ranks. Summands are gathered and added here, not reduced
 * where tensors lie: so host memory will do with every backend. */
static mimo_status hash_store(struct train_log_tensor *tensors, const model_hashes *hashes,
                              const nn_owners *owners, int hashed)
{
    mimo_comm *world = hashes->model->topology->world;
    int count = nn_params_count(owners->params), size = mimo_comm_size(world);
    int64_t each = (int64_t)HASHED * count;
    TRY(mimo_comm_agree(world, hash_own(hashes->own, owners, hashed)));
    TRY(mimo_comm_host_allgather(world, hashes->gathered, hashes->own,
                                 (int)(each * (int64_t)sizeof *hashes->own)));
    for (int i = 0; i < count; i++) {
        tensors[i].params = tensors[i].grads = 0;
        for (int rank = 0; rank < size; rank++) {
            tensors[i].params += hashes->gathered[rank * each + i];
            tensors[i].grads += hashes->gathered[rank * each + count + i];
        }
    }
    return MIMO_OK;
}

static mimo_status take(struct train_log_hashes *out, model_hashes *hashes, bool tensors,
                        int hashed)
{
    struct train_log_tensor *next = hashes->tensors;
    for (int s = 0; s < MODEL_STORES; s++) {
        const nn_owners *owners = &hashes->model->owners[s];
        TRY(hash_store(next, hashes, owners, hashed));
        next += nn_params_count(owners->params);
    }
    struct train_log_hashes sums = {.count = tensors ? hashes->count : 0,
                                    .tensors = hashes->tensors};
    for (int64_t i = 0; i < hashes->count; i++) {
        sums.params += hashes->tensors[i].params;
        sums.grads += hashes->tensors[i].grads;
    }
    *out = sums;
    return MIMO_OK;
}

mimo_status model_hashes_begin(struct train_log_hashes *out, model_hashes *hashes, bool tensors)
{
    return take(out, hashes, tensors, 1);
}

mimo_status model_hashes_take(struct train_log_hashes *out, model_hashes *hashes, bool tensors)
{
    return take(out, hashes, tensors, HASHED);
}

mimo_status model_hashes_base(uint64_t *out, const bridged_model *model)
{
    model_hashes hashes = {0};
    struct train_log_hashes values = {0};
    uint64_t sum = 0;
    mimo_status status = mimo_comm_agree(model->topology->world, model_hashes_make(&hashes, model));
    if (status == MIMO_OK)
        status = model_hashes_begin(&values, &hashes, true);
    for (int64_t i = 0; i < values.count; i++)
        sum += values.tensors[i].trained ? 0 : values.tensors[i].params;
    model_hashes_release(&hashes);
    if (status == MIMO_OK)
        *out = sum;
    return status;
}
