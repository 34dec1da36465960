#include "train/formats/safetensors.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "train/formats/safetensors_format.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/support/json_text.h"
#include "train/support/little_endian.h"
#include "train/support/utf8.h"

/* A tensor and where its data lies. The tensor comes first, so safetensors_by_name sorts these. */
struct stored {
    struct safetensors_tensor tensor;
    int64_t begin, end; /* bytes within the data */
};

struct safetensors_file {
    struct input_file input;
    cJSON *header;                     /* owns names and metadata */
    struct stored *stored;             /* sorted by name */
    struct safetensors_text *metadata; /* sorted by key; texts of the header */
    int64_t metadata_count;
    int64_t *sizes; /* all shapes, one after another */
    int64_t count;
    int64_t data_at, data_bytes;
};

/* The JSON text behind the length that comes first. */
static mimo_status read_header(safetensors_file *file, int64_t size)
{
    unsigned char prefix[SAFETENSORS_PREFIX];
    CHECK(size >= SAFETENSORS_PREFIX, MIMO_ERR_IO, "cut short: %" PRId64 " bytes", size);
    TRY(input_file_read(&file->input, prefix, sizeof prefix, 0));
    uint64_t length = get_little_endian(prefix, SAFETENSORS_PREFIX);
    CHECK(length <= SAFETENSORS_MOST_HEADER, MIMO_ERR_IO,
          "the header promises %" PRIu64 " bytes, the format allows %d", length,
          SAFETENSORS_MOST_HEADER);
    CHECK(length <= (uint64_t)(size - SAFETENSORS_PREFIX), MIMO_ERR_IO,
          "cut short: the header promises %" PRIu64 " bytes, %" PRId64 " follow", length,
          size - SAFETENSORS_PREFIX);
    char *json;
    TRY(memory_reserve(&json, (int64_t)length + 1, 1));
    mimo_status status = input_file_read(&file->input, json, (int64_t)length, SAFETENSORS_PREFIX);
    const char *end = NULL;
    if (status == MIMO_OK) {
        file->header = cJSON_ParseWithLengthOpts(json, (size_t)length, &end, 0);
        if (!cJSON_IsObject(file->header) || json[0] != '{' ||
            strspn(end, " ") != (size_t)(json + length - end))
            status =
                mimo_fail(MIMO_ERR_IO, "the header of %" PRIu64 " bytes is no JSON object", length);
        else if (json_has_nul(json, length))
            status = mimo_fail(MIMO_ERR_IO, "the header has a text with the character 0");
    }
    memory_release(json);
    file->data_at = SAFETENSORS_PREFIX + (int64_t)length;
    file->data_bytes = size - file->data_at;
    return status;
}

static mimo_status whole_number(int64_t *out, const cJSON *item, const char *what, const char *name)
{
    double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
    CHECK(value >= 0 && value <= (double)SAFETENSORS_MOST_BYTES && value == (double)(int64_t)value,
          MIMO_ERR_IO, "tensor \"%s\" has a %s that is no whole number from 0 to %" PRId64, name,
          what, SAFETENSORS_MOST_BYTES);
    *out = (int64_t)value;
    return MIMO_OK;
}

/* One member of the header; its sizes go to `sizes`. */
static mimo_status parse_tensor(const safetensors_file *file, struct stored *out, int64_t *sizes,
                                const cJSON *item)
{
    const char *name = item->string;
    const cJSON *dtype, *shape, *offsets;
    CHECK(utf8_printable(name, strlen(name)) == strlen(name) && name[0], MIMO_ERR_IO,
          "a tensor's name is not printable UTF-8");
    mimo_status status = json_member(&dtype, item, "dtype");
    if (status == MIMO_OK)
        status = json_member(&shape, item, "shape");
    if (status == MIMO_OK)
        status = json_member(&offsets, item, "data_offsets");
    if (status != MIMO_OK)
        fail_prefix(status, "tensor \"%s\": ", name);
    TRY(status);
    CHECK(cJSON_IsString(dtype) && cJSON_IsArray(shape) && cJSON_IsArray(offsets) &&
              cJSON_GetArraySize(offsets) == 2,
          MIMO_ERR_IO, "tensor \"%s\" lacks a dtype, a shape or two data_offsets", name);
    struct stored stored = {.tensor = {.name = name, .shape = sizes}};
    TRY(safetensors_dtype_parse(&stored.tensor.dtype, dtype->valuestring, name));
    const cJSON *size;
    cJSON_ArrayForEach(size, shape)
        TRY(whole_number(&sizes[stored.tensor.ndim++], size, "size", name));
    TRY(whole_number(&stored.begin, offsets->child, "data offset", name));
    TRY(whole_number(&stored.end, offsets->child->next, "data offset", name));
    int64_t bytes;
    TRY(safetensors_bytes(&bytes, &stored.tensor));
    CHECK(stored.begin <= stored.end && stored.end <= file->data_bytes, MIMO_ERR_IO,
          "tensor \"%s\" lies at [%" PRId64 ", %" PRId64 "), the data has %" PRId64 " bytes", name,
          stored.begin, stored.end, file->data_bytes);
    CHECK(stored.end - stored.begin == bytes, MIMO_ERR_IO,
          "tensor \"%s\" has %" PRId64 " bytes by its shape and %" PRId64 " by its offsets", name,
          bytes, stored.end - stored.begin);
    *out = stored;
    return MIMO_OK;
}

