/* LORA v1 files: the bytes of the format, rows in another order and back, every file that is
 * damaged or not the model's refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/formats/lora_v1_file.h"
#include "train/support/little_endian.h"
#include "core/hash.h"
#include "own_folder.h"
#include "same_bits.h"

OWN_FOLDER(lora_v1, "x.lora", .timeout = 60);

/* A column-parallel layer with r = 2 (docs/concepts.md, "LoRA"). B comes first: the file sorts. */
#define UP "llm.block0.mlp.up."
static const struct adapter_tensor factors[] = {{UP "lora_B.weight", {4, 2}, NULL},
                                                {UP "lora_A.weight", {2, 2}, NULL}};
static const struct adapter_tensors both = {factors, 2};
static const float a[] = {1, 2, 0, 1}, b[] = {1, 0, 0, 1, 1, -1, 2, 1};

/* sha256 36d9496880a8f74093c18e83a00455e623e6b949c80541aff8876ab4fb5b0b82 */
static const char golden[] =
    "\x41\x52\x4f\x4c\1\0\0\0\2\0\0\0"
    "\x18\0\0\0" UP "lora_A\2\0\0\0\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"
    "\0\0\x80\x3f\0\0\0\x40\0\0\0\0\0\0\x80\x3f"
    "\x18\0\0\0" UP "lora_B\2\0\0\0\4\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"
    "\0\0\x80\x3f\0\0\0\0\0\0\0\0\0\0\x80\x3f\0\0\x80\x3f\0\0\x80\xbf\0\0\0\x40\0\0\x80\x3f";
enum { GOLDEN = sizeof golden - 1 };

static lora_v1_writer *created(const struct adapter_tensors *list)
{
    lora_v1_writer *writer = NULL;
    SUCCEEDS(lora_v1_create(&writer, path, list));
    return writer;
}

static void write_example(void)
{
    lora_v1_writer *writer = created(&both);
    SUCCEEDS(lora_v1_write(writer, 0, b));
    SUCCEEDS(lora_v1_write(writer, 1, a));
    cr_assert_neq(access(path, F_OK), 0, "there before the commit");
    SUCCEEDS(lora_v1_commit(writer));
}

static lora_v1_file *matched(const struct adapter_tensors *list)
{
    lora_v1_file *file = NULL;
    SUCCEEDS(lora_v1_open(&file, path));
    SUCCEEDS(lora_v1_match(file, list));
    return file;
}

Test(lora_v1, golden)
{
    char bytes[256];
    cr_assert_eq((int)GOLDEN, 156);
    write_example();
    cr_assert_eq(get_file(path, bytes, sizeof bytes), (size_t)GOLDEN);
    EXPECT_BITS(bits_of(bytes, golden, GOLDEN, 1, 0), "the file");
    lora_v1_file *file = matched(&both);
    cr_assert_eq(lora_v1_count(file), 2);
    cr_assert_str_eq(lora_v1_name(file, 0), UP "lora_A");
    cr_assert_str_eq(lora_v1_name(file, 1), UP "lora_B");
    cr_assert_eq(lora_v1_rank(file), 2);
    lora_v1_close(file);
}

/* Queries, keys and values of 2 heads of size 1: rows (head, q|k|v) become [Q|K|V]. Every range of
 * what was written is read back. */
