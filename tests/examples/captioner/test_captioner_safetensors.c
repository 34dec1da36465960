/* safetensors: a written file is read back, in slices as well, and every damaged file is
 * refused. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/formats/safetensors.h"
#include "train/support/little_endian.h"
#include "core/check.h"
#include "core/hash.h"
#include "own_folder.h"
#include "same_bits.h"

OWN_FOLDER(safetensors, "x.safetensors", .timeout = 60);

/* The first tensor has an odd number of narrow elements: alignment must not depend on the caller's
 * order. */
static const int64_t odd[] = {3}, table[] = {4, 3}, none[] = {0, 5}, cube[] = {2, 2, 2};
static const struct safetensors_tensor tensors[] = {
    {"half", MIMO_BF16, 1, odd},     {"weight.\xc3\xa9", MIMO_F32, 2, table},
    {"step", MIMO_I64, 0, NULL},     {"empty", MIMO_F32, 2, none},
    {"byte \"q\"", MIMO_F8, 1, odd}, {"moments", MIMO_F64, 3, cube},
};
enum { TENSORS = sizeof tensors / sizeof *tensors };
static const struct safetensors_text metadata[] = {{"format", "pt"}, {"note", "a \"b\" \\ c"}};
static const struct safetensors_content content = {tensors, TENSORS, metadata, 2};

static int64_t elements(const struct safetensors_tensor *tensor)
{
    int64_t count = 1;
    for (int d = 0; d < tensor->ndim; d++)
        count *= tensor->shape[d];
    return count;
}

static void fill(unsigned char *bytes, int64_t index, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(mimo_mix64((uint64_t)(1000 * index + i + 1)) >> 40);
}

/* Write the example, each tensor in two slices, the later one first. */
static void write_example(void)
{
    safetensors_writer *writer = NULL;
    SUCCEEDS(safetensors_create(&writer, path, &content));
    for (int64_t i = 0; i < TENSORS; i++) {
        unsigned char bytes[128];
        int64_t size = (int64_t)mimo_dtype_size(tensors[i].dtype), count = elements(&tensors[i]);
        int64_t half = count / 2;
        fill(bytes, i, count * size);
        SUCCEEDS(safetensors_write(writer, i, half, count - half, bytes + half * size));
        SUCCEEDS(safetensors_write(writer, i, 0, half, bytes));
    }
    cr_assert_neq(access(path, F_OK), 0, "the file must not be there before the commit");
    SUCCEEDS(safetensors_commit(writer));
}

Test(safetensors, round_trip)
{
    safetensors_file *file = NULL;
    write_example();
    SUCCEEDS(safetensors_open(&file, path));
    cr_assert_eq(safetensors_count(file), TENSORS);
    for (int64_t i = 0; i < TENSORS; i++) {
        unsigned char want[128], got[128];
        int64_t at = safetensors_find(file, tensors[i].name), count = elements(&tensors[i]);
        cr_assert_geq(at, 0, "%s", tensors[i].name);
        const struct safetensors_tensor *tensor = safetensors_at(file, at);
        cr_assert_str_eq(tensor->name, tensors[i].name);
        cr_assert(tensor->dtype == tensors[i].dtype && tensor->ndim == tensors[i].ndim);
        for (int d = 0; d < tensor->ndim; d++)
            cr_assert_eq(tensor->shape[d], tensors[i].shape[d]);
        size_t bytes = (size_t)count * mimo_dtype_size(tensor->dtype);
        fill(want, i, (int64_t)bytes);
        memset(got, 0xa5, sizeof got);
        SUCCEEDS(safetensors_read(file, at, 0, count, got));
        EXPECT_BITS(bits_of(got, want, (int64_t)bytes, (int64_t)mimo_dtype_size(tensor->dtype), 0),
                    "%s", tensor->name);
        cr_assert_eq(got[bytes], 0xa5, "written past the end");
    }
    cr_assert_str_eq(safetensors_metadata(file, "format"), "pt");
    cr_assert_str_eq(safetensors_metadata(file, "note"), "a \"b\" \\ c");
    cr_assert_null(safetensors_metadata(file, "nothing"));
    cr_assert_eq(safetensors_find(file, "nothing"), -1);
    cr_assert_eq(safetensors_find(file, "__metadata__"), -1);
    safetensors_close(file);
}

