#include "captioner/training/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/formats/safetensors.h"
#include "train/formats/safetensors_format.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/support/finite_values.h"
#include "captioner/training/file_wait.h"
#include "captioner/training/model_state.h"
#include "captioner/training/options.h"
#include "captioner/training/same_file.h"

typedef struct entry_list {
    model_state state;    /* its arrays are the tensors of the file */
    checkpoint_key *keys; /* what they are called there */
    int64_t largest;      /* elements of the largest whole tensor */
    nn_real *whole;       /* [largest] */
    nn_real *slice;       /* [largest]: reading: this rank's part; saving: the slices of all */
    bool *used;           /* reading: [tensors of the file] that are entries */
} entry_list;

/* The tensors of both modules, in the same order on every rank, and room for any one of them. */
static mimo_status list_entries(entry_list *out, const bridged_model *model, state_choice what,
                                checkpoint_keys keys)
{
    const model_state *state = &out->state;
    TRY(model_state_list(&out->state, model, what));
    TRY(memory_reserve(&out->keys, state->count, sizeof *out->keys));
    for (int64_t i = 0; i < state->count; i++) {
        const state_array *array = &state->arrays[i];
        int64_t elements = nn_placement_elements(&array->param->placement);
        snprintf(out->keys[i].text, sizeof out->keys[i].text, "%s%s", array->param->name,
                 array->suffix);
        if (elements > out->largest)
            out->largest = elements;
    }
    if (keys == CHECKPOINT_KEYS_MEGATRON)
        TRY(checkpoint_keys_rename(out->keys, state->count, &model->layout));
    TRY(memory_reserve(&out->slice, out->largest, sizeof *out->slice));
    return memory_reserve(&out->whole, out->largest, sizeof *out->whole);
}

static void release_entries(entry_list *list)
{
    model_state_release(&list->state);
    memory_release(list->keys);
    memory_release(list->slice);
    memory_release(list->whole);
    memory_release(list->used);
}

/* What must be the same when the run goes on. The sizes come first: they alone must be the same for
 * a base. A run without adapters has no facts of adapters. */
enum { SIZES = 8, FACTS = 17, VALUE_CAPACITY = 256 };
static const char keys_key[] = "keys"; /* how the tensors are called; absent: by their own names */
#define ABSENT "none"                  /* the value of a fact that the file does not mention */
typedef struct fact {
    const char *key, *words;
    char value[VALUE_CAPACITY];
    bool number; /* every checkpoint has it */
} fact;

static void add_number(fact *facts, int *count, const char *key, const char *words, uint64_t value)
{
    fact *added = &facts[(*count)++];
    *added = (fact){.key = key, .words = words, .number = true};
    snprintf(added->value, sizeof added->value, "%" PRIu64, value);
}

/* Two numbers; the first one is 0 where a run has neither. */
static void add_pair(fact *facts, int *count, const char *key, const char *words, int64_t first,
                     int64_t second)
{
    fact *added = &facts[(*count)++];
    *added = (fact){.key = key, .words = words, .value = ABSENT};
    if (first > 0)
        snprintf(added->value, sizeof added->value, "%" PRId64 ",%" PRId64, first, second);
}

/* A run of the usual blocks has their number alone. */
static void add_pattern(fact *facts, int *count, const layer_layout *layout)
{
    fact *added = &facts[(*count)++];
    *added = (fact){.key = "llm_pattern", .words = "--llm-pattern", .value = ABSENT};
    if (!layout->usual)
        layer_layout_spell(added->value, sizeof added->value, layout);
}

/* Samples of one picture are those of a run that was not told how many they have. */
static void add_images(fact *facts, int *count, int64_t least, int64_t most)
{
    fact *added = &facts[(*count)++];
    *added = (fact){.key = "images", .words = "--images", .value = ABSENT};
    if (most > 1 || (most == 1 && least == 0))
        snprintf(added->value, sizeof added->value, "%" PRId64 "-%" PRId64, least, most);
}

/* The names, or where these are too long their hash: lists that only begin alike differ. */
static void spell_targets(char value[VALUE_CAPACITY], const struct adapter_config *config)
{
    size_t used = 0;
    uint64_t hash = HASH_START;
    for (int64_t i = 0; i < config->target_count; i++) {
        const char *target = config->targets[i];
        hash = hash_bytes(hash, target, strlen(target) + 1);
        if (used < VALUE_CAPACITY)
            used += (size_t)snprintf(value + used, VALUE_CAPACITY - used, "%s%s", i > 0 ? "," : "",
                                     target);
    }
    if (used >= VALUE_CAPACITY)
        snprintf(value, VALUE_CAPACITY, "%" PRId64 " layers with the hash %016" PRIx64,
                 config->target_count, hash);
}

