/* An adapter's folder: the bytes that Python's safetensors writes, every range read back, 16-bit
 * tensors widened exactly, and every file that is not the model's refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/formats/adapter_file.h"
#include "train/formats/adapter_pair.h"
#include "train/formats/safetensors.h"
#include "train/support/train_memory.h"
#include "train/support/little_endian.h"
#include "core/float16.h"
#include "own_folder.h"
#include "same_bits.h"

static char top[] = "/tmp/captioner-adapter-XXXXXX";
static char folder[64], tensors_path[128], config_path[128];

static void make_top(void)
{
    cr_assert(mkdtemp(top));
    snprintf(folder, sizeof folder, "%s/a/b", top);
    snprintf(tensors_path, sizeof tensors_path, "%s/adapter_model.safetensors", folder);
    snprintf(config_path, sizeof config_path, "%s/adapter_config.json", folder);
}

static void remove_top(void)
{
    char above[64];
    unlink(tensors_path);
    unlink(config_path);
    rmdir(folder);
    snprintf(above, sizeof above, "%s/a", top);
    rmdir(above);
    cr_assert_eq(rmdir(top), 0, "something was left behind in %s", top);
}

TestSuite(adapter_file, .init = make_top, .fini = remove_top);

/* A column-parallel layer with r = 2 (docs/concepts.md, "LoRA"). B comes first: the file sorts. */
#define UP "llm.block0.mlp.up."
#define PREFIX "base_model.model."
static const struct adapter_tensor factors[] = {{UP "lora_B.weight", {4, 2}, NULL},
                                                {UP "lora_A.weight", {2, 2}, NULL}};
static const struct adapter_tensors both = {factors, 2};
static const float a[] = {1, 2, 0, 1}, b[] = {1, 0, 0, 1, 1, -1, 2, 1};
static const char *const up[] = {"up"};
static const struct adapter_config config = {2, 4, false, up, 1, "", ""};

static const char golden_header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"" PREFIX UP "lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
    "\"" PREFIX UP "lora_B.weight\":{\"dtype\":\"F32\",\"shape\":[4,2],\"data_offsets\":[16,48]}}";

/* Of a configuration with the hash of the tensors alone. */
enum {
    HASH_BYTES = sizeof "  \"mimo_bridge\": {\n    \"tensors\": \"0123456789abcdef\"\n  },\n" - 1
};

static adapter_writer *created(void)
{
    adapter_writer *writer = NULL;
    SUCCEEDS(adapter_create(&writer, folder, &config, &both));
    return writer;
}

static void write_example(void)
{
    adapter_writer *writer = created();
    SUCCEEDS(adapter_write(writer, 0, b));
    SUCCEEDS(adapter_write(writer, 1, a));
    cr_assert(access(tensors_path, F_OK) != 0 && access(config_path, F_OK) != 0,
              "there before the commit");
    SUCCEEDS(adapter_commit(writer));
}

Test(adapter_file, golden)
{
    unsigned char bytes[1024];
    write_example();
    size_t length = strlen(golden_header);
    cr_assert_eq(get_file(tensors_path, bytes, sizeof bytes), 296);
    cr_assert_eq(get_little_endian(bytes, 8), 240);
    EXPECT_BITS(bits_of(bytes + 8, golden_header, (int64_t)length, 1, 0), "the header");
    cr_assert_eq(strspn((const char *)bytes + 8 + length, " "), 240 - length);
    EXPECT_BITS(bits_of(bytes + 248, a, sizeof a, sizeof *a, 2), "A");
    EXPECT_BITS(bits_of(bytes + 264, b, sizeof b, sizeof *b, 2), "B");
    char *text = NULL;
    struct adapter_config hashed = config;
    strcpy(hashed.tensors, "cbebee0570cc0726");
    SUCCEEDS(adapter_config_text(&text, &hashed));
    cr_assert_eq(get_file(config_path, bytes, sizeof bytes), 409 + HASH_BYTES);
    EXPECT_BITS(bits_of(bytes, text, 409 + HASH_BYTES, 1, 0), "the configuration");
    memory_release(text);
}

