/* Arithmetic on sizes. What may overflow returns MIMO_OK, or MIMO_ERR_OVERFLOW with the numbers. */
#ifndef MIMO_CORE_CHECKED_H
#define MIMO_CORE_CHECKED_H

#include <inttypes.h>
#include <stdint.h>

#include "core/check.h"

static inline mimo_status mimo_mul(int64_t *out, int64_t a, int64_t b)
{
    MIMO_CHECK(!__builtin_mul_overflow(a, b, out), MIMO_ERR_OVERFLOW,
               "%" PRId64 " * %" PRId64 " does not fit 64 bits", a, b);
    return MIMO_OK;
}

static inline mimo_status mimo_add(int64_t *out, int64_t a, int64_t b)
{
    MIMO_CHECK(!__builtin_add_overflow(a, b, out), MIMO_ERR_OVERFLOW,
               "%" PRId64 " + %" PRId64 " does not fit 64 bits", a, b);
    return MIMO_OK;
}

static inline int64_t mimo_smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t mimo_larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