static void add_adapters(fact *facts, int *count, const struct adapter_config *config)
{
    fact *rank = &facts[*count], *alpha = rank + 1, *targets = rank + 2, *rslora = rank + 3;
    *rank = (fact){.key = "lora_rank", .words = "--lora-rank"};
    snprintf(rank->value, sizeof rank->value, "%" PRId64, config->rank);
    *alpha = (fact){.key = "lora_alpha", .words = "--lora-alpha"};
    *targets = (fact){.key = "lora_targets", .words = "--lora-targets"};
    snprintf(alpha->value, sizeof alpha->value, "%.17g", config->alpha);
    spell_targets(targets->value, config);
    *rslora = (fact){.key = "lora_rslora", .words = "--lora-rslora", .value = ABSENT};
    if (config->rslora)
        snprintf(rslora->value, sizeof rslora->value, "true");
    *count += 4;
}

/* Returns how many there are. */
static int list_facts(fact facts[FACTS], const step_trainer *trainer, state_choice what)
{
    const model_desc *desc = &trainer->model->desc;
    const trainer_desc *training = &trainer->desc;
    int n = 0;
    add_number(facts, &n, "hidden", "--hidden", (uint64_t)desc->hidden);
    add_number(facts, &n, "heads", "--heads", (uint64_t)desc->heads);
    add_number(facts, &n, "encoder_layers", "--encoder-layers", (uint64_t)desc->encoder_layers);
    add_pattern(facts, &n, &trainer->model->layout);
    add_number(facts, &n, "llm_layers", "--llm-layers", (uint64_t)desc->llm_layers);
    add_number(facts, &n, "image_size", "--image-size", (uint64_t)caption_side(desc->tokens));
    add_number(facts, &n, "seq", "--seq", (uint64_t)desc->seq);
    add_pair(facts, &n, "experts", "--experts", desc->experts, desc->top_k);
    add_number(facts, &n, "seed", "--seed", desc->seed);
    add_number(facts, &n, "global_batch", "--global-batch", (uint64_t)training->global_batch);
    add_number(facts, &n, "training_samples", "training samples:", (uint64_t)training->samples);
    add_pair(facts, &n, "same_bits", "--same-bits", desc->shards, desc->pairs);
    add_images(facts, &n, training->least_images, desc->most_images);
    if (training->adapters && what == STATE_ALL)
        add_adapters(facts, &n, training->adapters);
    return n;
}

/* ------------------------------------------- saving ------------------------------------------- */

/* Header and metadata. On rank 0 only. */
static mimo_status begin_file(safetensors_writer **out, const char *path, const entry_list *list,
                              const step_trainer *trainer, int64_t step, state_choice what)
{
    char digits[24];
    struct safetensors_text metadata[FACTS + 2];
    fact facts[FACTS];
    int count = list_facts(facts, trainer, what);
    int said = 0;
    for (int i = 0; i < count; i++)
        if (strcmp(facts[i].value, ABSENT) != 0)
            metadata[said++] = (struct safetensors_text){facts[i].key, facts[i].value};
    if (trainer->desc.keys != CHECKPOINT_KEYS_OWN)
        metadata[said++] =
            (struct safetensors_text){keys_key, checkpoint_keys_name(trainer->desc.keys)};
    snprintf(digits, sizeof digits, "%" PRId64, step);
    metadata[said++] = (struct safetensors_text){"step", digits};

    struct safetensors_tensor *tensors = NULL;
    TRY(memory_reserve(&tensors, list->state.count, sizeof *tensors));
    for (int64_t i = 0; i < list->state.count; i++) {
        const nn_param *param = list->state.arrays[i].param;
        tensors[i] = (struct safetensors_tensor){list->keys[i].text, NN_DTYPE, param->ndim,
                                                 param->placement.shape};
    }
    struct safetensors_content content = {tensors, list->state.count, metadata, said};
    mimo_status status = safetensors_create(out, path, &content);
    memory_release(tensors);
    return status;
}

/* What saving needs. */
typedef struct save_state {
    const char *path;
    entry_list list;
    const nn_runtime *runtime;
    nn_real *gathered;          /* [largest], in the runtime's memory */
    safetensors_writer *writer; /* on rank 0 */
    file_wait wait;             /* of a save; a probe has none */
} save_state;

