/*
 * Status codes and the last error.
 *
 * Every function that can fail returns a mimo_status. The sentence with the actual numbers is in
 * mimo_last_error(), which is kept per thread. A failed call leaves its outputs untouched. The
 * exceptions are the tensors of a call that had begun to move (<mimo/bridge.h> says which errors
 * these are). The library never aborts, never exits and never writes to stdout.
 *
 * Structs that begin with a `size` start from their _INIT, or in other languages from the function
 * beside it: mimo_x_init(out, sizeof *out) writes the first `size` bytes of the same values. So a
 * program keeps working with a newer library whose struct has more fields. Also what a function
 * fills for the caller starts that way. Small values whose fields can't change have no `size`
 * (mimo_tensor, mimo_dim, mimo_span, mimo_box, mimo_block, mimo_executor, mimo_env_row).
 *
 * Arguments come in this order: what a function returns through pointers, the object, and what it
 * works on, where the destination comes before the source. A function called create makes what the
 * caller destroys. One called borrow makes it around something of the caller's, which stays the
 * caller's and outlives it.
 *
 * What is new in a release and may still change is experimental. It is declared only where the
 * program defines MIMO_EXPERIMENTAL before it includes the first header of the library.
 * docs/versions.md says what is promised of either kind.
 *
 * These errors are not repeated with every function: MIMO_ERR_ARGUMENT for a NULL that has no
 * meaning, for an enumerator that does not exist, and for a descriptor that did not start from its
 * _INIT; MIMO_ERR_MEMORY from functions that allocate; MIMO_ERR_OVERFLOW from functions that
 * multiply sizes; MIMO_ERR_DEVICE from functions that work on a device. A function that returns no
 * status must not get NULL, except one that destroys or resets.
 */
#ifndef MIMO_STATUS_H
#define MIMO_STATUS_H

#include <mimo/export.h>

MIMO_BEGIN_DECLS

/** One row per status: X(name, value, text). Values are part of the ABI and never change. */
#define MIMO_STATUS_LIST(X)                                                \
    X(MIMO_OK, 0, "success")                                               \
    X(MIMO_ERR_ARGUMENT, 1, "invalid argument")                            \
    X(MIMO_ERR_SHAPE, 2, "tensor shape, dtype or layout does not fit")     \
    X(MIMO_ERR_GRID, 3, "grid or pair of grids breaks a rule")             \
    X(MIMO_ERR_STATE, 4, "object is not in the state that the call needs") \
    X(MIMO_ERR_NOT_FOUND, 5, "no such object")                             \
    X(MIMO_ERR_EXISTS, 6, "object exists already")                         \
    X(MIMO_ERR_OVERFLOW, 7, "size does not fit its type")                  \
    X(MIMO_ERR_MEMORY, 8, "out of memory")                                 \
    X(MIMO_ERR_UNSUPPORTED, 9, "not supported")                            \
    X(MIMO_ERR_MISMATCH, 10, "ranks disagree")                             \
    X(MIMO_ERR_COMM, 11, "communication backend failed")                   \
    X(MIMO_ERR_TIMEOUT, 12, "deadline passed")                             \
    X(MIMO_ERR_ABORTED, 13, "communicator was aborted")                    \
    X(MIMO_ERR_IO, 14, "input or output failed")                           \
    X(MIMO_ERR_INTERNAL, 15, "internal invariant broken")                  \
    X(MIMO_ERR_DEVICE, 16, "device failed")

typedef enum mimo_status {
#define MIMO_STATUS_ENUM(name, value, text) name = (value),
    MIMO_STATUS_LIST(MIMO_STATUS_ENUM)
#undef MIMO_STATUS_ENUM
} mimo_status;

/** The identifier of a status ("MIMO_ERR_SHAPE"); "MIMO_ERR_?" for an unknown value. Never NULL.
 *  Thread-safe. */
MIMO_API const char *mimo_status_name(mimo_status status);

/** A short English text for a status, without numbers. Never NULL. Thread-safe. */
MIMO_API const char *mimo_status_text(mimo_status status);

/**
 * The sentence of the last failed call of this thread, with the numbers that were wrong.
 *
 * Never NULL; "" before the first failure. Owned by the library, valid until the next failing call
 * of the same thread. Read it right after a failure. Any later call may change it, even one that
 * succeeds: it may move another operation on, and that operation may fail.
 */
MIMO_API const char *mimo_last_error(void);

/**
 * Record the sentence of a failure for this thread, printf-like, and return `status`. With it the
 * caller's own checks travel through mimo_comm_agree as the library's do. A sentence longer than 1
 * KiB is truncated. Thread-safe.
 */
MIMO_API MIMO_PRINTF(2, 3) mimo_status mimo_fail(mimo_status status, const char *format, ...);

MIMO_END_DECLS

#endif
