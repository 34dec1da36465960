#include "train/formats/lora_v1_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "train/formats/adapter_config.h"
#include "train/formats/lora_v1_format.h"
#include "train/support/little_endian.h"
#include "train/support/utf8.h"

struct stored {
    char *name;
    int64_t shape[2], at; /* at: the byte of its first element */
};

/* One of the caller's tensors. */
struct place {
    const struct stored *stored;
    const int64_t *lora_rows;
};

struct lora_v1_file {
    struct input_file input;
    struct stored *stored; /* sorted by name */
    int64_t count, rank;
    struct place *places;
    int64_t place_count;
};

/* The number of `bytes` bytes at *at, which moves on. */
static mimo_status read_number(const lora_v1_file *file, uint64_t *out, int64_t *at, int bytes)
{
    unsigned char data[8];
    CHECK(bytes <= file->input.size - *at, MIMO_ERR_IO,
          "cut short at byte %" PRId64 ": %d are needed", *at, bytes);
    TRY(input_file_read(&file->input, data, bytes, *at));
    *out = get_little_endian(data, bytes);
    *at += bytes;
    return MIMO_OK;
}

static mimo_status read_name(const lora_v1_file *file, char **out, int64_t *at)
{
    uint64_t length;
    TRY(read_number(file, &length, at, 4));
    CHECK(length >= 1 && length <= (uint64_t)(file->input.size - *at), MIMO_ERR_IO,
          "byte %" PRId64 " promises a name of %" PRIu64 " bytes, %" PRId64 " follow", *at - 4,
          length, file->input.size - *at);
    TRY(memory_reserve(out, (int64_t)length + 1, 1));
    TRY(input_file_read(&file->input, *out, (int64_t)length, *at));
    CHECK(utf8_printable(*out, length) == length, MIMO_ERR_IO,
          "the name at byte %" PRId64 " is not printable UTF-8", *at);
    *at += (int64_t)length;
    return MIMO_OK;
}

static mimo_status read_shape(const lora_v1_file *file, struct stored *stored, int64_t *at)
{
    uint64_t dims, size;
    TRY(read_number(file, &dims, at, 4));
    CHECK(dims == LORA_V1_DIMS, MIMO_ERR_IO,
          "byte %" PRId64 ": tensor %s has %" PRIu64 " dimensions, and not 2", *at - 4,
          stored->name, dims);
    for (int d = 0; d < LORA_V1_DIMS; d++) {
        TRY(read_number(file, &size, at, 8));
        CHECK(size >= 1 && size <= (uint64_t)file->input.size, MIMO_ERR_IO,
              "byte %" PRId64 ": tensor %s has size %" PRId64 " in dimension %d", *at - 8,
              stored->name, (int64_t)size, d);
        stored->shape[d] = (int64_t)size;
    }
    int64_t width = stored->shape[1], left = file->input.size - *at;
    CHECK(stored->shape[0] <= left / (int64_t)sizeof(float) / width, MIMO_ERR_IO,
          "byte %" PRId64 ": tensor %s has the shape [%" PRId64 ", %" PRId64 "], %" PRId64
          " bytes follow",
          *at, stored->name, stored->shape[0], width, left);
    stored->at = *at;
    *at += stored->shape[0] * width * (int64_t)sizeof(float);
    return MIMO_OK;
}

static bool ends_with(const char *text, const char *tail)
{
    size_t length = strlen(text), bytes = strlen(tail);
    return length >= bytes && strcmp(text + length - bytes, tail) == 0;
}

