/* For tests: poisoned memory between guard bands, and data that is an injective hash of its
 * index. */
#ifndef MIMO_TESTS_GUARDED_H
#define MIMO_TESTS_GUARDED_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTES = 64, GUARD_POISON = 0xa5 };

/* `bytes` bytes of poison with a guard band on either side; guarded_free releases them. */
static inline void *guarded_new(int64_t bytes)
{
    char *room = malloc((size_t)bytes + 2 * GUARD_BYTES);
    memset(room, GUARD_POISON, (size_t)bytes + 2 * GUARD_BYTES);
    return room + GUARD_BYTES;
}

static inline bool guarded_poison(const void *data, int64_t first, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++)
        if (((const unsigned char *)data)[first + i] != GUARD_POISON)
            return false;
    return true;
}

static inline void guarded_free(void *data)
{
    free((char *)data - GUARD_BYTES);
}

/* Byte `byte` of element `index` of the tensor that `seed` names. An element of 8 bytes is an
 * injective mix of (seed, index). A smaller element has the low bytes of that mix. */
static inline unsigned char element_byte(uint64_t seed, int64_t index, int64_t byte)
{
    uint64_t x = (uint64_t)index + seed * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    return (unsigned char)(x >> (8 * (byte % 8)));
}

static inline void fill_elements(void *data, uint64_t seed, int64_t count, int64_t element_bytes)
{
    for (int64_t i = 0; i < count; i++)
        for (int64_t b = 0; b < element_bytes; b++)
            ((unsigned char *)data)[i * element_bytes + b] = element_byte(seed, i, b);
}

/* Element `index` of the tensor `seed`. */
static inline void element_of_seed(unsigned char to[8], uint64_t seed, int64_t index,
                                   int64_t element_bytes)
{
    for (int64_t b = 0; b < element_bytes; b++)
        to[b] = element_byte(seed, index, b);
}

/* A small generator for random cases. */
static inline uint64_t next_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = *state;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline int64_t random_below(uint64_t *state, int64_t limit)
{
    return (int64_t)(next_random(state) % (uint64_t)limit);
}

#endif