Test(lora_v1, rows_in_another_order)
{
    enum { ROWS = 6, RANK = 3, ELEMENTS = ROWS * RANK };
    static const int64_t order[ROWS] = {0, 2, 4, 1, 3, 5};
    static const struct adapter_tensor packed = {"x.lora_B.weight", {ROWS, RANK}, order};
    const struct adapter_tensors list = {&packed, 1};
    float values[ELEMENTS], got[ELEMENTS + 1], stored[ELEMENTS];
    int ranges = 0;
    for (int i = 0; i < ELEMENTS; i++)
        values[i] = (float)(mimo_mix64((uint64_t)i + 1) >> 40);
    lora_v1_writer *writer = created(&list);
    SUCCEEDS(lora_v1_write(writer, 0, values));
    SUCCEEDS(lora_v1_commit(writer));

    struct adapter_tensor plain = packed;
    plain.lora_rows = NULL;
    const struct adapter_tensors as_stored = {&plain, 1};
    lora_v1_file *file = matched(&as_stored);
    SUCCEEDS(lora_v1_read(file, 0, 0, ELEMENTS, stored));
    for (int row = 0; row < ROWS; row++)
        EXPECT_BITS(bits_of(stored + order[row] * RANK, values + row * RANK, RANK * 4, 4, 0),
                    "row %d", row);
    lora_v1_close(file);

    file = matched(&list);
    for (int first = 0; first <= ELEMENTS; first++)
        for (int count = 0; first + count <= ELEMENTS; count++, ranges++) {
            memset(got, 0xa5, sizeof got);
            SUCCEEDS(lora_v1_read(file, 0, first, count, got));
            EXPECT_BITS(bits_of(got, values + first, count * 4, 4, 0), "[%d, +%d)", first, count);
            uint32_t guard;
            memcpy(&guard, got + count, sizeof guard);
            cr_assert_eq(guard, 0xa5a5a5a5, "written past the end");
        }
    cr_assert_eq(ranges, 190);
    FAILS(lora_v1_read(file, 0, 17, 2, got), MIMO_ERR_ARGUMENT, "[17, +2) lie outside the 18");
    FAILS(lora_v1_read(file, 0, -1, 1, got), MIMO_ERR_ARGUMENT, "lie outside the 18");
    FAILS(lora_v1_read(file, 1, 0, 1, got), MIMO_ERR_ARGUMENT, "no tensor 1 among the 1");
    cr_assert_eq(truncate(path, 50), 0);
    FAILS(lora_v1_read(file, 0, 15, 3, got), MIMO_ERR_IO, path, "ends at byte", "are missing");
    lora_v1_close(file);
}

/* B before A. */
Test(lora_v1, tensors_in_another_order)
{
    enum { A_BYTES = 64, B_BYTES = GOLDEN - 12 - A_BYTES };
    char bytes[GOLDEN];
    float got[8];
    memcpy(bytes, golden, 12);
    memcpy(bytes + 12, golden + 12 + A_BYTES, B_BYTES);
    memcpy(bytes + 12 + B_BYTES, golden + 12, A_BYTES);
    put_file(path, bytes, GOLDEN);
    lora_v1_file *file = matched(&both);
    cr_assert_str_eq(lora_v1_name(file, 0), UP "lora_A");
    SUCCEEDS(lora_v1_read(file, 0, 0, 8, got));
    EXPECT_BITS(bits_of(got, b, sizeof b, sizeof *b, 2), "B");
    SUCCEEDS(lora_v1_read(file, 1, 0, 4, got));
    EXPECT_BITS(bits_of(got, a, sizeof a, sizeof *a, 2), "A");
    lora_v1_close(file);
}

static mimo_status open_bytes(const char *bytes, size_t size)
{
    lora_v1_file *file = NULL;
    put_file(path, bytes, size);
    mimo_status status = lora_v1_open(&file, path);
    cr_assert((file == NULL) == (status != MIMO_OK), "a failed call leaves its output");
    lora_v1_close(file);
    return status;
}