static mimo_status parse_metadata(safetensors_file *file, const cJSON *metadata)
{
    const cJSON *item;
    CHECK(cJSON_IsObject(metadata), MIMO_ERR_IO, "__metadata__ is no JSON object");
    TRY(memory_reserve(&file->metadata, cJSON_GetArraySize(metadata), sizeof *file->metadata));
    cJSON_ArrayForEach(item, metadata)
    {
        CHECK(cJSON_IsString(item), MIMO_ERR_IO, "metadata \"%s\" is no text", item->string);
        file->metadata[file->metadata_count++] =
            (struct safetensors_text){item->string, item->valuestring};
    }
    const char *twice = safetensors_sort_texts(file->metadata, file->metadata_count);
    CHECK(!twice, MIMO_ERR_IO, "metadata \"%s\" is there twice", twice);
    return MIMO_OK;
}

static mimo_status parse_header(safetensors_file *file)
{
    const cJSON *item;
    int64_t count = 0, dims = 0;
    cJSON_ArrayForEach(item, file->header)
    {
        count++;
        dims += cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(item, "shape"));
    }
    TRY(memory_reserve(&file->stored, count, sizeof *file->stored));
    TRY(memory_reserve(&file->sizes, dims, sizeof *file->sizes));
    int64_t *sizes = file->sizes;
    bool described = false;
    cJSON_ArrayForEach(item, file->header)
    {
        if (strcmp(item->string, SAFETENSORS_METADATA) == 0) {
            CHECK(!described, MIMO_ERR_IO, "__metadata__ is there twice");
            TRY(parse_metadata(file, item));
            described = true;
            continue;
        }
        TRY(parse_tensor(file, &file->stored[file->count], sizes, item));
        sizes += file->stored[file->count++].tensor.ndim;
    }
    return MIMO_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct stored *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Together the tensors cover the data: no overlap, no hole, nothing behind. */
static mimo_status check_cover(safetensors_file *file)
{
    int64_t at = 0;
    qsort(file->stored, (size_t)file->count, sizeof *file->stored, by_place);
    for (int64_t i = 0; i < file->count; i++) {
        const struct stored *stored = &file->stored[i];
        CHECK(stored->begin == at, MIMO_ERR_IO,
              "tensor \"%s\" begins at byte %" PRId64 ", %s %" PRId64, stored->tensor.name,
              stored->begin,
              stored->begin < at ? "inside the one before, which ends at" : "behind a hole from",
              at);
        at = stored->end;
    }
    CHECK(at == file->data_bytes, MIMO_ERR_IO,
          "the tensors end at byte %" PRId64 " of the data, which has %" PRId64, at,
          file->data_bytes);
    qsort(file->stored, (size_t)file->count, sizeof *file->stored, safetensors_by_name);
    for (int64_t i = 1; i < file->count; i++)
        CHECK(strcmp(file->stored[i - 1].tensor.name, file->stored[i].tensor.name) != 0,
              MIMO_ERR_IO, "two tensors are named \"%s\"", file->stored[i].tensor.name);
    return MIMO_OK;
}