Test(safetensors, slices_and_rows)
{
    safetensors_file *file = NULL;
    unsigned char whole[128];
    float rows[6], slice[3];
    write_example();
    SUCCEEDS(safetensors_open(&file, path));
    int64_t at = safetensors_find(file, tensors[1].name);
    fill(whole, 1, sizeof(float) * 12);
    SUCCEEDS(safetensors_read_rows(file, at, 1, 2, rows));
    EXPECT_BITS(bits_of(rows, whole + 3 * sizeof(float), sizeof rows, sizeof *rows, 3),
                "rows 1 and 2");
    SUCCEEDS(safetensors_read(file, at, 5, 3, slice));
    EXPECT_BITS(bits_of(slice, whole + 5 * sizeof(float), sizeof slice, sizeof *slice, 0),
                "elements 5 to 7");
    cr_assert_eq(safetensors_read_rows(file, at, 4, 0, rows), MIMO_OK, "no rows at the end");
    FAILS(safetensors_read_rows(file, at, 3, 2, rows), MIMO_ERR_ARGUMENT,
          "rows [3, +2) lie outside the 4");
    cr_assert_eq(safetensors_read_rows(file, at, -1, 1, rows), MIMO_ERR_ARGUMENT);
    cr_assert_eq(safetensors_read_rows(file, at, INT64_MAX, INT64_MAX, rows), MIMO_ERR_ARGUMENT);
    FAILS(safetensors_read(file, at, 10, 3, slice), MIMO_ERR_ARGUMENT,
          "[10, +3) lie outside the 12");
    cr_assert_eq(safetensors_read(file, 99, 0, 1, slice), MIMO_ERR_ARGUMENT);
    cr_assert_eq(safetensors_read_rows(file, -1, 0, 1, slice), MIMO_ERR_ARGUMENT);
    FAILS(safetensors_read_rows(file, safetensors_find(file, "step"), 0, 1, slice),
          MIMO_ERR_ARGUMENT, "single value");
    safetensors_close(file);
}

Test(safetensors, layout_of_the_file)
{
    unsigned char bytes[2048];
    write_example();
    size_t size = get_file(path, bytes, sizeof bytes);
    uint64_t length = get_little_endian(bytes, 8);
    cr_assert_eq((8 + length) % 8, 0, "data begins at a multiple of 8");
    cr_assert_eq(bytes[8], '{');
    cr_assert_eq(size, 8 + length + 64 + 8 + 48 + 6 + 3);
    bytes[8 + length] = '\0';
    const char *json = (const char *)bytes + 8;
    cr_assert(strstr(json, "\"__metadata__\":{\"format\":\"pt\""), "%s", json);
    cr_assert(strstr(json, "\"step\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}"),
              "%s", json);
    cr_assert(strstr(json, "\"dtype\":\"F64\",\"shape\":[2,2,2],\"data_offsets\":[8,72]}"), "%s",
              json);
    cr_assert(
        strstr(json, "\"half\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[120,126]}"),
        "%s", json);
}

Test(safetensors, a_file_without_tensors)
{
    const struct safetensors_content nothing = {NULL, 0, NULL, 0};
    safetensors_writer *writer = NULL;
    safetensors_file *file = NULL;
    SUCCEEDS(safetensors_create(&writer, path, &nothing));
    SUCCEEDS(safetensors_commit(writer));
    SUCCEEDS(safetensors_open(&file, path));
    cr_assert_eq(safetensors_count(file), 0);
    cr_assert_null(safetensors_metadata(file, "format"));
    safetensors_close(file);
}