Test(lora_v1, damaged_numbers)
{
    static const struct {
        int at, bytes;
        uint64_t value;
        mimo_status status;
        const char *part;
    } cases[] = {
        {0, 4, 0x4C4F5240, MIMO_ERR_IO, "begins with 4c4f5240, and not with 4c4f5241"},
        {4, 4, 2, MIMO_ERR_IO, "version 2, and not 1"},
        {8, 4, 1, MIMO_ERR_IO, "the tensors end at byte 76, the file has 156"},
        {8, 4, 3, MIMO_ERR_IO, "cut short at byte 156: 4 are needed"},
        {8, 4, 0xffffffff, MIMO_ERR_IO, "byte 8 promises 4294967295 tensors, 144 bytes follow"},
        {12, 4, 0, MIMO_ERR_IO, "byte 12 promises a name of 0 bytes"},
        {12, 4, 141, MIMO_ERR_IO, "byte 12 promises a name of 141 bytes, 140 follow"},
        {16, 1, 0xff, MIMO_ERR_IO, "the name at byte 16 is not printable"},
        {39, 1, 'C', MIMO_ERR_IO, "up.lora_C is no factor"},
        {40, 4, 3, MIMO_ERR_IO, "byte 40: tensor " UP "lora_A has 3 dimensions, and not 2"},
        {44, 8, 0, MIMO_ERR_IO, "byte 44: tensor " UP "lora_A has size 0 in dimension 0"},
        {52, 8, UINT64_MAX, MIMO_ERR_IO, "byte 52: tensor " UP "lora_A has size -1 in dimension 1"},
        {44, 8, 13, MIMO_ERR_IO, "lora_A has the shape [13, 2], 96 bytes follow"},
        {44, 8, 157, MIMO_ERR_IO, "has size 157"},
        {103, 1, 'A', MIMO_ERR_SHAPE, "the shape [4, 2], of rank 4, and those before have rank 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char bytes[GOLDEN];
        memcpy(bytes, golden, GOLDEN);
        put_little_endian((unsigned char *)bytes + cases[i].at, cases[i].value, cases[i].bytes);
        FAILS(open_bytes(bytes, GOLDEN), cases[i].status, cases[i].part, path);
    }
}

Test(lora_v1, damaged_lengths)
{
    char bytes[GOLDEN + 1] = {0};
    memcpy(bytes, golden, GOLDEN);
    for (size_t size = 0; size < GOLDEN; size++)
        FAILS(open_bytes(golden, size), MIMO_ERR_IO, path);
    FAILS(open_bytes(bytes, GOLDEN + 1), MIMO_ERR_IO, "end at byte 156, the file has 157");

    static const char twice[] = "\x41\x52\x4f\x4c\1\0\0\0\2\0\0\0"
                                "\7\0\0\0.lora_A\2\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0"
                                "\7\0\0\0.lora_A\2\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0";
    FAILS(open_bytes(twice, sizeof twice - 1), MIMO_ERR_EXISTS,
          "two tensors are named \".lora_A\"");
    memcpy(bytes, golden, GOLDEN);
    put_little_endian((unsigned char *)bytes + 44, 1, 8); /* A of 1 x 4 and B of 8 x 1 are sound */
    put_little_endian((unsigned char *)bytes + 52, 4, 8);
    put_little_endian((unsigned char *)bytes + 108, 8, 8);
    put_little_endian((unsigned char *)bytes + 116, 1, 8);
    SUCCEEDS(open_bytes(bytes, GOLDEN));

    static const char tall[] = "\x41\x52\x4f\x4c\1\0\0\0\1\0\0\0"
                               "\7\0\0\0.lora_A\2\0\0\0\1\4\0\0\0\0\0\0\1\0\0\0\0\0\0\0";
    static char rank_1025[sizeof tall - 1 + 1025 * sizeof(float)];
    memcpy(rank_1025, tall, sizeof tall - 1);
    FAILS(open_bytes(rank_1025, sizeof rank_1025), MIMO_ERR_IO, "has rank 1025, at most 1024");

    static const char empty[] = "\x41\x52\x4f\x4c\1\0\0\0\0\0\0\0";
    put_file(path, empty, sizeof empty - 1);
    const struct adapter_tensors none = {NULL, 0};
    lora_v1_file *file = matched(&none);
    cr_assert(lora_v1_count(file) == 0 && lora_v1_rank(file) == 0);
    lora_v1_close(file);
    file = NULL;
    unlink(path);
    FAILS(lora_v1_open(&file, path), MIMO_ERR_NOT_FOUND, path);
    FAILS(lora_v1_open(&file, folder), MIMO_ERR_IO, folder, "is no ordinary file");
    cr_assert_null(file);
}

Test(lora_v1, tensors_of_another_model)
{
    static const int64_t taken[] = {0, 1, 1, 3}, outside[] = {0, 1, 2, 4};
    static const struct {
        struct adapter_tensor list[3];
        int count;
        mimo_status status;
        const char *part;
    } cases[] = {
        {{{UP "lora_A.weight", {2, 2}, NULL}},
         1,
         MIMO_ERR_IO,
         " has a tensor " UP "lora_B that this model has no layer for"},
        {{{UP "lora_A.weight", {2, 2}, NULL},
          {UP "lora_B.weight", {4, 2}, NULL},
          {UP "lora_C.weight", {4, 2}, NULL}},
         3,
         MIMO_ERR_IO,
         " has no tensor " UP "lora_C.weight"},
        {{{UP "lora_A", {2, 2}, NULL}}, 1, MIMO_ERR_IO, " has no tensor " UP "lora_A"},
        {{{UP "lora_.weight", {2, 2}, NULL}}, 1, MIMO_ERR_IO, " has no tensor " UP "lora_.weight"},
        {{{UP "lora_A.weight", {2, 3}, NULL}},
         1,
         MIMO_ERR_SHAPE,
         "lora_A has the shape [2, 2], and not that of the model, [2, 3]"},
        {{{UP "lora_B.weight", {5, 2}, NULL}},
         1,
         MIMO_ERR_SHAPE,
         "lora_B has the shape [4, 2], and not that of the model, [5, 2]"},
        {{{UP "lora_B.weight", {4, 2}, taken}},
         1,
         MIMO_ERR_ARGUMENT,
         "row 2 of tensor " UP "lora_B.weight goes to row 1, which is outside of its 4 or taken"},
        {{{UP "lora_B.weight", {4, 2}, outside}}, 1, MIMO_ERR_ARGUMENT, "row 3 of tensor"},
    };
    lora_v1_file *file = NULL;
    float got;
    put_file(path, golden, GOLDEN);
    SUCCEEDS(lora_v1_open(&file, path));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct adapter_tensors list = {cases[i].list, cases[i].count};
        FAILS(lora_v1_match(file, &list), cases[i].status, cases[i].part);
        FAILS(lora_v1_read(file, 0, 0, 1, &got), MIMO_ERR_ARGUMENT, "no tensor 0 among the 0");
    }
    SUCCEEDS(lora_v1_match(file, &both));
    SUCCEEDS(lora_v1_read(file, 0, 5, 1, &got));
    cr_assert_eq(got, -1);
    lora_v1_close(file);
}