Test(adapter_file, replaces_what_was_there)
{
    adapter_writer *writer = created();
    adapter_discard(writer);
    cr_assert_neq(access(folder, F_OK), 0, "a folder is left behind");
    write_example();
    struct adapter_config later = config;
    const struct adapter_tensors one = {factors + 1, 1};
    struct adapter_config *read = NULL;
    adapter_file *file = NULL;
    later.alpha = 8;
    SUCCEEDS(adapter_create(&writer, folder, &later, &one));
    SUCCEEDS(adapter_write(writer, 0, a));
    adapter_discard(writer); /* and leaves the first */
    SUCCEEDS(adapter_open(&file, folder, &config, &both));
    adapter_close(file);
    SUCCEEDS(adapter_create(&writer, folder, &later, &one));
    SUCCEEDS(adapter_write(writer, 0, a));
    SUCCEEDS(adapter_commit(writer));
    SUCCEEDS(adapter_open(&file, folder, &config, &one));
    adapter_close(file);
    SUCCEEDS(adapter_read_config(&read, NULL, folder));
    cr_assert_eq(read->alpha, 8);
    memory_release(read);
}

/* The example, and over it a second save, of other tensors and alpha 400. Returns the bytes of the
 * first one's configuration. */
static size_t save_twice(unsigned char *first, size_t room)
{
    static const float other[] = {1, 2, 0, 1, 1, -1, 2, 3};
    adapter_writer *writer = NULL;
    struct adapter_config changed = config;
    changed.alpha = 400;
    write_example();
    size_t size = get_file(config_path, first, room);
    SUCCEEDS(adapter_create(&writer, folder, &changed, &both));
    SUCCEEDS(adapter_write(writer, 1, a));
    SUCCEEDS(adapter_write(writer, 0, other));
    SUCCEEDS(adapter_commit(writer));
    return size;
}

/* A process that dies between the two files leaves the new tensors with the old configuration. */
Test(adapter_file, a_torn_adapter)
{
    unsigned char old[1024], later[1024];
    adapter_file *file = NULL;
    struct adapter_config *read = NULL;
    size_t size = save_twice(old, sizeof old);
    size_t later_size = get_file(config_path, later, sizeof later);
    put_file(config_path, old, size);
    SUCCEEDS(adapter_read_config(&read, NULL, folder));
    FAILS(adapter_open(&file, folder, read, &both), MIMO_ERR_IO, folder, "are not of one adapter",
          read->tensors);
    cr_assert_null(file);
    read->tensors[0] = '\0'; /* as other programs write it */
    SUCCEEDS(adapter_open(&file, folder, read, &both));
    adapter_close(file);
    memory_release(read);
    put_file(config_path, later, later_size);
    SUCCEEDS(adapter_read_config(&read, NULL, folder));
    cr_assert_eq(read->alpha, 400);
    SUCCEEDS(adapter_open(&file, folder, read, &both));
    adapter_close(file);
    memory_release(read);
}

/* A folder as a process leaves it that died between the two renames of its second save: the tensors
 * of that one, and its configuration, with alpha 400, under the name of an unfinished file. */
static void tear(const char *unfinished)
{
    unsigned char old[1024];
    size_t size = save_twice(old, sizeof old);
    cr_assert_eq(rename(config_path, unfinished), 0);
    put_file(config_path, old, size);
}

static void expect_pair(double alpha)
{
    adapter_file *file = NULL;
    struct adapter_config *read = NULL;
    SUCCEEDS(adapter_read_config(&read, NULL, folder));
    cr_assert_eq(read->alpha, alpha, "alpha %g", read->alpha);
    SUCCEEDS(adapter_open(&file, folder, read, &both));
    adapter_close(file);
    memory_release(read);
}

/* What the dead process left is whole: it is read, and the next save does not remove the missing
 * half, even where it comes to nothing. */
Test(adapter_file, a_save_that_died_between_its_files)
{
    static const char stray[] = "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 9, "
                                "\"target_modules\": [\"up\"]}";
    char unfinished[192], other[192];
    adapter_writer *writer = NULL;
    snprintf(unfinished, sizeof unfinished, "%s.unfinished-1-0", config_path);
    snprintf(other, sizeof other, "%s.unfinished-1-1", config_path);
    tear(unfinished);
    put_file(other, stray, sizeof stray - 1); /* of another death */
    expect_pair(400);
    cr_assert_eq(access(unfinished, F_OK), 0, "reading changes nothing");
    unlink(config_path); /* as after the first save ever */
    expect_pair(400);
    SUCCEEDS(adapter_create(&writer, folder, &config, &both));
    adapter_discard(writer);
    expect_pair(400);
    cr_assert_eq(access(config_path, F_OK), 0, "the configuration has no name");
    cr_assert_neq(access(unfinished, F_OK), 0, "it is there twice");
    cr_assert_neq(access(other, F_OK), 0, "that of another death stays");
}

