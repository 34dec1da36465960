/* The readers of the captioner's data: the sample file and the emoji list. The input is a byte that
 * chooses, then the file. With bit 1 the checksum of a sample file is put right, so that damage to
 * the other bytes is reached as well. */
#include <inttypes.h>
#include <unistd.h>

#include "captioner/data/emoji_list.h"
#include "captioner/data/sample_file.h"
#include "train/support/little_endian.h"
#include "core/hash.h"
#include "fuzz_input.h"

enum { HASHED = 40, HEADER = 48 };

static void put_checksum(uint8_t *bytes, size_t size)
{
    if (size < HEADER)
        return;
    uint64_t sum = mimo_hash_bytes(MIMO_HASH_START, bytes, HASHED);
    sum = mimo_hash_bytes(sum, bytes + HEADER, size - HEADER);
    put_little_endian(bytes + HASHED, sum, 8);
}

static void read_samples(const char *path)
{
    struct samples samples = {0};
    int64_t held_out = 0;
    if (sample_file_read(&samples, path) != MIMO_OK)
        return;
    for (int64_t i = 0; i < samples.count; i++) {
        FUZZ_EXPECT(strlen(sample_name(&samples, i)) == samples.name_length[i],
                    "the name of sample %" PRId64 " has another length", i);
        held_out += samples.held_out[i];
        (void)sample_image(&samples, i)[samples.image_size * samples.image_size * 3 - 1];
    }
    FUZZ_EXPECT(held_out == samples.held_out_count, "%" PRId64 " are held out", held_out);
    samples_release(&samples);
}

static void read_list(const char *path)
{
    struct emoji_list list = {0};
    if (emoji_list_read(&list, path) != MIMO_OK)
        return;
    for (int64_t i = 0; i < list.count; i++) {
        const struct emoji *emoji = &list.emoji[i];
        FUZZ_EXPECT(emoji->code_count > 0 && emoji->codes[emoji->code_count - 1] > 0,
                    "emoji %" PRId64 " has no code points", i);
    }
    emoji_list_release(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH];
    fuzz_input input = {data, size};
    uint8_t choice = fuzz_byte(&input);
    uint8_t *bytes = calloc(input.size + 1, 1);
    FUZZ_EXPECT(bytes, "out of memory");
    memcpy(bytes, input.data, input.size);
    if (choice & 2)
        put_checksum(bytes, input.size);
    int fd = fuzz_file(path, bytes, input.size);
    (choice & 1 ? read_list : read_samples)(path);
    close(fd);
    free(bytes);
    return 0;
}