static mimo_status check_rank(lora_v1_file *file, const struct stored *stored)
{
    int dim = ends_with(stored->name, ".lora_A") ? 0 : ends_with(stored->name, ".lora_B") ? 1 : -1;
    CHECK(dim >= 0, MIMO_ERR_IO,
          "tensor %s is no factor: its name ends neither with .lora_A nor with .lora_B",
          stored->name);
    int64_t rank = stored->shape[dim];
    CHECK(rank <= ADAPTER_MOST_RANK, MIMO_ERR_IO, "tensor %s has rank %" PRId64 ", at most %d",
          stored->name, rank, ADAPTER_MOST_RANK);
    CHECK(file->rank == 0 || file->rank == rank, MIMO_ERR_SHAPE,
          "tensor %s has the shape [%" PRId64 ", %" PRId64 "], of rank %" PRId64
          ", and those before have rank %" PRId64,
          stored->name, stored->shape[0], stored->shape[1], rank, file->rank);
    file->rank = rank;
    return MIMO_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct stored *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static mimo_status read_list(lora_v1_file *file)
{
    uint64_t magic, version, count;
    int64_t at = 0;
    TRY(read_number(file, &magic, &at, 4));
    CHECK(magic == LORA_V1_MAGIC, MIMO_ERR_IO, "it begins with %08" PRIx64 ", and not with %08x",
          magic, (unsigned)LORA_V1_MAGIC);
    TRY(read_number(file, &version, &at, 4));
    CHECK(version == LORA_V1_VERSION, MIMO_ERR_IO, "version %" PRIu64 ", and not %d", version,
          LORA_V1_VERSION);
    TRY(read_number(file, &count, &at, 4));
    CHECK(count <= (uint64_t)(file->input.size - at) / (LORA_V1_FIXED + 1), MIMO_ERR_IO,
          "byte %" PRId64 " promises %" PRIu64 " tensors, %" PRId64 " bytes follow", at - 4, count,
          file->input.size - at);
    TRY(memory_reserve(&file->stored, (int64_t)count, sizeof *file->stored));
    while (file->count < (int64_t)count) {
        struct stored *stored = &file->stored[file->count++];
        TRY(read_name(file, &stored->name, &at));
        TRY(read_shape(file, stored, &at));
        TRY(check_rank(file, stored));
    }
    CHECK(at == file->input.size, MIMO_ERR_IO,
          "the tensors end at byte %" PRId64 ", the file has %" PRId64, at, file->input.size);
    qsort(file->stored, count, sizeof *file->stored, by_name);
    for (int64_t i = 1; i < file->count; i++)
        CHECK(strcmp(file->stored[i - 1].name, file->stored[i].name) != 0, MIMO_ERR_EXISTS,
              "two tensors are named \"%s\"", file->stored[i].name);
    return MIMO_OK;
}

static mimo_status open_path(lora_v1_file *file, const char *path)
{
    TRY(input_file_open(&file->input, path));
    mimo_status status = read_list(file);
    if (status != MIMO_OK && status != MIMO_ERR_MEMORY)
        fail_prefix(status, "%s is no sound LORA file: ", path);
    return status;
}

mimo_status lora_v1_open(lora_v1_file **out, const char *path)
{
    lora_v1_file *file;
    TRY(memory_reserve(&file, 1, sizeof *file));
    file->input = (struct input_file)INPUT_FILE_INIT;
    mimo_status status = open_path(file, path);
    if (status != MIMO_OK) {
        lora_v1_close(file);
        return status;
    }
    *out = file;
    return MIMO_OK;
}

mimo_status lora_v1_content(struct file_content *out, const lora_v1_file *file)
{
    return input_file_content(out, &file->input);
}

int64_t lora_v1_count(const lora_v1_file *file)
{
    return file->count;
}

const char *lora_v1_name(const lora_v1_file *file, int64_t i)
{
    return file->stored[i].name;
}

int64_t lora_v1_rank(const lora_v1_file *file)
{
    return file->rank;
}

/* The tensor that the model names NAME.weight. */
static const struct stored *find(const lora_v1_file *file, const char *name)
{
    static const char tail[] = ".weight";
    size_t length = strlen(name), bytes = sizeof tail - 1;
    size_t kept = length >= bytes && strcmp(name + length - bytes, tail) == 0 ? length - bytes : 0;
    int64_t low = 0, high = file->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        const struct stored *stored = &file->stored[middle];
        int order = strncmp(name, stored->name, kept);
        if (order == 0 && stored->name[kept] != '\0')
            order = -1;
        if (order == 0)
            return stored;
        *(order < 0 ? &high : &low) = order < 0 ? middle : middle + 1;
    }
    return NULL;
}

static mimo_status match_all(lora_v1_file *file, const struct adapter_tensors *list, bool *used)
{
    for (int64_t i = 0; i < list->count; i++) {
        const struct adapter_tensor *wanted = &list->tensors[i];
        const struct stored *got = find(file, wanted->name);
        CHECK(got, MIMO_ERR_IO, "adapter %s has no tensor %s", file->input.path, wanted->name);
        CHECK(got->shape[0] == wanted->shape[0] && got->shape[1] == wanted->shape[1],
              MIMO_ERR_SHAPE,
              "adapter %s: tensor %s has the shape [%" PRId64 ", %" PRId64
              "], and not that of the model, [%" PRId64 ", %" PRId64 "]",
              file->input.path, got->name, got->shape[0], got->shape[1], wanted->shape[0],
              wanted->shape[1]);
        TRY(lora_v1_check_rows(wanted));
        used[got - file->stored] = true;
        file->places[i] = (struct place){got, wanted->lora_rows};
    }
    for (int64_t i = 0; i < file->count; i++)
        CHECK(used[i], MIMO_ERR_IO, "adapter %s has a tensor %s that this model has no layer for",
              file->input.path, file->stored[i].name);
    return MIMO_OK;
}

mimo_status lora_v1_match(lora_v1_file *file, const struct adapter_tensors *tensors)
{
    bool *used;
    memory_release(file->places);
    file->places = NULL;
    file->place_count = 0;
    TRY(memory_reserve(&file->places, tensors->count, sizeof *file->places));
    TRY(memory_reserve(&used, file->count, sizeof *used));
    mimo_status status = match_all(file, tensors, used);
    memory_release(used);
    if (status == MIMO_OK)
        file->place_count = tensors->count;
    return status;
}

mimo_status lora_v1_read(const lora_v1_file *file, int64_t index, int64_t first, int64_t count,
                         float *to)
{
    CHECK(index >= 0 && index < file->place_count, MIMO_ERR_ARGUMENT,
          "there is no tensor %" PRId64 " among the %" PRId64 " of %s", index, file->place_count,
          file->input.path);
    const struct place *place = &file->places[index];
    const struct stored *stored = place->stored;
    int64_t width = stored->shape[1], elements = stored->shape[0] * width;
    CHECK(first >= 0 && count >= 0 && first <= elements && count <= elements - first,
          MIMO_ERR_ARGUMENT,
          "elements [%" PRId64 ", +%" PRId64 ") lie outside the %" PRId64 " of tensor \"%s\"",
          first, count, elements, stored->name);
    while (count > 0) {
        int64_t row = first / width, column = first % width, some = count;
        if (place->lora_rows) {
            row = place->lora_rows[row];
            some = count < width - column ? count : width - column;
        }
        TRY(input_file_read(&file->input, to, some * (int64_t)sizeof *to,
                            stored->at + (row * width + column) * (int64_t)sizeof *to));
        to += some;
        first += some;
        count -= some;
    }
    return MIMO_OK;
}

void lora_v1_close(lora_v1_file *file)
{
    if (!file)
        return;
    input_file_close(&file->input);
    for (int64_t i = 0; i < file->count; i++)
        memory_release(file->stored[i].name);
    memory_release(file->stored);
    memory_release(file->places);
    memory_release(file);
}
