#include "train/formats/safetensors.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "train/formats/safetensors_format.h"
#include "train/support/atomic_file.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/support/little_endian.h"
#include "train/support/utf8.h"

/* One tensor on its way to the file. */
struct outgoing {
    struct safetensors_tensor tensor; /* name and shape are copies, in `texts` and `sizes` */
    int64_t begin, bytes;             /* within the data */
    int64_t written;                  /* bytes so far */
};

struct safetensors_writer {
    struct atomic_file file;
    struct outgoing *outgoing;
    char **names;
    int64_t *sizes; /* all shapes, one after another */
    int64_t count;
    int64_t data_at; /* file offset of the data */
};

static mimo_status check_tensor(const struct safetensors_tensor *tensor)
{
    const char *name = tensor->name;
    CHECK(name && name[0] && utf8_printable(name, strlen(name)) == strlen(name) &&
              strcmp(name, SAFETENSORS_METADATA) != 0,
          MIMO_ERR_ARGUMENT, "a tensor cannot be named \"%s\"", name ? name : "");
    CHECK(tensor->ndim >= 0 && (tensor->ndim == 0 || tensor->shape), MIMO_ERR_ARGUMENT,
          "tensor \"%s\" has %d dimensions%s", name, tensor->ndim,
          tensor->shape ? "" : " and no shape");
    CHECK(safetensors_dtype_text(tensor->dtype), MIMO_ERR_ARGUMENT, "tensor \"%s\" has dtype %d",
          name, (int)tensor->dtype);
    return MIMO_OK;
}

static mimo_status check_unique(const struct safetensors_content *content)
{
    struct safetensors_tensor *sorted;
    int64_t count = content->tensor_count;
    TRY(memory_reserve(&sorted, count, sizeof *sorted));
    for (int64_t i = 0; i < count; i++)
        sorted[i] = content->tensors[i];
    qsort(sorted, (size_t)count, sizeof *sorted, safetensors_by_name);
    mimo_status status = MIMO_OK;
    for (int64_t i = 1; i < count && status == MIMO_OK; i++)
        if (strcmp(sorted[i - 1].name, sorted[i].name) == 0)
            status = mimo_fail(MIMO_ERR_EXISTS, "two tensors are named \"%s\"", sorted[i].name);
    memory_release(sorted);
    return status;
}

static mimo_status copy_tensors(safetensors_writer *writer,
                                const struct safetensors_content *content)
{
    int64_t dims = 0;
    for (int64_t i = 0; i < content->tensor_count; i++)
        dims += content->tensors[i].ndim;
    TRY(memory_reserve(&writer->outgoing, content->tensor_count, sizeof *writer->outgoing));
    TRY(memory_reserve(&writer->names, content->tensor_count, sizeof *writer->names));
    TRY(memory_reserve(&writer->sizes, dims, sizeof *writer->sizes));
    writer->count = content->tensor_count;
    int64_t *sizes = writer->sizes;
    for (int64_t i = 0; i < writer->count; i++) {
        const struct safetensors_tensor *from = &content->tensors[i];
        struct outgoing *to = &writer->outgoing[i];
        TRY(memory_copy_string(&writer->names[i], from->name));
        for (int d = 0; d < from->ndim; d++)
            sizes[d] = from->shape[d];
        to->tensor = *from;
        to->tensor.name = writer->names[i];
        to->tensor.shape = sizes;
        sizes += from->ndim;
        TRY(safetensors_bytes(&to->bytes, &to->tensor));
    }
    return MIMO_OK;
}

/* Wide elements first: each tensor then begins at a multiple of its element. */
static mimo_status place_tensors(safetensors_writer *writer, int64_t *total)
{
    int64_t at = 0;
    for (size_t size = SAFETENSORS_ALIGNMENT; size > 0; size /= 2) {
        for (int64_t i = 0; i < writer->count; i++) {
            struct outgoing *tensor = &writer->outgoing[i];
            if (mimo_dtype_size(tensor->tensor.dtype) != size)
                continue;
            tensor->begin = at;
            TRY(size_add(&at, at, tensor->bytes));
            CHECK(at <= SAFETENSORS_MOST_BYTES, MIMO_ERR_OVERFLOW,
                  "the tensors have more than %" PRId64 " bytes", SAFETENSORS_MOST_BYTES);
        }
    }
    *total = at;
    return MIMO_OK;
}

