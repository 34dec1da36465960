#include "checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "captioner_memory.h"
#include "captioner_support.h"
#include "safetensors.h"
#include "whole_tensor.h"

/* What a checkpoint holds of one parameter. */
enum { PARTS = 3 };
static const struct {
    nn_part part;
    const char *suffix;
} parts[PARTS] = {{NN_VALUE, ""}, {NN_MOMENT_M, ".adam_m"}, {NN_MOMENT_V, ".adam_v"}};

/* One tensor of the file: where it lies in the model. */
typedef struct saved_tensor {
    const nn_param *param;
    param_part place;
    char name[160];
} saved_tensor;

typedef struct entry_list {
    saved_tensor *entries;
    int64_t count;
    int64_t largest; /* elements of the largest whole tensor */
    nn_real *whole;  /* [largest] */
    nn_real *slice;  /* [largest]: reading: this rank's part; saving: the slices of all */
} entry_list;

static void list_store(entry_list *list, nn_params *params, mimo_comm *tp)
{
    for (int i = 0; i < nn_params_count(params); i++)
        for (int part = 0; part < PARTS; part++) {
            const nn_param *param = nn_params_at(params, i);
            if (!nn_param_has(param, parts[part].part))
                continue; /* of a frozen parameter the value alone */
            saved_tensor *entry = &list->entries[list->count++];
            int64_t elements = param->placement.shape[0] * param->placement.shape[1];
            entry->param = param;
            entry->place = (param_part){params, i, parts[part].part, tp};
            snprintf(entry->name, sizeof entry->name, "%s%s", param->name, parts[part].suffix);
            if (elements > list->largest)
                list->largest = elements;
        }
}

/* All tensors of both modules, in the same order on every rank, and room for any one of them. */
static mimo_status list_entries(entry_list *out, const captioner_model *model)
{
    nn_params *encoder = model->encoder.params, *language = model->language.params;
    int64_t count = PARTS * ((int64_t)nn_params_count(encoder) + nn_params_count(language));
    TRY(memory_reserve(&out->entries, count, sizeof *out->entries));
    list_store(out, encoder, model->topology->encoder_tp);
    list_store(out, language, model->topology->llm_tp);
    TRY(memory_reserve(&out->slice, out->largest, sizeof *out->slice));
    return memory_reserve(&out->whole, out->largest, sizeof *out->whole);
}

static void release_entries(entry_list *list)
{
    memory_release(list->entries);
    memory_release(list->slice);
    memory_release(list->whole);
}

/* Numbers that must be the same when the run goes on. */
enum { FACTS = 9 };
typedef struct fact {
    const char *key, *words;
    uint64_t value;
} fact;

static void list_facts(fact *facts, const step_trainer *trainer)
{
    const model_desc *desc = &trainer->model->desc;
    const trainer_desc *training = &trainer->desc;
    fact all[FACTS] = {{"hidden", "--hidden", (uint64_t)desc->hidden},
                       {"heads", "--heads", (uint64_t)desc->heads},
                       {"encoder_layers", "--encoder-layers", (uint64_t)desc->encoder_layers},
                       {"llm_layers", "--llm-layers", (uint64_t)desc->llm_layers},
                       {"image_size", "--image-size", (uint64_t)desc->side},
                       {"seq", "--seq", (uint64_t)desc->seq},
                       {"seed", "--seed", desc->seed},
                       {"global_batch", "--global-batch", (uint64_t)training->global_batch},
                       {"training_samples", "training samples:", (uint64_t)training->samples}};
    memcpy(facts, all, sizeof all);
}

/* ------------------------------------------- saving ------------------------------------------- */

/* Header and metadata. On rank 0 only. */
static mimo_status begin_file(safetensors_writer **out, const char *path, const entry_list *list,
                              const step_trainer *trainer, int64_t step)
{
    enum { DIGITS = 24 };
    char digits[FACTS + 1][DIGITS];
    struct safetensors_text metadata[FACTS + 1];
    fact facts[FACTS];
    list_facts(facts, trainer);
    for (int i = 0; i < FACTS; i++) {
        snprintf(digits[i], DIGITS, "%" PRIu64, facts[i].value);
        metadata[i] = (struct safetensors_text){facts[i].key, digits[i]};
    }
    snprintf(digits[FACTS], DIGITS, "%" PRId64, step);
    metadata[FACTS] = (struct safetensors_text){"step", digits[FACTS]};

    struct safetensors_tensor *tensors = NULL;
    TRY(memory_reserve(&tensors, list->count, sizeof *tensors));
    for (int64_t i = 0; i < list->count; i++) {
        const saved_tensor *entry = &list->entries[i];
        tensors[i] = (struct safetensors_tensor){entry->name, NN_DTYPE, entry->param->ndim,
                                                 entry->param->placement.shape};
    }
    struct safetensors_content content = {tensors, list->count, metadata, FACTS + 1};
    mimo_status status = safetensors_create(out, path, &content);
    memory_release(tensors);
    return status;
}

/* What saving needs. */
typedef struct save_state {
    entry_list list;
    const nn_runtime *runtime;
    nn_real *gathered;          /* [largest], in the runtime's memory */
    safetensors_writer *writer; /* on rank 0 */
} save_state;

/* Local, and before anything collective: the tp groups gather only where every rank can. */
static mimo_status prepare_save(save_state *save, const char *path, const step_trainer *trainer,
                                int64_t step)
{
    entry_list *list = &save->list;
    TRY(list_entries(list, trainer->model));
    save->runtime = trainer->model->desc.runtime;
    TRY(nn_runtime_reserve(save->runtime, &save->gathered, list->largest, sizeof *save->gathered));
    if (mimo_comm_rank(trainer->model->topology->world) != 0)
        return MIMO_OK;
    return begin_file(&save->writer, path, list, trainer, step);
}