Test(lora_v1, contents_that_no_file_can_have)
{
    static const int64_t taken[] = {0, 0};
    static const struct {
        struct adapter_tensor list[2];
        int count;
        mimo_status status;
        const char *part;
    } cases[] = {
        {{{"x.lora_A", {2, 2}, NULL}}, 1, MIMO_ERR_ARGUMENT, "no place for tensor x.lora_A:"},
        {{{"x.weight", {2, 2}, NULL}}, 1, MIMO_ERR_ARGUMENT, "no place for tensor x.weight:"},
        {{{"x.lora_A.weight", {0, 2}, NULL}}, 1, MIMO_ERR_ARGUMENT, "the shape [0, 2]"},
        {{{"x.lora_A.weight", {2, -1}, NULL}}, 1, MIMO_ERR_ARGUMENT, "the shape [2, -1]"},
        {{{"x.lora_A.weight", {INT64_MAX / 2, 3}, NULL}}, 1, MIMO_ERR_OVERFLOW, "does not fit"},
        {{{"x.lora_B.weight", {2, 2}, taken}}, 1, MIMO_ERR_ARGUMENT, "row 1 of tensor x.lora_B"},
        {{{"x.lora_A.weight", {2, 2}, NULL}, {"x.lora_A.weight", {2, 2}, NULL}},
         2,
         MIMO_ERR_EXISTS,
         "two tensors are named"},
    };
    lora_v1_writer *writer = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct adapter_tensors list = {cases[i].list, cases[i].count};
        FAILS(lora_v1_create(&writer, path, &list), cases[i].status, cases[i].part);
        cr_assert_null(writer);
    }
    const struct adapter_tensors endless = {factors, INT64_C(1) << 32};
    FAILS(lora_v1_create(&writer, path, &endless), MIMO_ERR_OVERFLOW, "4294967296 tensors");
    char nowhere[96];
    snprintf(nowhere, sizeof nowhere, "%s/no/x.lora", folder);
    FAILS(lora_v1_create(&writer, nowhere, &both), MIMO_ERR_IO, nowhere);
    writer = created(&both);
    FAILS(lora_v1_write(writer, 2, a), MIMO_ERR_ARGUMENT, "no tensor 2 among the 2");
    FAILS(lora_v1_write(writer, -1, a), MIMO_ERR_ARGUMENT, "no tensor -1 among the 2");
    SUCCEEDS(lora_v1_write(writer, 0, b));
    FAILS(lora_v1_commit(writer), MIMO_ERR_STATE, "tensor 1 of", "was not written");
    cr_assert_neq(access(path, F_OK), 0, "something is left behind");
    SUCCEEDS(lora_v1_commit(NULL));
    lora_v1_discard(NULL);
    lora_v1_close(NULL);
}
