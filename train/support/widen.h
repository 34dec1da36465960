/* Floats of 16 bits as f32, which holds them all. */
#ifndef TRAIN_WIDEN_H
#define TRAIN_WIDEN_H

#include <stdint.h>
#include <string.h>

static inline float widen_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float widen_bf16(uint16_t half)
{
    return widen_bits((uint32_t)half << 16);
}

static inline float widen_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    if (rest >= 0x7c00) /* infinity and not-a-number */
        return widen_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest >= 0x400)
        return widen_bits(sign | ((rest << 13) + ((127 - 15) << 23)));
    float small = (float)rest * 0x1p-24f; /* 0 and the subnormal ones */
    return sign ? -small : small;
}

#endif
