/* The readers of adapters. A configuration that is understood can be written, and is then
 * understood as the same. A file of tensors that is the model's can be read to its last element.
 * Anything else is refused with a sentence. The first byte chooses the reader, and whether the
 * others are a whole file; or a byte that says where a sound file is cut, and edits of it, each an
 * offset and a byte. */
#include <inttypes.h>
#include <unistd.h>

#include "train/formats/adapter_file.h"
#include "train/formats/lora_v1_file.h"
#include "train/support/train_memory.h"
#include "train/support/little_endian.h"
#include "fuzz_input.h"

#define UP "llm.block0.mlp.up."
static const int64_t rows[] = {2, 0, 3, 1};
static const struct adapter_tensor factors[] = {{UP "lora_A.weight", {2, 2}, NULL},
                                                {UP "lora_B.weight", {4, 2}, rows}};
enum { TENSORS = 2, ELEMENTS = 8, MOST_BYTES = 1024 };
static const struct adapter_tensors model = {factors, TENSORS};

/* Sound files, without their elements. */
static const char sound_header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"base_model.model." UP "lora_A.weight\":"
    "{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
    "\"" UP "lora_B.weight\":{\"dtype\":\"BF16\",\"shape\":[4,2],\"data_offsets\":[16,32]}}";
static const char sound_config[] =
    "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4.5,\"target_modules\":[\"up\",\"down\"],"
    "\"use_rslora\":false,\"bias\":\"none\",\"rank_pattern\":{},\"modules_to_save\":null}";

static void expect_sentence(mimo_status status)
{
    FUZZ_EXPECT(status == MIMO_OK || *mimo_last_error(), "a failure without a sentence");
}

static bool try_config(const uint8_t *data, size_t size)
{
    struct adapter_config *config = NULL, *again = NULL;
    char *text = NULL, *twice = NULL;
    mimo_status status = adapter_config_parse(&config, (const char *)data, (int64_t)size, "x");
    expect_sentence(status);
    FUZZ_EXPECT((config == NULL) == (status != MIMO_OK), "a failure with a configuration");
    if (config) {
        FUZZ_EXPECT(adapter_config_text(&text, config) == MIMO_OK, "not written");
        FUZZ_EXPECT(adapter_config_parse(&again, text, (int64_t)strlen(text), "y") == MIMO_OK,
                    "not understood again");
        FUZZ_EXPECT(adapter_config_text(&twice, again) == MIMO_OK, "not written again");
        FUZZ_EXPECT(strcmp(text, twice) == 0 && again->alpha == config->alpha, "'%s', then '%s'",
                    text, twice);
    }
    memory_release(config);
    memory_release(again);
    memory_release(text);
    memory_release(twice);
    return status == MIMO_OK;
}

static bool try_tensors(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH];
    float values[ELEMENTS + 1];
    adapter_file *file = NULL;
    int fd = fuzz_file(path, data, size);
    mimo_status status = adapter_open_tensors(&file, path, 2, &model);
    expect_sentence(status);
    for (int i = 0; file && i < TENSORS; i++) {
        int64_t elements = factors[i].shape[0] * factors[i].shape[1];
        FUZZ_EXPECT(adapter_read(file, i, 0, elements, values) == MIMO_OK, "%d is not read", i);
        FUZZ_EXPECT(adapter_read(file, i, elements, 1, values) == MIMO_ERR_ARGUMENT,
                    "%d has an element past its end", i);
    }
    adapter_close(file);
    close(fd);
    return status == MIMO_OK;
}

static bool try_lora(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH];
    float values[ELEMENTS + 1];
    lora_v1_file *file = NULL;
    int fd = fuzz_file(path, data, size);
    expect_sentence(lora_v1_open(&file, path));
    for (int64_t i = 0; file && i < lora_v1_count(file); i++)
        FUZZ_EXPECT(lora_v1_name(file, i)[0] && lora_v1_rank(file) > 0, "a tensor without a name");
    bool fits = file && lora_v1_match(file, &model) == MIMO_OK;
    FUZZ_EXPECT(fits || *mimo_last_error(), "a failure without a sentence");
    for (int i = 0; fits && i < TENSORS; i++) {
        int64_t elements = factors[i].shape[0] * factors[i].shape[1];
        FUZZ_EXPECT(lora_v1_read(file, i, 0, elements, values) == MIMO_OK, "%d is not read", i);
        FUZZ_EXPECT(lora_v1_read(file, i, elements, 1, values) == MIMO_ERR_ARGUMENT,
                    "%d has an element past its end", i);
    }
    lora_v1_close(file);
    close(fd);
    return fits;
}

static size_t sound_tensors(uint8_t *bytes)
{
    size_t length = strlen(sound_header);
    put_little_endian(bytes, length, 8);
    memcpy(bytes + 8, sound_header, length);
    return 8 + length + 32;
}

static size_t sound_lora(uint8_t *bytes)
{
    size_t at = 12;
    put_little_endian(bytes, 0x4C4F5241, 4);
    put_little_endian(bytes + 4, 1, 4);
    put_little_endian(bytes + 8, TENSORS, 4);
    for (int i = 0; i < TENSORS; i++) {
        size_t length = strlen(factors[i].name) - strlen(".weight");
        put_little_endian(bytes + at, length, 4);
        memcpy(bytes + at + 4, factors[i].name, length);
        at += 4 + length;
        put_little_endian(bytes + at, 2, 4);
        put_little_endian(bytes + at + 4, (uint64_t)factors[i].shape[0], 8);
        put_little_endian(bytes + at + 12, (uint64_t)factors[i].shape[1], 8);
        at += 20 + 4 * (size_t)(factors[i].shape[0] * factors[i].shape[1]);
    }
    return at;
}

static size_t edit(uint8_t *bytes, size_t size, fuzz_input *input)
{
    size_t kept = size - fuzz_byte(input) % size;
    while (input->size >= 3) {
        size_t place = fuzz_byte(input);
        place |= (size_t)fuzz_byte(input) << 8;
        bytes[place % size] = fuzz_byte(input);
    }
    return kept;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t bytes[MOST_BYTES] = {0};
    fuzz_input input = {data, size};
    uint8_t choice = fuzz_byte(&input) % 6;
    bool (*const readers[])(const uint8_t *, size_t) = {try_config, try_tensors, try_lora};
    if (choice < 3) {
        (void)readers[choice](input.data, input.size);
        return 0;
    }
    size_t sound = choice == 4 ? sound_tensors(bytes) : choice == 5 ? sound_lora(bytes) : 0;
    if (choice == 3) {
        sound = strlen(sound_config);
        memcpy(bytes, sound_config, sound);
    }
    bool edited = input.size > 3;
    size_t kept = edit(bytes, sound, &input);
    bool accepted = readers[choice - 3](bytes, kept);
    FUZZ_EXPECT(accepted || edited || kept < sound, "the sound file %d is refused", choice);
    return 0;
}