/* cJSON tells only that it is out of memory, by NULL or false: pass that on as false. */
static bool add_numbers(cJSON *object, const char *name, const int64_t *numbers, int count)
{
    cJSON *array = cJSON_AddArrayToObject(object, name);
    for (int i = 0; array && i < count; i++)
        if (!cJSON_AddItemToArray(array, cJSON_CreateNumber((double)numbers[i])))
            return false;
    return array != NULL;
}

static bool add_tensor(cJSON *header, const struct outgoing *tensor)
{
    const int64_t offsets[2] = {tensor->begin, tensor->begin + tensor->bytes};
    cJSON *object = cJSON_AddObjectToObject(header, tensor->tensor.name);
    return object &&
           cJSON_AddStringToObject(object, "dtype", safetensors_dtype_text(tensor->tensor.dtype)) &&
           add_numbers(object, "shape", tensor->tensor.shape, tensor->tensor.ndim) &&
           add_numbers(object, "data_offsets", offsets, 2);
}

static bool add_all(cJSON *header, const safetensors_writer *writer,
                    const struct safetensors_content *content)
{
    cJSON *metadata = NULL;
    if (content->metadata_count > 0 &&
        !(metadata = cJSON_AddObjectToObject(header, SAFETENSORS_METADATA)))
        return false;
    for (int64_t i = 0; i < content->metadata_count; i++)
        if (!cJSON_AddStringToObject(metadata, content->metadata[i].key,
                                     content->metadata[i].value))
            return false;
    for (int64_t i = 0; i < writer->count; i++)
        if (!add_tensor(header, &writer->outgoing[i]))
            return false;
    return true;
}

static mimo_status check_keys(const struct safetensors_content *content)
{
    struct safetensors_text *sorted;
    int64_t count = content->metadata_count;
    TRY(memory_reserve(&sorted, count, sizeof *sorted));
    for (int64_t i = 0; i < count; i++)
        sorted[i] = content->metadata[i];
    const char *twice = safetensors_sort_texts(sorted, count);
    memory_release(sorted);
    CHECK(!twice, MIMO_ERR_EXISTS, "two metadata are named \"%s\"", twice);
    return MIMO_OK;
}

static mimo_status check_metadata(const struct safetensors_content *content)
{
    for (int64_t i = 0; i < content->metadata_count; i++) {
        const struct safetensors_text *text = &content->metadata[i];
        CHECK(text->key && text->value, MIMO_ERR_ARGUMENT,
              "metadata %" PRId64 " has no key or no value", i);
        CHECK(utf8_printable(text->key, strlen(text->key)) == strlen(text->key) &&
                  utf8_printable(text->value, strlen(text->value)) == strlen(text->value),
              MIMO_ERR_ARGUMENT, "metadata \"%s\" is not printable UTF-8", text->key);
    }
    return check_keys(content);
}

/* Length, JSON, spaces up to the alignment. */
static mimo_status write_header(safetensors_writer *writer, const char *json)
{
    static const char spaces[SAFETENSORS_ALIGNMENT] = "        ";
    size_t length = strlen(json);
    size_t padding = (SAFETENSORS_ALIGNMENT - length % SAFETENSORS_ALIGNMENT) %
                     SAFETENSORS_ALIGNMENT; /* the prefix is a multiple itself */
    CHECK(length + padding <= SAFETENSORS_MOST_HEADER, MIMO_ERR_OVERFLOW,
          "the header of %s has %zu bytes, the format allows %d", writer->file.path, length,
          SAFETENSORS_MOST_HEADER);
    unsigned char prefix[SAFETENSORS_PREFIX];
    put_little_endian(prefix, length + padding, SAFETENSORS_PREFIX);
    TRY(atomic_file_write(&writer->file, prefix, sizeof prefix));
    TRY(atomic_file_write(&writer->file, json, length));
    TRY(atomic_file_write(&writer->file, spaces, padding));
    writer->data_at = (int64_t)(SAFETENSORS_PREFIX + length + padding);
    return MIMO_OK;
}

