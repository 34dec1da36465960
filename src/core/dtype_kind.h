/* What can be done with the elements of a dtype. A new dtype has a case here; all who add or scale
 * elements ask this, or have a switch of their own without a default. */
#ifndef MIMO_CORE_DTYPE_KIND_H
#define MIMO_CORE_DTYPE_KIND_H

#include <stdbool.h>

#include <mimo/dtype.h>

typedef enum mimo_dtype_kind {
    MIMO_DTYPE_OPAQUE, /* it moves, and is never added */
    MIMO_DTYPE_INTEGER,
    MIMO_DTYPE_FLOAT,
    MIMO_DTYPE_HALF, /* a float of 16 bits: added in f32 */
} mimo_dtype_kind;

static inline mimo_dtype_kind mimo_dtype_kind_of(mimo_dtype dtype)
{
    switch (dtype) {
    case MIMO_F32:
    case MIMO_F64:
        return MIMO_DTYPE_FLOAT;
    case MIMO_F16:
    case MIMO_BF16:
        return MIMO_DTYPE_HALF;
    case MIMO_I32:
    case MIMO_I64:
        return MIMO_DTYPE_INTEGER;
    case MIMO_F8:
        break;
    }
    return MIMO_DTYPE_OPAQUE;
}

static inline bool mimo_dtype_can_add(mimo_dtype dtype)
{
    return mimo_dtype_kind_of(dtype) != MIMO_DTYPE_OPAQUE;
}

static inline bool mimo_dtype_is_half(mimo_dtype dtype)
{
    return mimo_dtype_kind_of(dtype) == MIMO_DTYPE_HALF;
}

#endif
