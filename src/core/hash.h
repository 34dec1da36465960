/* 64-bit hashes: of descriptors that all ranks must share, and of call signatures. */
#ifndef MIMO_CORE_HASH_H
#define MIMO_CORE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define MIMO_HASH_START UINT64_C(0xcbf29ce484222325)

/* The splitmix64 finaliser: injective on 64 bits. */
static inline uint64_t mimo_mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline uint64_t mimo_hash_int(uint64_t hash, int64_t value)
{
    return mimo_mix64(hash + UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)value);
}

static inline uint64_t mimo_hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3); /* FNV-1a */
    return mimo_hash_int(hash, (int64_t)bytes);
}

#endif
