/* The reader of safetensors files: a sound file can be read to its last element, any other file is
 * refused with a sentence. The first byte chooses what the others are: a whole file; or a header
 * and data, before which the right length is put; or numbers from which a header is written. */
#include <inttypes.h>
#include <unistd.h>

#include "train/formats/safetensors.h"
#include "train/support/little_endian.h"
#include "fuzz_input.h"

static void read_tensor(const safetensors_file *file, int64_t index)
{
    const struct safetensors_tensor *tensor = safetensors_at(file, index);
    int64_t elements = 1, size = (int64_t)mimo_dtype_size(tensor->dtype);
    char byte;
    FUZZ_EXPECT(safetensors_find(file, tensor->name) == index, "'%s' is not found", tensor->name);
    for (int i = 0; i < tensor->ndim; i++)
        FUZZ_EXPECT(!__builtin_mul_overflow(elements, tensor->shape[i], &elements),
                    "'%s' has too many elements", tensor->name);
    char *data = malloc((size_t)(elements * size) + 1); /* as large as the file at most */
    FUZZ_EXPECT(data, "out of memory");
    FUZZ_EXPECT(safetensors_read(file, index, 0, elements, data) == MIMO_OK, "'%s' is not read",
                tensor->name);
    if (tensor->ndim > 0)
        FUZZ_EXPECT(safetensors_read_rows(file, index, 0, tensor->shape[0], data) == MIMO_OK,
                    "the rows of '%s' are not read", tensor->name);
    FUZZ_EXPECT(safetensors_read(file, index, elements, 1, &byte) == MIMO_ERR_ARGUMENT,
                "'%s' has an element past its end", tensor->name);
    free(data);
}

static void try_file(const void *data, size_t size)
{
    char path[FUZZ_PATH];
    safetensors_file *file = NULL;
    int fd = fuzz_file(path, data, size);
    if (safetensors_open(&file, path) == MIMO_OK) {
        for (int64_t i = 0; i < safetensors_count(file); i++)
            read_tensor(file, i);
        FUZZ_EXPECT(safetensors_find(file, "no such tensor\n") < 0, "found");
        (void)safetensors_metadata(file, "format");
    } else {
        FUZZ_EXPECT(!file && *mimo_last_error(), "a failure without a sentence");
    }
    safetensors_close(file);
    close(fd);
}

enum { MOST_HEADER = 2048, MOST_DATA = 256 };

/* Header and data, with the length of the header before them. */
static void try_parts(const char *header, size_t length, size_t data_bytes)
{
    uint8_t bytes[8 + MOST_HEADER + MOST_DATA] = {0};
    put_little_endian(bytes, length, 8);
    memcpy(bytes + 8, header, length);
    try_file(bytes, 8 + length + data_bytes);
}

static const char *number_text(fuzz_input *input)
{
    static const char *const numbers[] = {
        "0",
        "1",
        "2",
        "3",
        "4",
        "8",
        "1099511627776",
        "999999999999999",
        "1e15",
        "4294967296",
        "9007199254740993",
        "-1",
        "0.5",
        "1e300",
        "null",
        "[]",
    };
    return numbers[fuzz_byte(input) % (sizeof numbers / sizeof *numbers)];
}

/* Up to 4 tensors of up to 4 dimensions; each ends where a byte says, the next begins there. */
static size_t write_header(char *header, fuzz_input *input, int *data_bytes)
{
    static const char *const dtypes[] = {"F32", "BF16", "I64", "F8_E4M3", "F64", "U8"};
    int count = (int)fuzz_number(input, 0, 4), begin = 0, end;
    size_t used = (size_t)sprintf(header, "{");
    for (int i = 0; i < count; i++, begin = end) {
        int dims = (int)fuzz_number(input, 0, 4);
        used += (size_t)sprintf(header + used, "%s\"%c\":{\"dtype\":\"%s\",\"shape\":[",
                                i > 0 ? "," : "", (char)fuzz_number(input, 'a', 'h'),
                                dtypes[fuzz_byte(input) % 6]);
        for (int d = 0; d < dims; d++)
            used += (size_t)sprintf(header + used, "%s%s", d > 0 ? "," : "", number_text(input));
        end = begin + (int)fuzz_number(input, 0, MOST_DATA / 4);
        used += (size_t)sprintf(header + used, "],\"data_offsets\":[%d,%d]}", begin, end);
    }
    *data_bytes = begin;
    return used + (size_t)sprintf(header + used, "}");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char header[MOST_HEADER];
    fuzz_input input = {data, size};
    int data_bytes;
    switch (fuzz_byte(&input) % 3) {
    case 0:
        try_file(input.data, input.size);
        break;
    case 1:
        data_bytes = fuzz_byte(&input);
        try_parts((const char *)input.data, input.size < MOST_HEADER ? input.size : MOST_HEADER,
                  (size_t)data_bytes);
        break;
    default:
        size = write_header(header, &input, &data_bytes);
        try_parts(header, size, (size_t)data_bytes);
    }
    return 0;
}