/* A configuration that cannot be put in its place stays beside it: its tensors are there. */
Test(adapter_file, a_configuration_that_cannot_be_renamed)
{
    char unfinished[192];
    adapter_writer *writer = created();
    SUCCEEDS(adapter_write(writer, 0, b));
    SUCCEEDS(adapter_write(writer, 1, a));
    cr_assert_eq(mkdir(config_path, 0777), 0);
    FAILS(adapter_commit(writer), MIMO_ERR_IO, "the adapter in ", folder, "is whole", config_path);
    cr_assert_eq(rmdir(config_path), 0);
    expect_pair(4);
    SUCCEEDS(adapter_pair_complete(folder));
    expect_pair(4);
    snprintf(unfinished, sizeof unfinished, "%s.unfinished-%ld-0", config_path, (long)getpid());
    cr_assert_neq(access(unfinished, F_OK), 0, "it is there twice");
}

Test(adapter_file, every_range)
{
    adapter_file *file = NULL;
    float got[10];
    int ranges = 0;
    write_example();
    SUCCEEDS(adapter_open(&file, folder, &config, &both));
    for (int first = 0; first <= 8; first++)
        for (int count = 0; first + count <= 8; count++, ranges++) {
            memset(got, 0xa5, sizeof got);
            SUCCEEDS(adapter_read(file, 0, first, count, got));
            EXPECT_BITS(bits_of(got, b + first, count * 4, 4, 0), "[%d, +%d)", first, count);
            uint32_t guard;
            memcpy(&guard, got + count, sizeof guard);
            cr_assert_eq(guard, 0xa5a5a5a5, "written past the end");
        }
    cr_assert_eq(ranges, 45);
    SUCCEEDS(adapter_read(file, 1, 1, 3, got));
    EXPECT_BITS(bits_of(got, a + 1, 12, 4, 0), "A from 1");
    FAILS(adapter_read(file, 0, 7, 2, got), MIMO_ERR_ARGUMENT, "[7, +2) lie outside the 8");
    FAILS(adapter_read(file, 0, -1, 2, got), MIMO_ERR_ARGUMENT, "[-1, +2) lie outside the 8");
    FAILS(adapter_read(file, 2, 0, 1, got), MIMO_ERR_ARGUMENT, "no tensor 2 among the 2");
    FAILS(adapter_read(file, -1, 0, 1, got), MIMO_ERR_ARGUMENT, "no tensor -1 among the 2");
    adapter_close(file);
}

/* Put a file of these tensors in the folder. All bits are 0. */
static void save_list(const struct safetensors_tensor *list, int64_t count)
{
    const struct safetensors_content content = {list, count, NULL, 0};
    safetensors_writer *writer = NULL;
    unsigned char *zeros = NULL;
    char above[64];
    snprintf(above, sizeof above, "%s/a", top);
    mkdir(above, 0777);
    mkdir(folder, 0777);
    SUCCEEDS(safetensors_create(&writer, tensors_path, &content));
    for (int64_t t = 0; t < count; t++) {
        int64_t elements = 1;
        for (int d = 0; d < list[t].ndim; d++)
            elements *= list[t].shape[d];
        SUCCEEDS(memory_reserve(&zeros, elements, 8));
        SUCCEEDS(safetensors_write(writer, t, 0, elements, zeros));
        memory_release(zeros);
    }
    SUCCEEDS(safetensors_commit(writer));
}