/* Local, and before anything collective: tensors are gathered only where every rank can. */
static mimo_status prepare_save(save_state *save, const char *path, const step_trainer *trainer,
                                int64_t step, state_choice what)
{
    entry_list *list = &save->list;
    TRY(list_entries(list, trainer->model, what, trainer->desc.keys));
    save->runtime = trainer->model->desc.runtime;
    TRY(nn_runtime_reserve(save->runtime, &save->gathered, list->largest, sizeof *save->gathered));
    if (mimo_comm_rank(trainer->model->topology->world) != 0)
        return MIMO_OK;
    return begin_file(&save->writer, path, list, trainer, step, what);
}

static void release_save(save_state *save)
{
    safetensors_discard(save->writer);
    nn_runtime_free(save->runtime, save->gathered);
    release_entries(&save->list);
}

static mimo_status probe(const char *path, const step_trainer *trainer, state_choice what)
{
    save_state save = {.path = path};
    mimo_status status = prepare_save(&save, path, trainer, 0, what);
    release_save(&save);
    return status;
}

mimo_status checkpoint_probe(const char *path, const step_trainer *trainer)
{
    return probe(path, trainer, STATE_ALL);
}

mimo_status checkpoint_probe_merged(const char *path, const step_trainer *trainer)
{
    return probe(path, trainer, STATE_BASE);
}

/* A merged weight can overflow: no reader would take the file. */
static mimo_status write_entry(const save_state *save, int64_t index)
{
    const entry_list *list = &save->list;
    int64_t elements = nn_placement_elements(&list->state.arrays[index].param->placement);
    const struct finite_values written = {save->path, list->keys[index].text, list->whole, 0,
                                          elements};
    TRY(finite_values_check(&written));
    return safetensors_write(save->writer, index, 0, elements, list->whole);
}

/* Only rank 0 has a writer. It must gather on after a failed write: the others count on it. */
static mimo_status write_entries(save_state *save)
{
    const entry_list *list = &save->list;
    const nn_whole_rooms rooms = {list->whole, list->slice, save->gathered};
    mimo_status written = MIMO_OK;
    for (int64_t i = 0; i < list->state.count; i++) {
        const state_array *array = &list->state.arrays[i];
        int64_t elements = nn_placement_elements(&array->param->placement);
        TRY(nn_whole_gather(&rooms, &array->place));
        if (save->writer && written == MIMO_OK)
            written = write_entry(save, i);
        TRY(file_wait_pass(&save->wait, elements * (int64_t)sizeof *list->whole));
    }
    return written;
}

static mimo_status write_file(save_state *save)
{
    TRY(write_entries(save));
    mimo_status status = safetensors_commit(save->writer);
    save->writer = NULL;
    return status;
}

static mimo_status save_selected(const char *path, const step_trainer *trainer, int64_t step,
                                 state_choice what)
{
    save_state save = {.path = path};
    TRY(file_wait_begin(&save.wait, trainer->model->topology->world, trainer->desc.waits,
                        "save of %s", path));
    mimo_status status =
        file_wait_agree(&save.wait, prepare_save(&save, path, trainer, step, what));
    if (status == MIMO_OK)
        status = file_wait_agree(&save.wait, write_file(&save));
    file_wait_end(&save.wait);
    release_save(&save);
    return status;
}

mimo_status checkpoint_save(const char *path, const step_trainer *trainer, int64_t step)
{
    return save_selected(path, trainer, step, STATE_ALL);
}

mimo_status checkpoint_save_merged(const char *path, const step_trainer *trainer, int64_t step)
{
    bridged_model *model = trainer->model;
    mimo_status status = mimo_comm_agree(model->topology->world, model_merge(model));
    if (status == MIMO_OK)
        status = save_selected(path, trainer, step, STATE_BASE);
    mimo_status unmerged = model_unmerge(model);
    return status == MIMO_OK ? unmerged : status;
}

/* ------------------------------------------ resuming ------------------------------------------ */

static mimo_status read_number(uint64_t *out, const safetensors_file *file, const char *path,
                               const char *key)
{
    const char *text = safetensors_metadata(file, key);
    bool number = text && text[0] && strspn(text, "0123456789") == strlen(text);
    errno = 0;
    uint64_t value = number ? strtoull(text, NULL, 10) : 0;
    CHECK(number && errno == 0, MIMO_ERR_IO,
          "%s is no checkpoint of this program: its metadata say \"%s\" for %s", path,
          text ? text : "nothing", key);
    *out = value;
    return MIMO_OK;
}

/* Compare one fact of the run with the checkpoint's. Every checkpoint has the numbers; facts of
 * adapters are in those that were saved with adapters. */
