#include "captioner/training/model_hashes.h"

#include <string.h>

#include "captioner/support/captioner_memory.h"
#include "captioner/support/captioner_support.h"
#include "nn/params/nn_hash.h"

/* What is hashed of a tensor: before the first step the value alone. */
enum { HASHED = 2 };
static const nn_part parts[HASHED] = {NN_VALUE, NN_GRAD};

typedef struct hashed_module {
    const char *name;
    const nn_params *params;
    mimo_comm *tp; /* NULL: this rank alone */
} hashed_module;

enum { MODULES = 2 };

static void list_modules(hashed_module modules[MODULES], const captioner_model *model)
{
    modules[0] = (hashed_module){"encoder", model->encoder.params, model->topology->encoder_tp};
    modules[1] = (hashed_module){"llm", model->language.params, model->topology->llm_tp};
}

static const char *rule_name(const nn_param *param)
{
    static const char *const names[NN_RULES] = {"replicated", "sharded", "partial"};
    return param->frozen ? "frozen" : names[param->rule];
}

static void describe(struct train_log_tensor *tensor, const hashed_module *module, int index)
{
    const nn_param *param = nn_params_at(module->params, index);
    *tensor = (struct train_log_tensor){.name = param->name,
                                        .module = module->name,
                                        .rule = rule_name(param),
                                        .shape = param->placement.shape,
                                        .ndim = param->ndim,
                                        .trained = nn_param_has(param, NN_GRAD)};
}

mimo_status model_hashes_make(model_hashes *out, const captioner_model *model)
{
    hashed_module modules[MODULES];
    int64_t own = 0, gathered = 0;
    out->model = model;
    list_modules(modules, model);
    for (int m = 0; m < MODULES; m++) {
        int64_t count = nn_params_count(modules[m].params);
        int64_t summands = HASHED * count, all = summands * nn_params_tp_size(modules[m].params);
        own = summands > own ? summands : own;
        gathered = all > gathered ? all : gathered;
        out->count += count;
    }
    TRY(memory_reserve(&out->tensors, out->count, sizeof *out->tensors));
    TRY(memory_reserve(&out->own, own, sizeof *out->own));
    TRY(memory_reserve(&out->gathered, gathered, sizeof *out->gathered));
    struct train_log_tensor *next = out->tensors;
    for (int m = 0; m < MODULES; m++)
        for (int i = 0; i < nn_params_count(modules[m].params); i++)
            describe(next++, &modules[m], i);
    return MIMO_OK;
}

void model_hashes_release(model_hashes *hashes)
{
    memory_release(hashes->tensors);
    memory_release(hashes->own);
    memory_release(hashes->gathered);
    *hashes = (model_hashes){0};
}

/* The first `hashed` of the parts; 0 for the others. */
static mimo_status hash_own(uint64_t *own, const nn_params *params, int hashed)
{
    int64_t count = nn_params_count(params);
    memset(own, 0, (size_t)(HASHED * count) * sizeof *own);
    for (int i = 0; i < hashed; i++)
        TRY(nn_hash_tensors(own + i * count, params, parts[i]));
    return MIMO_OK;
}

/* tensors[count] get the sums over the tp group. Summands are gathered and added here, not reduced
 * where tensors lie: so host memory will do with every backend. */
static mimo_status hash_module(struct train_log_tensor *tensors, const model_hashes *hashes,
                               const hashed_module *module, int hashed)
{
    int count = nn_params_count(module->params), size = nn_params_tp_size(module->params);
    int64_t each = (int64_t)HASHED * count;
    const uint64_t *all = module->tp ? hashes->gathered : hashes->own;
    TRY(mimo_comm_agree(hashes->model->topology->world,
                        hash_own(hashes->own, module->params, hashed)));
    if (module->tp)
        TRY(mimo_comm_host_allgather(module->tp, hashes->gathered, hashes->own,
                                     (int)(each * (int64_t)sizeof *all)));
    for (int i = 0; i < count; i++) {
        tensors[i].params = tensors[i].grads = 0;
        for (int rank = 0; rank < size; rank++) {
            tensors[i].params += all[rank * each + i];
            tensors[i].grads += all[rank * each + count + i];
        }
    }
    return MIMO_OK;
}

static mimo_status take(struct train_log_hashes *out, model_hashes *hashes, bool tensors,
                        int hashed)
{
    hashed_module modules[MODULES];
    struct train_log_tensor *next = hashes->tensors;
    list_modules(modules, hashes->model);
    for (int m = 0; m < MODULES; m++) {
        TRY(hash_module(next, hashes, &modules[m], hashed));
        next += nn_params_count(modules[m].params);
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

mimo_status model_hashes_base(uint64_t *out, const captioner_model *model)
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