static mimo_status open_path(safetensors_file *file, const char *path)
{
    TRY(input_file_open(&file->input, path));
    mimo_status status = read_header(file, file->input.size);
    if (status == MIMO_OK)
        status = parse_header(file);
    if (status == MIMO_OK)
        status = check_cover(file);
    if (status == MIMO_ERR_OVERFLOW) /* a hostile shape is damage like any other */
        status = MIMO_ERR_IO;
    if (status != MIMO_OK && status != MIMO_ERR_MEMORY)
        fail_prefix(status, "%s is no sound safetensors file: ", path);
    return status;
}

mimo_status safetensors_open(safetensors_file **out, const char *path)
{
    safetensors_file *file;
    TRY(memory_reserve(&file, 1, sizeof *file));
    file->input = (struct input_file)INPUT_FILE_INIT;
    mimo_status status = open_path(file, path);
    if (status != MIMO_OK) {
        safetensors_close(file);
        return status;
    }
    *out = file;
    return MIMO_OK;
}

void safetensors_close(safetensors_file *file)
{
    if (!file)
        return;
    input_file_close(&file->input);
    cJSON_Delete(file->header);
    memory_release(file->stored);
    memory_release(file->metadata);
    memory_release(file->sizes);
    memory_release(file);
}

mimo_status safetensors_content(struct file_content *out, const safetensors_file *file)
{
    return input_file_content(out, &file->input);
}

int64_t safetensors_count(const safetensors_file *file)
{
    return file->count;
}

const struct safetensors_tensor *safetensors_at(const safetensors_file *file, int64_t index)
{
    return &file->stored[index].tensor;
}

int64_t safetensors_find(const safetensors_file *file, const char *name)
{
    const struct safetensors_tensor wanted = {.name = name};
    const struct stored *found = bsearch(&wanted, file->stored, (size_t)file->count,
                                         sizeof *file->stored, safetensors_by_name);
    return found ? found - file->stored : -1;
}

const char *safetensors_metadata(const safetensors_file *file, const char *key)
{
    const struct safetensors_text wanted = {.key = key}, *found = NULL;
    if (file->metadata_count > 0)
        found = bsearch(&wanted, file->metadata, (size_t)file->metadata_count, sizeof wanted,
                        safetensors_by_key);
    return found ? found->value : NULL;
}

int64_t safetensors_metadata_count(const safetensors_file *file)
{
    return file->metadata_count;
}

struct safetensors_text safetensors_metadata_at(const safetensors_file *file, int64_t index)
{
    return file->metadata[index];
}

mimo_status safetensors_read(const safetensors_file *file, int64_t index, int64_t first,
                             int64_t count, void *data)
{
    CHECK(index >= 0 && index < file->count, MIMO_ERR_ARGUMENT,
          "there is no tensor %" PRId64 " among the %" PRId64 " of %s", index, file->count,
          file->input.path);
    const struct stored *stored = &file->stored[index];
    TRY(safetensors_check_slice(&stored->tensor, first, count));
    int64_t size = (int64_t)mimo_dtype_size(stored->tensor.dtype);
    return input_file_read(&file->input, data, count * size,
                           file->data_at + stored->begin + first * size);
}

mimo_status safetensors_read_rows(const safetensors_file *file, int64_t index, int64_t first,
                                  int64_t rows, void *data)
{
    CHECK(index >= 0 && index < file->count, MIMO_ERR_ARGUMENT,
          "there is no tensor %" PRId64 " among the %" PRId64 " of %s", index, file->count,
          file->input.path);
    const struct safetensors_tensor *tensor = &file->stored[index].tensor;
    CHECK(tensor->ndim > 0, MIMO_ERR_ARGUMENT, "tensor \"%s\" is a single value, not rows",
          tensor->name);
    CHECK(first >= 0 && rows >= 0 && first <= tensor->shape[0] && rows <= tensor->shape[0] - first,
          MIMO_ERR_ARGUMENT,
          "rows [%" PRId64 ", +%" PRId64 ") lie outside the %" PRId64 " of tensor \"%s\"", first,
          rows, tensor->shape[0], tensor->name);
    if (rows == 0) /* where there is none, the other sizes may multiply to anything */
        return MIMO_OK;
    int64_t width = 1;
    for (int d = 1; d < tensor->ndim; d++)
        width *= tensor->shape[d]; /* checked when the file was opened */
    return safetensors_read(file, index, first * width, rows * width, data);
}
