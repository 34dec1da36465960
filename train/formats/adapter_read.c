#include "train/formats/adapter_file.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "train/formats/adapter_format.h"
#include "train/formats/adapter_pair.h"
#include "train/formats/safetensors.h"
#include "train/formats/safetensors_format.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"

struct adapter_file {
    safetensors_file *file;
    int64_t *places; /* of the caller's tensors in the file */
    int64_t count;
};

mimo_status adapter_read_config(struct adapter_config **out, struct file_content *content,
                                const char *folder)
{
    char *path;
    TRY(adapter_config_path(&path, folder));
    mimo_status status = adapter_config_read(out, content, path);
    memory_release(path);
    return status;
}

/* What is needed while a file is compared with the model. */
struct comparison {
    const safetensors_file *file;
    const char *path;
    int64_t rank;
    bool *used; /* [tensors of the file] */
    char *key;  /* room for the longest name with the prefix */
};

static mimo_status check_kind(const char *path, const struct safetensors_tensor *got)
{
    CHECK(got->ndim == 2, MIMO_ERR_IO, "adapter %s: tensor %s has %d dimensions, and not 2", path,
          got->name, got->ndim);
    CHECK(got->dtype == MIMO_F32 || got->dtype == MIMO_F16 || got->dtype == MIMO_BF16,
          MIMO_ERR_UNSUPPORTED, "adapter %s: tensor %s is %s, and neither F32 nor F16 nor BF16",
          path, got->name, safetensors_dtype_text(got->dtype));
    return MIMO_OK;
}

static mimo_status check_tensor(const struct comparison *with, const struct safetensors_tensor *got,
                                const struct adapter_tensor *wanted)
{
    const char *path = with->path, *name = got->name;
    TRY(check_kind(path, got));
    int dim = adapter_rank_dimension(wanted->name);
    CHECK(dim < 0 || got->shape[dim] == with->rank, MIMO_ERR_SHAPE,
          "adapter %s: tensor %s has the shape [%" PRId64 ", %" PRId64 "], of rank %" PRId64
          ", but its configuration says r %" PRId64,
          path, name, got->shape[0], got->shape[1], got->shape[dim], with->rank);
    CHECK(got->shape[0] == wanted->shape[0] && got->shape[1] == wanted->shape[1], MIMO_ERR_SHAPE,
          "adapter %s: tensor %s has the shape [%" PRId64 ", %" PRId64
          "], and not that of the model, [%" PRId64 ", %" PRId64 "]",
          path, name, got->shape[0], got->shape[1], wanted->shape[0], wanted->shape[1]);
    return MIMO_OK;
}

static mimo_status find_tensor(int64_t *place, const struct comparison *with,
                               const struct adapter_tensor *wanted)
{
    strcpy(with->key, ADAPTER_PREFIX);
    strcat(with->key, wanted->name);
    int64_t full = safetensors_find(with->file, with->key);
    int64_t bare = safetensors_find(with->file, wanted->name);
    CHECK(full >= 0 || bare >= 0, MIMO_ERR_IO, "adapter %s has no tensor %s", with->path,
          wanted->name);
    CHECK(full < 0 || bare < 0, MIMO_ERR_EXISTS,
          "adapter %s has the tensor %s twice, with \"" ADAPTER_PREFIX "\" and without", with->path,
          wanted->name);
    *place = full >= 0 ? full : bare;
    with->used[*place] = true;
    return check_tensor(with, safetensors_at(with->file, *place), wanted);
}

/* Elements of a tensor, widened exactly. */
static mimo_status read_floats(const safetensors_file *file, int64_t place, int64_t first,
                               int64_t count, float *to)
{
    enum { AT_ONCE = 1024 };
    uint16_t halves[AT_ONCE];
    mimo_dtype dtype = safetensors_at(file, place)->dtype;
    if (dtype == MIMO_F32)
        return safetensors_read(file, place, first, count, to);
    for (int64_t done = 0; done < count;) {
        int64_t some = count - done < AT_ONCE ? count - done : AT_ONCE;
        TRY(safetensors_read(file, place, first + done, some, halves));
        for (int64_t i = 0; i < some; i++)
            to[done + i] = dtype == MIMO_BF16 ? widen_bf16(halves[i]) : widen_f16(halves[i]);
        done += some;
    }
    return MIMO_OK;
}

/* Where B is 0 an adapter does nothing. */
static mimo_status check_zero(const struct comparison *with, int64_t place)
{
    enum { AT_ONCE = 1024 };
    float values[AT_ONCE];
    const struct safetensors_tensor *got = safetensors_at(with->file, place);
    int64_t count = got->shape[0] * got->shape[1];
    for (int64_t done = 0; done < count; done += AT_ONCE) {
        int64_t some = count - done < AT_ONCE ? count - done : AT_ONCE;
        TRY(read_floats(with->file, place, done, some, values));
        for (int64_t i = 0; i < some; i++)
            CHECK(values[i] == 0, MIMO_ERR_UNSUPPORTED,
                  "adapter %s: element %" PRId64
                  " of tensor %s is %g, and routers have no adapters here, except of zeros",
                  with->path, done + i, got->name, (double)values[i]);
    }
    return MIMO_OK;
}