static mimo_status check_fact(const safetensors_file *file, const char *path, const fact *mine)
{
    uint64_t saved;
    const char *text = safetensors_metadata(file, mine->key);
    if (mine->number)
        TRY(read_number(&saved, file, path, mine->key));
    text = text ? text : ABSENT;
    CHECK(strcmp(text, mine->value) == 0, MIMO_ERR_SHAPE,
          "%s was saved with %s %s, but this run has %s", path, mine->words, text, mine->value);
    return MIMO_OK;
}

/* A later version may save facts that matter, and this one does not know which. */
static mimo_status check_keys(const safetensors_file *file, const char *path, const fact *facts,
                              int count)
{
    static const char *const others[] = {keys_key,     "step",         "format",     "lora_rank",
                                         "lora_alpha", "lora_targets", "lora_rslora"};
    for (int64_t i = 0; i < safetensors_metadata_count(file); i++) {
        const struct safetensors_text said = safetensors_metadata_at(file, i);
        bool known = false;
        for (int k = 0; k < count; k++)
            known = known || strcmp(facts[k].key, said.key) == 0;
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            known = known || strcmp(others[k], said.key) == 0;
        CHECK(known, MIMO_ERR_UNSUPPORTED,
              "%s was saved with %s %s, which this program does not know", path, said.key,
              said.value);
    }
    return MIMO_OK;
}

static mimo_status check_facts(const safetensors_file *file, const char *path,
                               const step_trainer *trainer, state_choice what)
{
    fact facts[FACTS];
    int count = list_facts(facts, trainer, what);
    TRY(check_keys(file, path, facts, count));
    if (what == STATE_BASE)
        count = SIZES;
    for (int i = 0; i < count; i++)
        TRY(check_fact(file, path, &facts[i]));
    fact none = {"lora_rank", "--lora-rank", ABSENT, false};
    bool adapters = what == STATE_BASE || trainer->desc.adapters;
    return adapters ? MIMO_OK : check_fact(file, path, &none);
}

/* The dtype first: with another one the shape says nothing. */
static mimo_status check_entry(const struct safetensors_tensor *saved, const char *path,
                               const nn_param *param)
{
    const struct safetensors_tensor wanted = {saved->name, NN_DTYPE, param->ndim,
                                              param->placement.shape};
    safetensors_kind here, there;
    size_t bytes = (size_t)param->ndim * sizeof *saved->shape;
    CHECK(saved->dtype == wanted.dtype, MIMO_ERR_UNSUPPORTED,
          "%s: tensor %s is %s, and this program computes in %s", path, saved->name,
          safetensors_dtype_text(saved->dtype), safetensors_dtype_text(wanted.dtype));
    CHECK(saved->ndim == wanted.ndim && memcmp(saved->shape, wanted.shape, bytes) == 0,
          MIMO_ERR_SHAPE, "%s: tensor %s is %s, and not %s as in this model", path, saved->name,
          safetensors_describe(there, saved), safetensors_describe(here, &wanted));
    return MIMO_OK;
}

static mimo_status read_entry(const safetensors_file *file, const char *path,
                              const entry_list *list, int64_t entry)
{
    const nn_param *param = list->state.arrays[entry].param;
    const nn_param_part *place = &list->state.arrays[entry].place;
    const char *name = list->keys[entry].text;
    int64_t index = safetensors_find(file, name);
    CHECK(index >= 0, MIMO_ERR_IO, "%s has no tensor %s", path, name);
    list->used[index] = true;
    TRY(check_entry(safetensors_at(file, index), path, param));
    if (!param->held)
        return MIMO_OK;
    int64_t elements = nn_placement_elements(&param->placement);
    TRY(safetensors_read(file, index, 0, elements, list->whole));
    const struct finite_values read = {path, name, list->whole, 0, elements};
    TRY(finite_values_check(&read));
    nn_params *params = place->owners->params;
    nn_whole_slice(list->slice, list->whole, params, place->index);
    return nn_params_write(params, place->index, place->part, list->slice);
}

/* A checkpoint can be a base. Then moments of its weights stay in the file, and the factors of its
 * adapters. */
static bool may_stay(const safetensors_file *file, const entry_list *list, const char *name)
{
    char weight[sizeof list->keys->text];
    size_t length = model_state_param_length(name);
    bool factor = strstr(name, ".lora_A.") || strstr(name, ".lora_B.");
    if (factor)
        return safetensors_metadata(file, "lora_rank") != NULL;
    if (length == strlen(name) || length >= sizeof weight)
        return false;
    memcpy(weight, name, length);
    weight[length] = '\0';
    int64_t index = safetensors_find(file, weight);
    return index >= 0 && list->used[index];
}

