/* Integers in files: little-endian, whatever the machine. */
#ifndef TRAIN_LITTLE_ENDIAN_H
#define TRAIN_LITTLE_ENDIAN_H

#include <stdint.h>

static inline void put_little_endian(unsigned char *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (unsigned char)(value >> (8 * i));
}

static inline uint64_t get_little_endian(const unsigned char *from, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)from[i] << (8 * i);
    return value;
}

#endif
