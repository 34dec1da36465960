/* 16-bit floats as uint16_t: bf16 and IEEE binary16 to f32 and back, round to nearest even. */
#ifndef MIMO_CORE_FLOAT16_H
#define MIMO_CORE_FLOAT16_H

#include <stdint.h>
#include <string.h>

static inline uint32_t mimo_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float mimo_bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float mimo_bf16_to(uint16_t word)
{
    return mimo_bits_float((uint32_t)word << 16);
}

static inline uint16_t mimo_bf16_from(float x)
{
    uint32_t bits = mimo_float_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) /* NaN stays one: rounding could carry it to infinity */
        return (uint16_t)((bits >> 16) | 0x0040u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float mimo_f16_to(uint16_t word)
{
    uint32_t sign = (uint32_t)(word & 0x8000u) << 16;
    uint32_t magnitude = word & 0x7fffu;
    if (magnitude >= 0x7c00u) /* infinity or NaN */
        return mimo_bits_float(sign | 0x7f800000u | ((magnitude & 0x03ffu) << 13));
    if (magnitude < 0x0400u) { /* zero or subnormal: a multiple of 2^-24 */
        float value = (float)magnitude * 0x1p-24f;
        return sign ? -value : value;
    }
    return mimo_bits_float(sign | ((magnitude << 13) + (112u << 23)));
}

static inline uint16_t mimo_f16_from(float x)
{
    uint32_t bits = mimo_float_bits(x);
    uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) /* NaN */
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x03ffu));
    if (magnitude >= 0x477ff000u) /* rounds past 65504, infinity included */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) /* below 2^-14: adding 2^-1 rounds to a multiple of 2^-24 */
        return (uint16_t)(sign |
                          (mimo_float_bits(mimo_bits_float(magnitude) + 0.5f) - 0x3f000000u));
    uint32_t odd = (magnitude >> 13) & 1u;
    return (uint16_t)(sign | ((magnitude - (112u << 23) + 0x0fffu + odd) >> 13));
}

#endif
