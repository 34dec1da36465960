#include "captioner/training/adapter_store.h"

#include <string.h>

#include "train/formats/adapter_file.h"
#include "train/formats/lora_v1_file.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/support/finite_values.h"
#include "captioner/training/file_wait.h"
#include "captioner/training/model_hashes.h"
#include "captioner/training/same_file.h"
#include "train/nn/params/nn_whole.h"

/* All factors of both modules, in the same order on every rank. */
typedef struct factor_list {
    struct adapter_tensor *tensors;
    nn_param_part *places;
    int64_t count, largest; /* elements of the largest whole factor */
    int64_t *lora_rows;     /* of all that are packed, one after the other */
    nn_real *whole, *slices;
} factor_list;

static const nn_param *param_of(const factor_list *list, int64_t i)
{
    return nn_params_at(list->places[i].owners->params, list->places[i].index);
}

/* The rows of packed factors, in the room that *rows points to; it moves on. */
static const int64_t *lora_rows_of(int64_t **rows, const nn_param *param)
{
    int64_t *first = *rows, count = param->placement.shape[0];
    if (param->packing.groups == 0)
        return NULL;
    for (int64_t i = 0; i < count; i++)
        first[i] = nn_packing_unpacked(&param->packing, count, i);
    *rows += count;
    return first;
}

static void list_store(factor_list *out, const nn_owners *owners, int64_t **rows)
{
    for (int i = 0; i < nn_params_count(owners->params); i++) {
        const nn_param *param = nn_params_at(owners->params, i);
        if (!param->adapter)
            continue;
        const int64_t *shape = param->placement.shape;
        out->tensors[out->count] =
            (struct adapter_tensor){param->name, {shape[0], shape[1]}, lora_rows_of(rows, param)};
        out->places[out->count++] = (nn_param_part){owners, i, NN_VALUE};
    }
}

static mimo_status list_factors(factor_list *out, bridged_model *model)
{
    int64_t count = 0, packed = 0;
    for (int s = 0; s < MODEL_STORES; s++)
        for (int i = 0; i < nn_params_count(model->owners[s].params); i++) {
            const nn_param *param = nn_params_at(model->owners[s].params, i);
            int64_t elements = nn_placement_elements(&param->placement);
            count += param->adapter;
            packed += param->packing.groups > 0 ? param->placement.shape[0] : 0;
            if (param->adapter && elements > out->largest)
                out->largest = elements;
        }
    TRY(memory_reserve(&out->tensors, count, sizeof *out->tensors));
    TRY(memory_reserve(&out->places, count, sizeof *out->places));
    TRY(memory_reserve(&out->lora_rows, packed, sizeof *out->lora_rows));
    TRY(memory_reserve(&out->whole, out->largest, sizeof *out->whole));
    TRY(memory_reserve(&out->slices, out->largest, sizeof *out->slices));
    int64_t *rows = out->lora_rows;
    for (int s = 0; s < MODEL_STORES; s++)
        list_store(out, &model->owners[s], &rows);
    return MIMO_OK;
}

static void release_list(factor_list *list)
{
    memory_release(list->tensors);
    memory_release(list->places);
    memory_release(list->lora_rows);
    memory_release(list->whole);
    memory_release(list->slices);
}

static struct adapter_tensors tensors_of(const factor_list *list)
{
    return (struct adapter_tensors){list->tensors, list->count};
}

/* Collective. */
static mimo_status hash_base(adapter_hash out, const bridged_model *model)
{
    uint64_t hash;
    TRY(model_hashes_base(&hash, model));
    adapter_hash_print(out, hash);
    return MIMO_OK;
}

/* -------------------------------------------- read -------------------------------------------- */

/* One of the two kinds of files. */
typedef struct source {
    const char *path;
    adapter_file *folder;
    lora_v1_file *v1;
} source;

static mimo_status open_source(source *out, const char *path, const lora_setup *setup,
                               const factor_list *list)
{
    struct adapter_tensors tensors = tensors_of(list);
    if (!lora_is_v1(path))
        return adapter_open(&out->folder, path, setup->config, &tensors);
    TRY(lora_v1_open(&out->v1, path));
    return lora_v1_match(out->v1, &tensors);
}

static mimo_status content_of(struct file_content *out, const source *from)
{
    return from->v1 ? lora_v1_content(out, from->v1) : adapter_content(out, from->folder);
}

static mimo_status read_run(const source *from, int64_t index, nn_run run, nn_real *to)
{
    return from->v1 ? lora_v1_read(from->v1, index, run.global, run.count, to)
                    : adapter_read(from->folder, index, run.global, run.count, to);
}

static mimo_status read_factor(const source *from, const factor_list *list, int64_t index)
{
    const nn_param *param = param_of(list, index);
    const nn_param_part *place = &list->places[index];
    if (!param->held)
        return MIMO_OK;
    for (int64_t i = 0; i < nn_placement_runs(&param->placement); i++) {
        nn_run run = nn_placement_run(&param->placement, param->rank, i);
        const struct finite_values read = {from->path, list->tensors[index].name,
                                           list->slices + run.local, run.global, run.count};
        TRY(read_run(from, index, run, list->slices + run.local));
        TRY(finite_values_check(&read));
    }
    return nn_params_write(place->owners->params, place->index, NN_VALUE, list->slices);
}

static mimo_status read_factors(const source *from, const factor_list *list)
{
    for (int64_t i = 0; i < list->count; i++)
        TRY(read_factor(from, list, i));
    return MIMO_OK;
}