/* Nothing of a file is left out in silence. */
static mimo_status check_others(const safetensors_file *file, const char *path,
                                const entry_list *list, state_choice what)
{
    for (int64_t i = 0; i < safetensors_count(file); i++) {
        const char *name = safetensors_at(file, i)->name;
        CHECK(list->used[i] || (what == STATE_BASE && may_stay(file, list, name)), MIMO_ERR_IO,
              "%s has a tensor %s that this model has no place for", path, name);
    }
    return MIMO_OK;
}

static mimo_status read_entries(const safetensors_file *file, const char *path, entry_list *list)
{
    TRY(memory_reserve(&list->used, safetensors_count(file), sizeof *list->used));
    for (int64_t i = 0; i < list->state.count; i++)
        TRY(read_entry(file, path, list, i));
    return MIMO_OK;
}

/* Whichever names a file has, it is read. */
static mimo_status read_keys(checkpoint_keys *out, const safetensors_file *file, const char *path)
{
    const char *text = safetensors_metadata(file, keys_key);
    const char *megatron = checkpoint_keys_name(CHECKPOINT_KEYS_MEGATRON);
    CHECK(!text || strcmp(text, megatron) == 0, MIMO_ERR_IO,
          "%s has keys \"%s\", and not those of the captioner or of %s", path, text, megatron);
    *out = text ? CHECKPOINT_KEYS_MEGATRON : CHECKPOINT_KEYS_OWN;
    return MIMO_OK;
}

/* What the file says of the selected, into what this rank holds of them. Local. */
static mimo_status read_file(const safetensors_file *file, const char *path,
                             const step_trainer *trainer, state_choice what)
{
    entry_list list = {0};
    checkpoint_keys keys = CHECKPOINT_KEYS_OWN;
    mimo_status status = check_facts(file, path, trainer, what);
    if (status == MIMO_OK)
        status = read_keys(&keys, file, path);
    if (status == MIMO_OK)
        status = list_entries(&list, trainer->model, what, keys);
    if (status == MIMO_OK)
        status = read_entries(file, path, &list);
    if (status == MIMO_OK)
        status = check_others(file, path, &list, what);
    release_entries(&list);
    return status;
}

static mimo_status read_step(uint64_t *out, const safetensors_file *file, const char *path)
{
    uint64_t step;
    TRY(read_number(&step, file, path, "step"));
    CHECK(step <= OPTIONS_MOST_STEPS, MIMO_ERR_IO,
          "%s was saved after %" PRIu64 " steps, and a run has at most %d", path, step,
          OPTIONS_MOST_STEPS);
    *out = step;
    return MIMO_OK;
}

/* Before anything of it is used. The step is for the sentence alone: read_step checks it. */
static mimo_status open_same(safetensors_file **out, const char *path, const char *kind,
                             mimo_comm *world)
{
    opened_file opened = {.kind = kind, .path = path, .step = -1};
    mimo_status status = safetensors_open(out, path);
    const char *step = status == MIMO_OK ? safetensors_metadata(*out, "step") : NULL;
    if (step)
        opened.step = strtoll(step, NULL, 10);
    if (status == MIMO_OK)
        status = safetensors_content(&opened.content, *out);
    return same_file_agree(world, status, &opened);
}

mimo_status checkpoint_load(const char *path, step_trainer *trainer, int64_t *step)
{
    bridged_model *model = trainer->model;
    mimo_comm *world = model->topology->world;
    safetensors_file *file = NULL;
    uint64_t saved = 0;
    mimo_status status = open_same(&file, path, "the checkpoint", world);
    if (status == MIMO_OK) {
        status = read_file(file, path, trainer, STATE_ALL);
        if (status == MIMO_OK)
            status = read_step(&saved, file, path);
        status = mimo_comm_agree(world, status);
    }
    safetensors_close(file);
    TRY(status);
    *step = (int64_t)saved;
    model_state_set_steps(model, *step);
    return MIMO_OK;
}

mimo_status checkpoint_load_base(const char *path, step_trainer *trainer)
{
    mimo_comm *world = trainer->model->topology->world;
    safetensors_file *file = NULL;
    mimo_status status = open_same(&file, path, "the base", world);
    if (status == MIMO_OK)
        status = mimo_comm_agree(world, read_file(file, path, trainer, STATE_BASE));
    safetensors_close(file);
    return status;
}