/* Write a file from the text of its header and a number of data bytes, and open it. */
static mimo_status open_text(const char *header, int64_t length, int data_bytes)
{
    unsigned char prefix[8];
    safetensors_file *opened = NULL;
    FILE *file = fopen(path, "wb");
    cr_assert(file);
    put_little_endian(prefix, (uint64_t)length, 8);
    fwrite(prefix, 1, 8, file);
    fputs(header, file);
    for (int i = 0; i < data_bytes; i++)
        fputc(i, file);
    fclose(file);
    mimo_status status = safetensors_open(&opened, path);
    if (status != MIMO_OK)
        cr_assert_null(opened, "a failed call leaves its output");
    safetensors_close(opened);
    return status;
}

#define TENSOR(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define A8 TENSOR("a", "F32", "[2]", "[0,8]")

Test(safetensors, foreign_headers)
{
    static const char *const good[] = {
        "{" A8 "}",
        "{" A8 "}     ",
        "{" TENSOR("a\\\\u0000", "F32", "[2]", "[0,8]") "}", /* a backslash, and no 0 */
        "{ \"__metadata__\" : {}, \"a\" : {\"data_offsets\":[0,8],\"shape\":[2,1],"
        "\"dtype\":\"F32\"} }",
        "{" TENSOR("b", "I32", "[1]", "[4,8]") "," TENSOR("a", "F16", "[2]", "[0,4]") "}",
        "{" A8 "," TENSOR("z", "F32", "[0]", "[8,8]") "," TENSOR("y", "F32", "[0]", "[0,0]") "}",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_assert_eq(open_text(good[i], (int64_t)strlen(good[i]), 8), MIMO_OK, "%s: %s", good[i],
                     mimo_last_error());
}

Test(safetensors, hostile_headers)
{
    static const struct {
        const char *header, *part;
    } cases[] = {
        {"", "no JSON object"},
        {"[1]", "no JSON object"},
        {"{" A8 "", "no JSON object"},
        {"{" A8 "} x", "no JSON object"},
        {" {" A8 "}", "no JSON object"},
        {"{\"a\":3}", "\"a\" lacks a dtype, a shape or two"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "lacks"},
        {"{" TENSOR("a", "F32", "{\"x\":2}", "[0,8]") "}", "lacks"},
        {"{" TENSOR("a", "F32", "[2]", "[0]") "}", "lacks"},
        {"{" TENSOR("a", "F32", "[2]", "[0,8,9]") "}", "lacks"},
        {"{" TENSOR("a", "F32", "[-2]", "[0,8]") "}", "a size that is no whole number"},
        {"{" TENSOR("a", "F32", "[2.5]", "[0,8]") "}", "a size that is no whole number"},
        {"{" TENSOR("a", "F32", "[1e300]", "[0,8]") "}", "a size that is no whole number"},
        {"{" TENSOR("a", "F32", "[\"2\"]", "[0,8]") "}", "a size that is no whole number"},
        {"{" TENSOR("a", "F32", "[2]", "[0,null]") "}", "a data offset that is no whole number"},
        {"{" TENSOR("a", "F32", "[4]", "[0,16]") "}", "at [0, 16), the data has 8 bytes"},
        {"{" TENSOR("a", "F32", "[2]", "[8,0]") "}", "at [8, 0)"},
        {"{" TENSOR("a", "F32", "[3]", "[0,8]") "}", "has 12 bytes by its shape and 8 by"},
        {"{" TENSOR("a", "F32", "[999999999999999,999999999999999]", "[0,8]") "}", "does not fit"},
        {"{" TENSOR("a", "F32", "[1]", "[0,4]") "}", "end at byte 4 of the data, which has 8"},
        {"{" TENSOR("a", "F32", "[1]", "[4,8]") "}", "begins at byte 4, behind a hole from 0"},
        {"{" A8 "," TENSOR("b", "F32", "[1]", "[4,8]") "}", "begins at byte 4, inside the one"},
        {"{" A8 "," A8 "}", "begins at byte 0, inside the one before"},
        {"{" A8 "," TENSOR("a", "F32", "[0]", "[8,8]") "}", "two tensors are named \"a\""},
        {"{" A8 ",\"__metadata__\":3}", "__metadata__ is no JSON object"},
        {"{" A8 ",\"__metadata__\":{\"k\":3}}", "metadata \"k\" is no text"},
        {"{" A8 ",\"__metadata__\":{},\"__metadata__\":{}}", "__metadata__ is there twice"},
        {"{" A8 ",\"__metadata__\":{\"k\":\"1\",\"j\":\"1\",\"k\":\"2\"}}",
         "metadata \"k\" is there twice"},
        {"{\"a\":[\"dtype\"]}", "tensor \"a\" lacks a dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"dtype\":\"I32\"}}",
         "tensor \"a\": \"dtype\" is there twice"},
        {"{\"a\":{\"shape\":[2],\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}}",
         "tensor \"a\": \"shape\" is there twice"},
        {"{\"a\":{\"data_offsets\":[4,8],\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         "tensor \"a\": \"data_offsets\" is there twice"},
        {"{" TENSOR("\xff", "F32", "[2]", "[0,8]") "}", "not printable UTF-8"},
        {"{" TENSOR("a\\u0000b", "F32", "[2]", "[0,8]") "}", "a text with the character 0"},
        {"{" A8 ",\"__metadata__\":{\"k\":\"\\\\\\u0000\"}}", "a text with the character 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mimo_status status = open_text(cases[i].header, (int64_t)strlen(cases[i].header), 8);
        cr_assert_eq(status, MIMO_ERR_IO, "%s: %d", cases[i].header, (int)status);
        cr_assert(strstr(mimo_last_error(), cases[i].part), "%s: %s", cases[i].header,
                  mimo_last_error());
        cr_assert(strstr(mimo_last_error(), path), "%s", mimo_last_error());
    }
    const char *bools = "{" TENSOR("a", "BOOL", "[8]", "[0,8]") "}";
    FAILS(open_text(bools, (int64_t)strlen(bools), 8), MIMO_ERR_UNSUPPORTED,
          "\"a\" has dtype \"BOOL\"");
    FAILS(open_text("{" A8 "}", -1, 8), MIMO_ERR_IO, "promises 18446744073709551615 bytes");
    FAILS(open_text("{" A8 "}", 1000, 8), MIMO_ERR_IO, "promises 1000 bytes");
}

/* No row, and rows of 2^80 elements: the file is sound, with nothing to read. */
Test(safetensors, no_rows_of_any_width)
{
    static const char header[] =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[0,1099511627776,1099511627776],"
        "\"data_offsets\":[0,0]}}";
    safetensors_file *file = NULL;
    SUCCEEDS(open_text(header, (int64_t)strlen(header), 0));
    SUCCEEDS(safetensors_open(&file, path));
    SUCCEEDS(safetensors_read_rows(file, 0, 0, 0, NULL));
    safetensors_close(file);
}

/* No flipped byte and no truncation crashes the reader. It finds every truncation. */
Test(safetensors, damage_anywhere)
{
    unsigned char bytes[2048];
    write_example();
    size_t size = get_file(path, bytes, sizeof bytes);
    size_t header = 8 + (size_t)get_little_endian(bytes, 8);
    for (size_t i = 0; i < header + size; i++) {
        bool cut = i >= header;
        size_t length = cut ? i - header : size;
        if (!cut)
            bytes[i] ^= 0x15;
        put_file(path, bytes, length);
        safetensors_file *opened = NULL;
        mimo_status status = safetensors_open(&opened, path);
        cr_assert(status == MIMO_OK ? !cut : mimo_last_error()[0] != '\0', "%zu", i);
        safetensors_close(opened);
        if (!cut)
            bytes[i] ^= 0x15;
    }
}

static void refuse(struct safetensors_tensor tensor, mimo_status status, const char *part)
{
    const struct safetensors_tensor two[] = {{"a", MIMO_F32, 1, odd}, tensor};
    const struct safetensors_content wrong = {two, 2, NULL, 0};
    safetensors_writer *writer = NULL;
    cr_assert_eq(safetensors_create(&writer, path, &wrong), status, "%s", part);
    cr_assert(strstr(mimo_last_error(), part), "%s", mimo_last_error());
    cr_assert_null(writer);
}

Test(safetensors, contents_that_no_file_can_have)
{
    static const int64_t negative[] = {2, -3}, huge[] = {INT64_MAX / 2, 3},
                         large[] = {1 << 30, 1 << 20};
    refuse((struct safetensors_tensor){"a", MIMO_F32, 0, NULL}, MIMO_ERR_EXISTS, "named \"a\"");
    refuse((struct safetensors_tensor){"", MIMO_F32, 0, NULL}, MIMO_ERR_ARGUMENT, "named \"\"");
    refuse((struct safetensors_tensor){"__metadata__", MIMO_F32, 0, NULL}, MIMO_ERR_ARGUMENT,
           "named \"__metadata__\"");
    refuse((struct safetensors_tensor){"b\xff", MIMO_F32, 0, NULL}, MIMO_ERR_ARGUMENT, "named \"b");
    refuse((struct safetensors_tensor){"b", (mimo_dtype)77, 0, NULL}, MIMO_ERR_ARGUMENT,
           "\"b\" has dtype 77");
    refuse((struct safetensors_tensor){"b", MIMO_F32, -1, odd}, MIMO_ERR_ARGUMENT,
           "has -1 dimensions");
    refuse((struct safetensors_tensor){"b", MIMO_F32, 2, negative}, MIMO_ERR_ARGUMENT,
           "\"b\" has size -3 in dimension 1");
    refuse((struct safetensors_tensor){"b", MIMO_F32, 2, huge}, MIMO_ERR_OVERFLOW, "does not fit");
    refuse((struct safetensors_tensor){"b", MIMO_F32, 2, large}, MIMO_ERR_OVERFLOW, "bytes");
    const struct safetensors_text twice[] = {{"k", "1"}, {"k", "2"}};
    const struct safetensors_content wrong = {tensors, TENSORS, twice, 2};
    safetensors_writer *writer = NULL;
    FAILS(safetensors_create(&writer, path, &wrong), MIMO_ERR_EXISTS,
          "two metadata are named \"k\"");
}

Test(safetensors, a_tensor_that_is_not_whole)
{
    const float values[12] = {0};
    safetensors_writer *writer = NULL;
    SUCCEEDS(safetensors_create(&writer, path, &content));
    SUCCEEDS(safetensors_write(writer, 0, 0, 3, values));
    SUCCEEDS(safetensors_write(writer, 1, 3, 2, values));
    FAILS(safetensors_write(writer, 1, 11, 2, values), MIMO_ERR_ARGUMENT,
          "[11, +2) lie outside the 12");
    cr_assert_eq(safetensors_write(writer, TENSORS, 0, 1, values), MIMO_ERR_ARGUMENT);
    FAILS(safetensors_commit(writer), MIMO_ERR_STATE, "got 8 of its 48 bytes");
    cr_assert_neq(access(path, F_OK), 0, "half a file was left");
    SUCCEEDS(safetensors_create(&writer, path, &content));
    safetensors_discard(writer);
    safetensors_discard(NULL);
    SUCCEEDS(safetensors_commit(NULL));
}

Test(safetensors, a_full_disk_leaves_nothing)
{
    static const int64_t mebi[] = {1 << 18};
    const struct safetensors_tensor big = {"big", MIMO_F32, 1, mebi};
    const struct safetensors_content one = {&big, 1, NULL, 0};
    safetensors_writer *writer = NULL;
    struct rlimit before = limit_files(4096);
    mimo_status status = safetensors_create(&writer, path, &one);
    setrlimit(RLIMIT_FSIZE, &before);
    FAILS(status, MIMO_ERR_IO, path);
    cr_assert_null(writer);
    safetensors_file *file = NULL;
    cr_assert_eq(safetensors_open(&file, path), MIMO_ERR_NOT_FOUND);
    FAILS(safetensors_open(&file, folder), MIMO_ERR_IO, "no ordinary file");
}
