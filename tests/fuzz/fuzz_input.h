/*
 * What the fuzz targets share. A target is one function that takes any bytes:
 *
 *   int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
 *
 * libFuzzer calls it with inputs that it invents (scripts/fuzz.sh). fuzz_corpus_main.c calls it
 * with the files of a folder, under any compiler. A target ends the process where a promise is
 * broken; sanitizers see the rest.
 */
#ifndef MIMO_TESTS_FUZZ_INPUT_H
#define MIMO_TESTS_FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mimo/status.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* A promise of the code under test. */
#define FUZZ_EXPECT(condition, ...)                         \
    do {                                                    \
        if (!(condition)) {                                 \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
            fprintf(stderr, __VA_ARGS__);                   \
            fprintf(stderr, " (%s)\n", mimo_last_error());  \
            abort();                                        \
        }                                                   \
    } while (0)

/* The bytes of an input, taken from the front; past the end they are 0. */
typedef struct fuzz_input {
    const uint8_t *data;
    size_t size;
} fuzz_input;

static inline uint8_t fuzz_byte(fuzz_input *input)
{
    if (input->size == 0)
        return 0;
    input->size--;
    return *input->data++;
}

static inline bool fuzz_bit(fuzz_input *input)
{
    return fuzz_byte(input) & 1;
}

/* A number from `least` to `most`, both included, of one byte: most - least < 256. */
static inline int64_t fuzz_number(fuzz_input *input, int64_t least, int64_t most)
{
    return least + fuzz_byte(input) % (most - least + 1);
}

/* Any 32 bits. */
static inline int32_t fuzz_word(fuzz_input *input)
{
    uint32_t word = 0;
    for (int i = 0; i < 4; i++)
        word |= (uint32_t)fuzz_byte(input) << 8 * i;
    return (int32_t)word;
}

/* A file in memory that holds these bytes; `path` has room for FUZZ_PATH. Give back with close. */
enum { FUZZ_PATH = 32 };
int fuzz_file(char *path, const void *data, size_t size);

#endif