/* All values of 16 bits, as an A and a B of rank 8 that end amid a block of the reader. */
Test(adapter_file, sixteen_bits_are_widened_exactly)
{
    enum { COUNT = 65536, RANK = 8 };
    static const int64_t shape[] = {COUNT / RANK, RANK};
    static const struct adapter_tensor wanted[] = {{"x.lora_B.weight", {COUNT / RANK, RANK}, NULL},
                                                   {"y.lora_B.weight", {COUNT / RANK, RANK}, NULL}};
    static const struct safetensors_tensor list[] = {{PREFIX "x.lora_B.weight", MIMO_F16, 2, shape},
                                                     {"y.lora_B.weight", MIMO_BF16, 2, shape}};
    static uint16_t halves[COUNT];
    static float got[COUNT];
    save_list(list, 2);
    const struct safetensors_content content = {list, 2, NULL, 0};
    safetensors_writer *writer = NULL;
    for (int i = 0; i < COUNT; i++)
        halves[i] = (uint16_t)i;
    SUCCEEDS(safetensors_create(&writer, tensors_path, &content));
    SUCCEEDS(safetensors_write(writer, 0, 0, COUNT, halves));
    SUCCEEDS(safetensors_write(writer, 1, 0, COUNT, halves));
    SUCCEEDS(safetensors_commit(writer));
    adapter_file *file = NULL;
    const struct adapter_tensors two = {wanted, 2};
    SUCCEEDS(adapter_open_tensors(&file, tensors_path, RANK, &two));
    for (int t = 0; t < 2; t++)
        for (int first = 0; first < 8; first += 7) {
            memset(got, 0xa5, sizeof got);
            SUCCEEDS(adapter_read(file, t, first, COUNT - first, got));
            for (int i = first; i < COUNT; i++) {
                float want = t == 0 ? mimo_f16_to((uint16_t)i) : mimo_bf16_to((uint16_t)i);
                float value = got[i - first];
                cr_assert(isnan(want) ? isnan(value) : memcmp(&want, &value, 4) == 0,
                          "%04x: %a, not %a", (unsigned)i, (double)value, (double)want);
            }
        }
    FAILS(adapter_read(file, 0, COUNT, 1, got), MIMO_ERR_ARGUMENT, "lie outside the 65536");
    FAILS(adapter_read(file, 0, 0, -1, got), MIMO_ERR_ARGUMENT, "[0, +-1) lie outside the 65536");
    adapter_close(file);
}

#define A_NAME PREFIX UP "lora_A.weight"
#define B_NAME PREFIX UP "lora_B.weight"
static const int64_t shape_a[] = {2, 2}, shape_b[] = {4, 2};
#define SOUND_A                      \
    {                                \
        A_NAME, MIMO_F32, 2, shape_a \
    }
#define SOUND_B                       \
    {                                 \
        B_NAME, MIMO_BF16, 2, shape_b \
    }

static mimo_status open_list(const struct safetensors_tensor *list, int64_t count)
{
    adapter_file *file = NULL;
    save_list(list, count);
    mimo_status status = adapter_open(&file, folder, &config, &both);
    cr_assert((file == NULL) == (status != MIMO_OK), "a failed call leaves its output");
    adapter_close(file);
    return status;
}

