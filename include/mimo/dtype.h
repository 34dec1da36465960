/* Element types. */
#ifndef MIMO_DTYPE_H
#define MIMO_DTYPE_H

#include <stddef.h>

#include <mimo/status.h>

MIMO_BEGIN_DECLS

/** One row per dtype: X(name, value, text, bytes). MIMO_F8 is an opaque byte: it can be moved,
 * never summed. Sums of f16 and bf16 are added in f32 and rounded to nearest even: by routed
 * bridges and over NCCL once, otherwise over MPI at each addition. */
#define MIMO_DTYPE_LIST(X)     \
    X(MIMO_F32, 0, "f32", 4)   \
    X(MIMO_F16, 1, "f16", 2)   \
    X(MIMO_BF16, 2, "bf16", 2) \
    X(MIMO_F64, 3, "f64", 8)   \
    X(MIMO_I32, 4, "i32", 4)   \
    X(MIMO_I64, 5, "i64", 8)   \
    X(MIMO_F8, 6, "f8", 1)

typedef enum mimo_dtype {
#define MIMO_DTYPE_ENUM(name, value, text, bytes) name = (value),
    MIMO_DTYPE_LIST(MIMO_DTYPE_ENUM)
#undef MIMO_DTYPE_ENUM
} mimo_dtype;

/** Bytes of one element; 0 for an unknown dtype. Thread-safe. */
MIMO_API size_t mimo_dtype_size(mimo_dtype dtype);

/** "f32", "bf16", ...; "?" for an unknown dtype. Never NULL. Thread-safe. */
MIMO_API const char *mimo_dtype_name(mimo_dtype dtype);

/** The dtype named `name`. MIMO_ERR_ARGUMENT where no dtype bears that name. Thread-safe. */
MIMO_API mimo_status mimo_dtype_parse(mimo_dtype *out, const char *name);

MIMO_END_DECLS

#endif