/* What the model has no layer for is refused, and left out where it is a router's and does
 * nothing. */
static mimo_status check_other(const struct comparison *with, int64_t place)
{
    const struct safetensors_tensor *got = safetensors_at(with->file, place);
    int dim = adapter_rank_dimension(got->name);
    const char *tail = dim >= 0 ? strstr(got->name, ".lora_") : NULL;
    CHECK(tail && adapter_is_router(got->name, (size_t)(tail - got->name)), MIMO_ERR_IO,
          "adapter %s has a tensor %s that this model has no layer for", with->path, got->name);
    TRY(check_kind(with->path, got));
    return dim == 1 ? check_zero(with, place) : MIMO_OK;
}

static mimo_status find_tensors(int64_t *places, const struct comparison *with,
                                const struct adapter_tensors *list)
{
    for (int64_t i = 0; i < list->count; i++)
        TRY(find_tensor(&places[i], with, &list->tensors[i]));
    for (int64_t i = 0; i < safetensors_count(with->file); i++)
        if (!with->used[i])
            TRY(check_other(with, i));
    return MIMO_OK;
}

static mimo_status compare(adapter_file *file, const char *path, int64_t rank,
                           const struct adapter_tensors *list)
{
    struct comparison with = {.file = file->file, .path = path, .rank = rank};
    size_t longest = 0;
    for (int64_t i = 0; i < list->count; i++)
        if (strlen(list->tensors[i].name) > longest)
            longest = strlen(list->tensors[i].name);
    file->count = list->count;
    mimo_status status;
    TRY_GOTO(status, end, memory_reserve(&file->places, list->count, sizeof *file->places));
    TRY_GOTO(status, end,
             memory_reserve(&with.used, safetensors_count(file->file), sizeof *with.used));
    TRY_GOTO(status, end, memory_reserve(&with.key, (int64_t)(sizeof ADAPTER_PREFIX + longest), 1));
    status = find_tensors(file->places, &with, list);
end:
    memory_release(with.used);
    memory_release(with.key);
    return status;
}

mimo_status adapter_open_tensors(adapter_file **out, const char *path, int64_t rank,
                                 const struct adapter_tensors *tensors)
{
    adapter_file *file;
    TRY(memory_reserve(&file, 1, sizeof *file));
    mimo_status status = safetensors_open(&file->file, path);
    if (status == MIMO_OK)
        status = compare(file, path, rank, tensors);
    if (status != MIMO_OK) {
        adapter_close(file);
        return status;
    }
    *out = file;
    return MIMO_OK;
}

static mimo_status check_hash(const adapter_file *file, const char *folder, const char *wanted)
{
    adapter_hash found;
    TRY(adapter_tensors_hash(found, file->file));
    CHECK(strcmp(found, wanted) == 0, MIMO_ERR_IO,
          "the files in %s are not of one adapter: " ADAPTER_TENSORS_NAME
          " has the hash %s, and " ADAPTER_CONFIG_NAME
          " was written for %s; it may have been cut off while it was saved",
          folder, found, wanted);
    return MIMO_OK;
}

mimo_status adapter_open(adapter_file **out, const char *folder,
                         const struct adapter_config *config, const struct adapter_tensors *tensors)
{
    char *path;
    adapter_file *file = NULL;
    TRY(adapter_path(&path, folder, ADAPTER_TENSORS_NAME));
    mimo_status status = adapter_open_tensors(&file, path, config->rank, tensors);
    memory_release(path);
    if (status == MIMO_OK && config->tensors[0])
        status = check_hash(file, folder, config->tensors);
    if (status != MIMO_OK) {
        adapter_close(file);
        return status;
    }
    *out = file;
    return MIMO_OK;
}

mimo_status adapter_content(struct file_content *out, const adapter_file *file)
{
    return safetensors_content(out, file->file);
}

mimo_status adapter_read(const adapter_file *file, int64_t index, int64_t first, int64_t count,
                         float *to)
{
    CHECK(index >= 0 && index < file->count, MIMO_ERR_ARGUMENT,
          "there is no tensor %" PRId64 " among the %" PRId64 " of an adapter", index, file->count);
    int64_t place = file->places[index];
    const struct safetensors_tensor *tensor = safetensors_at(file->file, place);
    TRY(safetensors_check_slice(tensor, first, count));
    return read_floats(file->file, place, first, count, to);
}

void adapter_close(adapter_file *file)
{
    if (!file)
        return;
    safetensors_close(file->file);
    memory_release(file->places);
    memory_release(file);
}
