/* Which addresses data may have. Rows that only move may lie at any address. Numbers that are added
 * or compared are read as their type, which needs an aligned address. */
#ifndef MIMO_CORE_ADDRESS_H
#define MIMO_CORE_ADDRESS_H

#include <stdint.h>

#include <mimo/dtype.h>

#include "core/check.h"

/* MIMO_ERR_ARGUMENT where data[count] does not lie at a multiple of its element size. The sentence
 * begins with `what`. */
static inline mimo_status mimo_check_address(const char *what, const void *data, int64_t count,
                                             mimo_dtype dtype)
{
    size_t size = mimo_dtype_size(dtype);
    MIMO_CHECK(count == 0 || size == 0 || (uintptr_t)data % size == 0, MIMO_ERR_ARGUMENT,
               "%s lies at %p, and %s numbers have to lie at a multiple of %zu bytes", what, data,
               mimo_dtype_name(dtype), size);
    return MIMO_OK;
}

#endif
