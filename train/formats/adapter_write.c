#include "train/formats/adapter_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "train/formats/adapter_format.h"
#include "train/formats/adapter_pair.h"
#include "train/formats/safetensors.h"
#include "train/support/atomic_file.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/support/folders.h"

/* Where one of the caller's tensors goes. */
struct place {
    int64_t index, elements;
};

struct adapter_writer {
    char *folder;                   /* as far as it was made; or NULL */
    size_t kept;                    /* bytes of its path that lead to what was there before */
    struct adapter_config *config;  /* a copy */
    struct atomic_file config_file; /* it is put in its place after the tensors */
    safetensors_writer *tensors;
    uint64_t hash; /* of the tensors that were written */
    struct place *places;
    int64_t count;
};

static mimo_status begin_folder(adapter_writer *writer, const char *folder)
{
    size_t kept;
    char *copy;
    TRY(memory_copy_string(&copy, folder));
    mimo_status status = make_folders(folder, &kept);
    if (status != MIMO_OK) {
        memory_release(copy);
        return status;
    }
    writer->folder = copy;
    writer->kept = kept;
    return MIMO_OK;
}

/* With some hash of the tensors: so there is room for any, and a full disk shows early. */
static mimo_status begin_config(adapter_writer *writer, const struct adapter_config *given)
{
    struct adapter_config config = *given;
    char *path = NULL, *text = NULL;
    mimo_status status;
    adapter_hash_print(config.tensors, 0);
    TRY_GOTO(status, end, adapter_config_text(&text, &config));
    TRY_GOTO(status, end, adapter_path(&path, writer->folder, ADAPTER_CONFIG_NAME));
    TRY_GOTO(status, end, adapter_config_parse(&writer->config, text, (int64_t)strlen(text), path));
    TRY_GOTO(status, end, atomic_file_open(&writer->config_file, path));
    status = atomic_file_write(&writer->config_file, text, strlen(text));
end:
    memory_release(path);
    memory_release(text);
    return status;
}

/* The same text with the hash of what was written. */
static mimo_status finish_config(adapter_writer *writer)
{
    char *text;
    adapter_hash_print(writer->config->tensors, writer->hash);
    TRY(adapter_config_text(&text, writer->config));
    mimo_status status = atomic_file_write_at(&writer->config_file, text, strlen(text), 0);
    memory_release(text);
    return status;
}

static int by_name(const void *a, const void *b)
{
    const struct adapter_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* What the file will call the tensors. All names share one piece of memory, *out. */
static mimo_status name_tensors(char **out, struct safetensors_tensor *named,
                                const struct adapter_tensor *const *sorted, int64_t count)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < count; i++)
        bytes += (int64_t)(sizeof ADAPTER_PREFIX + strlen(sorted[i]->name));
    TRY(memory_reserve(out, bytes, 1));
    char *text = *out;
    for (int64_t i = 0; i < count; i++) {
        named[i] = (struct safetensors_tensor){text, MIMO_F32, 2, sorted[i]->shape};
        strcpy(text, ADAPTER_PREFIX);
        strcat(text, sorted[i]->name);
        text += strlen(text) + 1;
    }
    return MIMO_OK;
}

static mimo_status create_tensors(adapter_writer *writer,
                                  const struct adapter_tensor *const *sorted)
{
    static const struct safetensors_text format = {"format", "pt"};
    struct safetensors_tensor *named = NULL;
    char *names = NULL, *path = NULL;
    mimo_status status;
    TRY_GOTO(status, end, memory_reserve(&named, writer->count, sizeof *named));
    TRY_GOTO(status, end, name_tensors(&names, named, sorted, writer->count));
    TRY_GOTO(status, end, adapter_path(&path, writer->folder, ADAPTER_TENSORS_NAME));
    const struct safetensors_content content = {named, writer->count, &format, 1};
    status = safetensors_create(&writer->tensors, path, &content);
end:
    memory_release(path);
    memory_release(names);
    memory_release(named);
    return status;
}