/* Collective. */
static mimo_status read_all(const char *path, const lora_setup *setup, bridged_model *model)
{
    mimo_comm *world = model->topology->world;
    factor_list list = {0};
    source from = {.path = path};
    opened_file opened = {.kind = lora_is_v1(path) ? "the adapter" : "the tensors of the adapter",
                          .path = path,
                          .step = -1};
    mimo_status status = list_factors(&list, model);
    if (status == MIMO_OK)
        status = open_source(&from, path, setup, &list);
    if (status == MIMO_OK)
        status = content_of(&opened.content, &from);
    status = same_file_agree(world, status, &opened);
    if (status == MIMO_OK)
        status = mimo_comm_agree(world, read_factors(&from, &list));
    adapter_close(from.folder);
    lora_v1_close(from.v1);
    release_list(&list);
    return status;
}

/* A base of the same sizes takes any adapter, and with one of another base it talks nonsense. */
static mimo_status check_base(const char *path, const lora_setup *setup, const bridged_model *model)
{
    const char *wanted = setup->config->base;
    adapter_hash found;
    if (!wanted[0] || setup->other_base)
        return MIMO_OK;
    TRY(hash_base(found, model));
    CHECK(strcmp(found, wanted) == 0, MIMO_ERR_ARGUMENT,
          "the adapter in %s was trained on other weights: on those with the hash %s, and these "
          "have %s. Give its base, or --adapter-other-base",
          path, wanted, found);
    return MIMO_OK;
}

mimo_status adapter_store_load(const char *path, const lora_setup *setup, bridged_model *model)
{
    TRY(check_base(path, setup, model));
    return read_all(path, setup, model);
}

/* -------------------------------------------- write ------------------------------------------- */

typedef struct target {
    const char *path;
    adapter_writer *folder; /* on rank 0 one of the two */
    lora_v1_writer *v1;
} target;

typedef struct save_state {
    factor_list list;
    const nn_runtime *runtime;
    nn_real *gathered; /* [largest], in the runtime's memory */
    adapter_hash base;
    target to;
    file_wait wait; /* of a save; a probe has none */
} save_state;

static mimo_status create_target(save_state *save, const lora_setup *setup)
{
    struct adapter_tensors tensors = tensors_of(&save->list);
    struct adapter_config config = *setup->config;
    target *to = &save->to;
    memcpy(config.base, save->base, sizeof config.base);
    return lora_is_v1(to->path) ? lora_v1_create(&to->v1, to->path, &tensors)
                                : adapter_create(&to->folder, to->path, &config, &tensors);
}

/* Local, and before anything collective: factors are gathered only where every rank can. */
static mimo_status prepare_save(save_state *save, const lora_setup *setup, bridged_model *model)
{
    TRY(list_factors(&save->list, model));
    save->runtime = model->desc.runtime;
    TRY(nn_runtime_reserve(save->runtime, &save->gathered, save->list.largest, sizeof(nn_real)));
    return mimo_comm_rank(model->topology->world) == 0 ? create_target(save, setup) : MIMO_OK;
}

static void release_save(save_state *save)
{
    adapter_discard(save->to.folder);
    lora_v1_discard(save->to.v1);
    nn_runtime_free(save->runtime, save->gathered);
    release_list(&save->list);
}

static mimo_status write_factor(const save_state *save, int64_t index)
{
    const factor_list *list = &save->list;
    const target *to = &save->to;
    const int64_t *shape = list->tensors[index].shape;
    const struct finite_values written = {to->path, list->tensors[index].name, list->whole, 0,
                                          shape[0] * shape[1]};
    if (!to->v1 && !to->folder)
        return MIMO_OK;
    TRY(finite_values_check(&written));
    return to->v1 ? lora_v1_write(to->v1, index, list->whole)
                  : adapter_write(to->folder, index, list->whole);
}

/* Rank 0 gathers on after a failed write: the others count on it. */
static mimo_status write_all(save_state *save)
{
    const factor_list *list = &save->list;
    const nn_whole_rooms rooms = {list->whole, list->slices, save->gathered};
    mimo_status written = MIMO_OK;
    for (int64_t i = 0; i < list->count; i++) {
        TRY(nn_whole_gather(&rooms, &list->places[i]));
        if (written == MIMO_OK)
            written = write_factor(save, i);
        const int64_t *shape = list->tensors[i].shape;
        TRY(file_wait_pass(&save->wait, shape[0] * shape[1] * (int64_t)sizeof *list->whole));
    }
    return written;
}

static mimo_status write_files(save_state *save)
{
    target *to = &save->to;
    TRY(write_all(save));
    mimo_status status = to->v1 ? lora_v1_commit(to->v1) : adapter_commit(to->folder);
    *to = (target){0};
    return status;
}

mimo_status adapter_store_save(const char *path, const lora_setup *setup, bridged_model *model)
{
    save_state save = {.to.path = path};
    TRY(hash_base(save.base, model));
    TRY(file_wait_begin(&save.wait, model->topology->world, setup->waits, "save of %s", path));
    mimo_status status = file_wait_agree(&save.wait, prepare_save(&save, setup, model));
    if (status == MIMO_OK)
        status = file_wait_agree(&save.wait, write_files(&save));
    file_wait_end(&save.wait);
    release_save(&save);
    return status;
}

mimo_status adapter_store_probe(const char *path, const lora_setup *setup, bridged_model *model)
{
    save_state save = {.to.path = path};
    mimo_status status = prepare_save(&save, setup, model);
    release_save(&save);
    return status;
}