static void release_save(save_state *save)
{
    safetensors_discard(save->writer);
    nn_runtime_free(save->runtime, save->gathered);
    release_entries(&save->list);
}

mimo_status checkpoint_probe(const char *path, const step_trainer *trainer)
{
    save_state save = {0};
    mimo_status status = prepare_save(&save, path, trainer, 0);
    release_save(&save);
    return status;
}

/* Every tp group gathers, so that no rank needs to know which of them rank 0 listens to; only rank
 * 0 has a writer. It must gather on after a failed write: its group counts on it. */
static mimo_status write_entries(const save_state *save)
{
    const entry_list *list = &save->list;
    const whole_rooms rooms = {list->whole, list->slice, save->gathered};
    mimo_status written = MIMO_OK;
    for (int64_t i = 0; i < list->count; i++) {
        const nn_param *param = list->entries[i].param;
        TRY(gather_whole(&rooms, &list->entries[i].place));
        if (save->writer && written == MIMO_OK)
            written = safetensors_write(save->writer, i, 0,
                                        param->placement.shape[0] * param->placement.shape[1],
                                        list->whole);
    }
    return written;
}

mimo_status checkpoint_save(const char *path, const step_trainer *trainer, int64_t step)
{
    mimo_comm *world = trainer->model->topology->world;
    save_state save = {0};
    mimo_status status = mimo_comm_agree(world, prepare_save(&save, path, trainer, step));
    if (status == MIMO_OK) {
        status = write_entries(&save);
        if (status == MIMO_OK) {
            status = safetensors_commit(save.writer);
            save.writer = NULL;
        }
        status = mimo_comm_agree(world, status);
    }
    release_save(&save);
    return status;
}

/* ------------------------------------------ resuming ------------------------------------------ */

static mimo_status read_number(uint64_t *out, const safetensors_file *file, const char *path,
                               const char *key)
{
    const char *text = safetensors_metadata(file, key);
    char *end = NULL;
    uint64_t value = text ? strtoull(text, &end, 10) : 0;
    CHECK(text && end != text && *end == '\0', MIMO_ERR_IO,
          "%s is no checkpoint of this program: its metadata say \"%s\" for %s", path,
          text ? text : "nothing", key);
    *out = value;
    return MIMO_OK;
}

static mimo_status check_facts(const safetensors_file *file, const char *path,
                               const step_trainer *trainer)
{
    fact facts[FACTS];
    list_facts(facts, trainer);
    for (int i = 0; i < FACTS; i++) {
        uint64_t saved;
        TRY(read_number(&saved, file, path, facts[i].key));
        CHECK(saved == facts[i].value, MIMO_ERR_SHAPE,
              "%s was saved with %s %" PRIu64 ", but this run has %" PRIu64, path, facts[i].words,
              saved, facts[i].value);
    }
    return MIMO_OK;
}

static mimo_status read_entry(const safetensors_file *file, const char *path,
                              const saved_tensor *entry, const entry_list *list)
{
    const nn_param *param = entry->param;
    int64_t index = safetensors_find(file, entry->name);
    CHECK(index >= 0, MIMO_ERR_IO, "%s has no tensor %s", path, entry->name);
    const struct safetensors_tensor *saved = safetensors_at(file, index);
    bool same = saved->ndim == param->ndim && saved->dtype == NN_DTYPE;
    for (int i = 0; same && i < param->ndim; i++)
        same = saved->shape[i] == param->placement.shape[i];
    CHECK(same, MIMO_ERR_SHAPE,
          "tensor %s of %s has %d dims of %s, and not the shape [%" PRId64 ", %" PRId64 "]",
          entry->name, path, saved->ndim, mimo_dtype_name(saved->dtype), param->placement.shape[0],
          param->placement.shape[1]);
    TRY(safetensors_read(file, index, 0, param->placement.shape[0] * param->placement.shape[1],
                         list->whole));
    slice_whole(list->slice, list->whole, param, nn_params_tp_rank(entry->place.params));
    return nn_params_write(entry->place.params, entry->place.index, entry->place.part, list->slice);
}

/* Everything that the file says, into this rank's slices. Local. */
static mimo_status read_file(const safetensors_file *file, const char *path,
                             const step_trainer *trainer, int64_t *step)
{
    entry_list list = {0};
    uint64_t saved = 0;
    mimo_status status = check_facts(file, path, trainer);
    if (status == MIMO_OK)
        status = read_number(&saved, file, path, "step");
    if (status == MIMO_OK)
        status = list_entries(&list, trainer->model);
    for (int64_t i = 0; status == MIMO_OK && i < list.count; i++)
        status = read_entry(file, path, &list.entries[i], &list);
    release_entries(&list);
    *step = (int64_t)saved;
    return status;
}

mimo_status checkpoint_load(const char *path, step_trainer *trainer, int64_t *step)
{
    captioner_model *model = trainer->model;
    safetensors_file *file = NULL;
    int64_t saved = 0;
    mimo_status status = safetensors_open(&file, path);
    if (status == MIMO_OK)
        status = read_file(file, path, trainer, &saved);
    safetensors_close(file);
    TRY(mimo_comm_agree(model->topology->world, status));
    *step = saved;
    nn_params_set_steps(model->encoder.params, saved); /* bias correction goes on where it was */
    nn_params_set_steps(model->language.params, saved);
    return MIMO_OK;
}
