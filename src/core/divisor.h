/* Divisions by a number that is known in advance: a product and a shift, which is what a device
 * does fast. */
#ifndef MIMO_CORE_DIVISOR_H
#define MIMO_CORE_DIVISOR_H

#include <stdint.h>

#include "core/host_device.h"

typedef struct mimo_divisor {
    uint32_t factor, shift;
} mimo_divisor;

/* 0 < divisor < 2^31 */
static inline mimo_divisor mimo_divisor_of(uint32_t divisor)
{
    uint32_t bits = 0;
    while (((uint64_t)1 << bits) < divisor)
        bits++;
    mimo_divisor made = {(uint32_t)(((uint64_t)1 << (31 + bits)) / divisor + 1), 31 + bits};
    return made;
}

/* n / divisor for n < 2^31. Exact, as the error of factor / 2^shift is less than
 *   1 / (2^31 * divisor) */
static inline MIMO_HOST_AND_DEVICE uint32_t mimo_divide(uint32_t n, mimo_divisor by)
{
    return (uint32_t)(((uint64_t)n * by.factor) >> by.shift);
}

#endif
