#include "train/formats/lora_v1_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "train/formats/adapter_format.h"
#include "train/formats/lora_v1_format.h"
#include "train/support/atomic_file.h"
#include "train/support/little_endian.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the elements are little-endian, and are copied here as they lie in memory"
#endif

/* Where one of the caller's tensors goes. */
struct place {
    int64_t rows, width, at; /* at: the byte of its first element */
    const int64_t *lora_rows;
    bool written;
};

struct lora_v1_writer {
    struct atomic_file file;
    struct place *places;
    int64_t count;
};

/* Without ".weight". */
static int name_length(const struct adapter_tensor *tensor)
{
    return (int)(strlen(tensor->name) - strlen(".weight"));
}

static mimo_status check_tensor(const struct adapter_tensor *tensor)
{
    CHECK(adapter_rank_dimension(tensor->name) >= 0, MIMO_ERR_ARGUMENT,
          "a LORA file has no place for tensor %s: its name ends neither with .lora_A.weight nor "
          "with .lora_B.weight",
          tensor->name);
    CHECK(tensor->shape[0] >= 1 && tensor->shape[1] >= 1, MIMO_ERR_ARGUMENT,
          "tensor %s has the shape [%" PRId64 ", %" PRId64 "]", tensor->name, tensor->shape[0],
          tensor->shape[1]);
    return lora_v1_check_rows(tensor);
}

static int by_name(const void *a, const void *b)
{
    const struct adapter_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name); /* what follows ".lora_A" is the same of all */
}

/* Everything before the elements of a tensor. */
static mimo_status write_head(struct atomic_file *file, const struct adapter_tensor *tensor,
                              int64_t at)
{
    unsigned char length[4], dims[4 + 2 * 8];
    int bytes = name_length(tensor);
    put_little_endian(length, (uint64_t)bytes, 4);
    put_little_endian(dims, LORA_V1_DIMS, 4);
    put_little_endian(dims + 4, (uint64_t)tensor->shape[0], 8);
    put_little_endian(dims + 12, (uint64_t)tensor->shape[1], 8);
    TRY(atomic_file_write_at(file, length, sizeof length, at));
    TRY(atomic_file_write_at(file, tensor->name, (size_t)bytes, at + 4));
    return atomic_file_write_at(file, dims, sizeof dims, at + 4 + bytes);
}

static mimo_status write_heads(lora_v1_writer *writer, const struct adapter_tensors *list,
                               const struct adapter_tensor *const *sorted)
{
    unsigned char header[LORA_V1_HEADER];
    int64_t at = LORA_V1_HEADER;
    put_little_endian(header, LORA_V1_MAGIC, 4);
    put_little_endian(header + 4, LORA_V1_VERSION, 4);
    put_little_endian(header + 8, (uint64_t)list->count, 4);
    TRY(atomic_file_write_at(&writer->file, header, sizeof header, 0));
    for (int64_t i = 0; i < list->count; i++) {
        const struct adapter_tensor *tensor = sorted[i];
        int64_t rows = tensor->shape[0], width = tensor->shape[1], bytes;
        CHECK(i == 0 || strcmp(sorted[i - 1]->name, tensor->name) != 0, MIMO_ERR_EXISTS,
              "two tensors are named \"%s\"", tensor->name);
        TRY(size_mul(&bytes, rows, width));
        TRY(size_mul(&bytes, bytes, sizeof(float)));
        TRY(write_head(&writer->file, tensor, at));
        at += LORA_V1_FIXED + name_length(tensor);
        writer->places[tensor - list->tensors] =
            (struct place){rows, width, at, tensor->lora_rows, false};
        TRY(size_add(&at, at, bytes));
    }
    return atomic_file_reserve(&writer->file, at);
}

static mimo_status begin(lora_v1_writer *writer, const char *path,
                         const struct adapter_tensors *list)
{
    const struct adapter_tensor **sorted = NULL;
    CHECK(list->count <= UINT32_MAX, MIMO_ERR_OVERFLOW, "%" PRId64 " tensors are too many",
          list->count);
    for (int64_t i = 0; i < list->count; i++)
        TRY(check_tensor(&list->tensors[i]));
    writer->count = list->count;
    TRY(memory_reserve(&writer->places, list->count, sizeof *writer->places));
    TRY(atomic_file_open(&writer->file, path));
    TRY(memory_reserve(&sorted, list->count, sizeof *sorted));
    for (int64_t i = 0; i < list->count; i++)
        sorted[i] = &list->tensors[i];
    qsort(sorted, (size_t)list->count, sizeof *sorted, by_name);
    mimo_status status = write_heads(writer, list, sorted);
    memory_release(sorted);
    return status;
}

mimo_status lora_v1_create(lora_v1_writer **out, const char *path,
                           const struct adapter_tensors *tensors)
{
    lora_v1_writer *writer;
    TRY(memory_reserve(&writer, 1, sizeof *writer));
    writer->file = (struct atomic_file)ATOMIC_FILE_INIT;
    mimo_status status = begin(writer, path, tensors);
    if (status != MIMO_OK) {
        lora_v1_discard(writer);
        return status;
    }
    *out = writer;
    return MIMO_OK;
}

static mimo_status write_in_other_order(lora_v1_writer *writer, const struct place *place,
                                        const float *whole)
{
    float *ordered;
    size_t bytes = (size_t)(place->rows * place->width) * sizeof *ordered;
    TRY(memory_reserve(&ordered, place->rows * place->width, sizeof *ordered));
    for (int64_t row = 0; row < place->rows; row++)
        memcpy(ordered + place->lora_rows[row] * place->width, whole + row * place->width,
               (size_t)place->width * sizeof *ordered);
    mimo_status status = atomic_file_write_at(&writer->file, ordered, bytes, place->at);
    memory_release(ordered);
    return status;
}

mimo_status lora_v1_write(lora_v1_writer *writer, int64_t index, const float *whole)
{
    CHECK(index >= 0 && index < writer->count, MIMO_ERR_ARGUMENT,
          "there is no tensor %" PRId64 " among the %" PRId64 " of %s", index, writer->count,
          writer->file.path);
    struct place *place = &writer->places[index];
    if (place->lora_rows)
        TRY(write_in_other_order(writer, place, whole));
    else
        TRY(atomic_file_write_at(&writer->file, whole,
                                 (size_t)(place->rows * place->width) * sizeof *whole, place->at));
    place->written = true;
    return MIMO_OK;
}

mimo_status lora_v1_commit(lora_v1_writer *writer)
{
    if (!writer)
        return MIMO_OK;
    mimo_status status = MIMO_OK;
    for (int64_t i = 0; i < writer->count && status == MIMO_OK; i++)
        if (!writer->places[i].written)
            status = mimo_fail(MIMO_ERR_STATE, "tensor %" PRId64 " of %s was not written", i,
                               writer->file.path);
    if (status == MIMO_OK)
        status = atomic_file_commit(&writer->file);
    lora_v1_discard(writer);
    return status;
}

void lora_v1_discard(lora_v1_writer *writer)
{
    if (!writer)
        return;
    atomic_file_discard(&writer->file);
    memory_release(writer->places);
    memory_release(writer);
}