static mimo_status print_header(char **json, const safetensors_writer *writer,
                                const struct safetensors_content *content)
{
    cJSON *header = cJSON_CreateObject();
    char *text = header && add_all(header, writer, content) ? cJSON_PrintUnformatted(header) : NULL;
    cJSON_Delete(header);
    CHECK(text, MIMO_ERR_MEMORY, "out of memory for the header of %" PRId64 " tensors",
          writer->count);
    *json = text;
    return MIMO_OK;
}

static mimo_status begin(safetensors_writer *writer, const char *path,
                         const struct safetensors_content *content)
{
    int64_t total = 0;
    char *json = NULL;
    for (int64_t i = 0; i < content->tensor_count; i++)
        TRY(check_tensor(&content->tensors[i]));
    TRY(check_unique(content));
    TRY(check_metadata(content));
    TRY(copy_tensors(writer, content));
    TRY(place_tensors(writer, &total));
    TRY(print_header(&json, writer, content));
    mimo_status status = atomic_file_open(&writer->file, path);
    if (status == MIMO_OK)
        status = write_header(writer, json);
    cJSON_free(json);
    TRY(status);
    return atomic_file_reserve(&writer->file, writer->data_at + total);
}

mimo_status safetensors_create(safetensors_writer **out, const char *path,
                               const struct safetensors_content *content)
{
    safetensors_writer *writer;
    TRY(memory_reserve(&writer, 1, sizeof *writer));
    writer->file = (struct atomic_file)ATOMIC_FILE_INIT;
    mimo_status status = begin(writer, path, content);
    if (status != MIMO_OK) {
        safetensors_discard(writer);
        return status;
    }
    *out = writer;
    return MIMO_OK;
}

mimo_status safetensors_write(safetensors_writer *writer, int64_t index, int64_t first,
                              int64_t count, const void *data)
{
    CHECK(index >= 0 && index < writer->count, MIMO_ERR_ARGUMENT,
          "there is no tensor %" PRId64 " among %" PRId64, index, writer->count);
    struct outgoing *tensor = &writer->outgoing[index];
    TRY(safetensors_check_slice(&tensor->tensor, first, count));
    int64_t size = (int64_t)mimo_dtype_size(tensor->tensor.dtype);
    TRY(atomic_file_write_at(&writer->file, data, (size_t)(count * size),
                             writer->data_at + tensor->begin + first * size));
    tensor->written += count * size;
    return MIMO_OK;
}

mimo_status safetensors_commit(safetensors_writer *writer)
{
    if (!writer)
        return MIMO_OK;
    mimo_status status = MIMO_OK;
    for (int64_t i = 0; i < writer->count && status == MIMO_OK; i++) {
        const struct outgoing *tensor = &writer->outgoing[i];
        if (tensor->written != tensor->bytes)
            status = mimo_fail(
                MIMO_ERR_STATE, "tensor \"%s\" of %s got %" PRId64 " of its %" PRId64 " bytes",
                tensor->tensor.name, writer->file.path, tensor->written, tensor->bytes);
    }
    if (status == MIMO_OK)
        status = atomic_file_commit(&writer->file);
    safetensors_discard(writer);
    return status;
}

void safetensors_discard(safetensors_writer *writer)
{
    if (!writer)
        return;
    atomic_file_discard(&writer->file);
    for (int64_t i = 0; i < writer->count; i++)
        memory_release(writer->names[i]);
    memory_release(writer->names);
    memory_release(writer->outgoing);
    memory_release(writer->sizes);
    memory_release(writer);
}