/* The reader would refuse the file. */
static mimo_status check_ranks(const struct adapter_tensors *list, int64_t rank)
{
    for (int64_t i = 0; i < list->count; i++) {
        const struct adapter_tensor *tensor = &list->tensors[i];
        int dim = adapter_rank_dimension(tensor->name);
        CHECK(dim < 0 || tensor->shape[dim] == rank, MIMO_ERR_ARGUMENT,
              "tensor %s has the shape [%" PRId64 ", %" PRId64 "], which is not of rank %" PRId64,
              tensor->name, tensor->shape[0], tensor->shape[1], rank);
    }
    return MIMO_OK;
}

static mimo_status begin_tensors(adapter_writer *writer, const struct adapter_tensors *list)
{
    const struct adapter_tensor **sorted;
    TRY(memory_reserve(&writer->places, list->count, sizeof *writer->places));
    TRY(memory_reserve(&sorted, list->count, sizeof *sorted));
    writer->count = list->count;
    for (int64_t i = 0; i < list->count; i++)
        sorted[i] = &list->tensors[i];
    qsort(sorted, (size_t)list->count, sizeof *sorted, by_name);
    mimo_status status = create_tensors(writer, sorted); /* which checks names and sizes */
    for (int64_t i = 0; status == MIMO_OK && i < list->count; i++)
        writer->places[sorted[i] - list->tensors] =
            (struct place){i, sorted[i]->shape[0] * sorted[i]->shape[1]};
    memory_release(sorted);
    return status;
}

static mimo_status begin(adapter_writer *writer, const char *folder,
                         const struct adapter_config *config, const struct adapter_tensors *list)
{
    TRY(check_ranks(list, config->rank));
    TRY(begin_folder(writer, folder));
    TRY(adapter_pair_complete(folder)); /* before its missing half goes, as a dead process's */
    TRY(begin_config(writer, config));
    return begin_tensors(writer, list);
}

mimo_status adapter_create(adapter_writer **out, const char *folder,
                           const struct adapter_config *config,
                           const struct adapter_tensors *tensors)
{
    adapter_writer *writer;
    TRY(memory_reserve(&writer, 1, sizeof *writer));
    writer->config_file = (struct atomic_file)ATOMIC_FILE_INIT;
    mimo_status status = begin(writer, folder, config, tensors);
    if (status != MIMO_OK) {
        adapter_discard(writer);
        return status;
    }
    *out = writer;
    return MIMO_OK;
}

mimo_status adapter_write(adapter_writer *writer, int64_t index, const float *whole)
{
    CHECK(index >= 0 && index < writer->count, MIMO_ERR_ARGUMENT,
          "there is no tensor %" PRId64 " among the %" PRId64 " of the adapter in %s", index,
          writer->count, writer->folder);
    const struct place *place = &writer->places[index];
    writer->hash +=
        adapter_tensor_hash(place->index, whole, place->elements * (int64_t)sizeof *whole);
    return safetensors_write(writer->tensors, place->index, 0, place->elements, whole);
}

/* From the first rename on there are new tensors, for which the old configuration is none. */
static mimo_status put_in_place(adapter_writer *writer)
{
    TRY(finish_config(writer));
    TRY(atomic_file_sync(&writer->config_file));
    mimo_status status = safetensors_commit(writer->tensors);
    writer->tensors = NULL;
    TRY(status);
    writer->config_file.needed = true;
    status = atomic_file_commit(&writer->config_file);
    return status == MIMO_OK
               ? MIMO_OK
               : fail_prefix(status,
                             "the adapter in %s is whole, but its configuration still has the "
                             "name of an unfinished file: ",
                             writer->folder);
}

mimo_status adapter_commit(adapter_writer *writer)
{
    if (!writer)
        return MIMO_OK;
    mimo_status status = put_in_place(writer);
    if (status == MIMO_OK) { /* the folder stays */
        memory_release(writer->folder);
        writer->folder = NULL;
    }
    adapter_discard(writer);
    return status;
}

void adapter_discard(adapter_writer *writer)
{
    if (!writer)
        return;
    safetensors_discard(writer->tensors);
    atomic_file_discard(&writer->config_file);
    if (writer->folder)
        remove_folders(writer->folder, writer->kept);
    memory_release(writer->config);
    memory_release(writer->places);
    memory_release(writer->folder);
    memory_release(writer);
}