Test(adapter_file, tensors_of_another_model)
{
    static const int64_t three[] = {3, 2}, wide[] = {2, 3}, vector[] = {4}, cube[] = {2, 2, 1};
    static const int64_t tall[] = {5, 2};
    static const struct {
        struct safetensors_tensor list[3];
        mimo_status status;
        const char *part;
        int count;
    } cases[] = {
        {{SOUND_A, SOUND_B}, MIMO_OK, "", 2},
        {{{UP "lora_A.weight", MIMO_F16, 2, shape_a}, SOUND_B}, MIMO_OK, "", 2},
        {{SOUND_A}, MIMO_ERR_IO, " has no tensor " UP "lora_B.weight", 1},
        {{SOUND_A, {PREFIX UP "lora_B.default.weight", MIMO_F32, 2, shape_b}},
         MIMO_ERR_IO,
         " has no tensor " UP "lora_B.weight",
         2},
        {{SOUND_A, SOUND_B, {PREFIX "x", MIMO_F32, 2, shape_a}},
         MIMO_ERR_IO,
         " has a tensor " PREFIX "x that this model has no layer for",
         3},
        {{SOUND_A, SOUND_B, {UP "lora_A.weight", MIMO_F32, 2, shape_a}},
         MIMO_ERR_EXISTS,
         " has the tensor " UP "lora_A.weight twice, with \"" PREFIX "\" and without",
         3},
        {{{A_NAME, MIMO_F32, 2, three}, SOUND_B},
         MIMO_ERR_SHAPE,
         A_NAME " has the shape [3, 2], of rank 3, but its configuration says r 2",
         2},
        {{SOUND_A, {B_NAME, MIMO_F32, 2, wide}},
         MIMO_ERR_SHAPE,
         B_NAME " has the shape [2, 3], of rank 3, but its configuration says r 2",
         2},
        {{{A_NAME, MIMO_F32, 2, wide}, SOUND_B},
         MIMO_ERR_SHAPE,
         A_NAME " has the shape [2, 3], and not that of the model, [2, 2]",
         2},
        {{SOUND_A, {B_NAME, MIMO_F32, 2, tall}},
         MIMO_ERR_SHAPE,
         B_NAME " has the shape [5, 2], and not that of the model, [4, 2]",
         2},
        {{{A_NAME, MIMO_F32, 1, vector}, SOUND_B},
         MIMO_ERR_IO,
         A_NAME " has 1 dimensions, and not 2",
         2},
        {{{A_NAME, MIMO_F32, 3, cube}, SOUND_B},
         MIMO_ERR_IO,
         A_NAME " has 3 dimensions, and not 2",
         2},
        {{{A_NAME, MIMO_F32, 0, NULL}, SOUND_B}, MIMO_ERR_IO, "has 0 dimensions", 2},
        {{{A_NAME, MIMO_F64, 2, shape_a}, SOUND_B},
         MIMO_ERR_UNSUPPORTED,
         A_NAME " is F64, and neither F32 nor F16 nor BF16",
         2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mimo_status status = open_list(cases[i].list, cases[i].count);
        cr_assert_eq(status, cases[i].status, "%zu: %s", i, mimo_last_error());
        if (status != MIMO_OK)
            cr_assert(strstr(mimo_last_error(), cases[i].part) &&
                          strstr(mimo_last_error(), tensors_path),
                      "%s: %s", cases[i].part, mimo_last_error());
    }
}

/* What safetensors_open says of a damaged file passes through. */
/* PEFT's "all-linear" gives routers adapters. They are taken while they do nothing. */
Test(adapter_file, factors_of_routers)
{
#define ROUTER PREFIX "llm.block1.mlp.router."
    static const int64_t four[] = {2, 2}, many[] = {700, 2}, vector[] = {4};
    static const struct {
        struct safetensors_tensor a, b;
        uint32_t last; /* bits of the last element of b */
        mimo_status status;
        const char *part;
    } cases[] = {
        {{ROUTER "lora_A.weight", MIMO_F32, 2, four},
         {ROUTER "lora_B.weight", MIMO_F32, 2, many},
         0x80000000,
         MIMO_OK,
         ""},
        {{ROUTER "lora_A.weight", MIMO_F32, 2, four},
         {ROUTER "lora_B.weight", MIMO_F32, 2, many},
         0x3f800000,
         MIMO_ERR_UNSUPPORTED,
         "element 1399 of tensor " ROUTER "lora_B.weight is 1, and routers have no adapters here"},
        {{ROUTER "lora_A.weight", MIMO_F32, 2, four},
         {ROUTER "lora_B.weight", MIMO_F32, 1, vector},
         0,
         MIMO_ERR_IO,
         "router.lora_B.weight has 1 dimensions"},
        {{ROUTER "lora_A.weight", MIMO_F32, 2, four},
         {ROUTER "lora_B.bias", MIMO_F32, 2, many},
         0,
         MIMO_ERR_IO,
         "router.lora_B.bias that this model has no layer for"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct safetensors_tensor list[] = {SOUND_A, SOUND_B, cases[i].a, cases[i].b};
        const struct safetensors_content content = {list, 4, NULL, 0};
        static const uint32_t zeros[1400];
        safetensors_writer *writer = NULL;
        adapter_file *file = NULL;
        save_list(list, 2); /* makes the folder */
        SUCCEEDS(safetensors_create(&writer, tensors_path, &content));
        for (int t = 0; t < 4; t++) {
            int64_t count = list[t].shape[0] * (list[t].ndim > 1 ? list[t].shape[1] : 1);
            SUCCEEDS(safetensors_write(writer, t, 0, count - 1, zeros));
            SUCCEEDS(safetensors_write(writer, t, count - 1, 1, t == 3 ? &cases[i].last : zeros));
        }
        SUCCEEDS(safetensors_commit(writer));
        mimo_status status = adapter_open(&file, folder, &config, &both);
        cr_assert_eq(status, cases[i].status, "%zu: %s", i, mimo_last_error());
        cr_assert(status == MIMO_OK || strstr(mimo_last_error(), cases[i].part), "%s",
                  mimo_last_error());
        adapter_close(file);
    }
#undef ROUTER
}

Test(adapter_file, damaged_or_missing)
{
    adapter_file *file = NULL;
    struct adapter_config *read = NULL;
    FAILS(adapter_open(&file, folder, &config, &both), MIMO_ERR_NOT_FOUND, tensors_path);
    FAILS(adapter_read_config(&read, NULL, folder), MIMO_ERR_NOT_FOUND, config_path);
    FAILS(adapter_open(&file, "", &config, &both), MIMO_ERR_ARGUMENT, "has no name");
    FAILS(adapter_read_config(&read, NULL, ""), MIMO_ERR_ARGUMENT, "has no name");
    write_example();
    for (int size = 295; size >= 0; size--) {
        cr_assert_eq(truncate(tensors_path, size), 0);
        FAILS(adapter_open(&file, folder, &config, &both), MIMO_ERR_IO, tensors_path);
    }
    cr_assert_null(file);
    cr_assert_null(read);
}

Test(adapter_file, adapters_that_no_file_can_have)
{
    static const struct adapter_tensor twice[] = {{UP "lora_A.weight", {2, 2}, NULL},
                                                  {UP "lora_A.weight", {2, 2}, NULL}};
    static const struct adapter_tensor negative = {"x.lora_B.weight", {-4, 2}, NULL};
    static const struct adapter_tensor huge = {"x", {INT64_MAX / 2, 3}, NULL};
    static const struct adapter_tensor of_rank_4 = {"x.lora_A.weight", {4, 2}, NULL};
    const struct {
        struct adapter_tensors list;
        mimo_status status;
        const char *part;
    } cases[] = {
        {{twice, 2}, MIMO_ERR_EXISTS, "two tensors are named"},
        {{&negative, 1}, MIMO_ERR_ARGUMENT, "has size -4"},
        {{&huge, 1}, MIMO_ERR_OVERFLOW, "does not fit"},
        {{&of_rank_4, 1}, MIMO_ERR_ARGUMENT, "shape [4, 2], which is not of rank 2"},
    };
    adapter_writer *writer = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        FAILS(adapter_create(&writer, folder, &config, &cases[i].list), cases[i].status,
              cases[i].part);
    struct adapter_config wrong = config;
    wrong.alpha = NAN;
    FAILS(adapter_create(&writer, folder, &wrong, &both), MIMO_ERR_ARGUMENT, "alpha nan");
    FAILS(adapter_create(&writer, "", &config, &both), MIMO_ERR_ARGUMENT, "has no name");
    cr_assert_null(writer);
    cr_assert_neq(access(folder, F_OK), 0, "a folder is left behind");
}

Test(adapter_file, places_that_cannot_be_written)
{
    adapter_writer *writer = NULL;
    write_example();
    FAILS(adapter_create(&writer, tensors_path, &config, &both), MIMO_ERR_IO,
          "cannot make the folder", tensors_path);
    unlink(config_path);
    cr_assert_eq(mkdir(config_path, 0777), 0);
    FAILS(adapter_create(&writer, folder, &config, &both), MIMO_ERR_IO, config_path,
          "is no regular file");
    rmdir(config_path);
    unlink(tensors_path);
    cr_assert_eq(mkdir(tensors_path, 0777), 0);
    FAILS(adapter_create(&writer, folder, &config, &both), MIMO_ERR_IO, tensors_path,
          "is no regular file");
    rmdir(tensors_path);
    cr_assert_null(writer);
}

Test(adapter_file, a_tensor_that_was_not_written)
{
    adapter_writer *writer = created();
    FAILS(adapter_write(writer, 2, a), MIMO_ERR_ARGUMENT, "no tensor 2 among the 2", folder);
    FAILS(adapter_write(writer, -1, a), MIMO_ERR_ARGUMENT, "no tensor -1 among the 2");
    SUCCEEDS(adapter_write(writer, 1, a));
    FAILS(adapter_commit(writer), MIMO_ERR_STATE, UP "lora_B.weight", "got 0 of its 32 bytes");
    cr_assert_neq(access(folder, F_OK), 0, "something is left behind");
    SUCCEEDS(adapter_commit(NULL));
    adapter_discard(NULL);
    adapter_close(NULL);
}

Test(adapter_file, an_adapter_without_tensors)
{
    const struct adapter_tensors none = {NULL, 0};
    adapter_writer *writer = NULL;
    adapter_file *file = NULL;
    SUCCEEDS(adapter_create(&writer, folder, &config, &none));
    SUCCEEDS(adapter_commit(writer));
    SUCCEEDS(adapter_open(&file, folder, &config, &none));
    adapter_close(file);
}
