/*
 * Memory and row copies where tensors lie: one table per kind of memory, so that partition,
 * alignment and bridge are written once. The front has validated; a slot trusts its arguments.
 * `stream` is NULL on the host, where a slot is done on return; with a stream a slot only enqueues.
 *
 * Slots never overlap source and destination. Counts may be 0. Any alignment and row size is right.
 */
#ifndef MIMO_DEVICE_DEVICE_H
#define MIMO_DEVICE_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include <mimo/tensor.h>

#include "core/rows.h"

typedef struct mimo_device {
    const char *name;
    /* Uninitialised room for staging, aligned for any dtype. Blocking; not called on a hot path. */
    mimo_status (*reserve)(void **out, int64_t bytes);
    void (*release)(void *room); /* NULL is fine */
    mimo_status (*copy)(void *to, const void *from, int64_t bytes, mimo_stream stream);
    mimo_status (*zero)(void *to, int64_t bytes, mimo_stream stream);
    /* Matching strided rows, `from` to `to`. */
    mimo_status (*copy_rows)(const mimo_rows *to, const mimo_rows *from, mimo_stream stream);
    /* Row i of `to` = row index[i] of `from`; index in host memory, copied before return. */
    mimo_status (*gather_rows)(void *to, const void *from, const int64_t *index, int64_t rows,
                               int64_t row_bytes, mimo_stream stream);
    /* Row index[i] of `to` = row i of `from`; other rows of `to` stay as they are. */
    mimo_status (*scatter_rows)(void *to, const void *from, const int64_t *index, int64_t rows,
                                int64_t row_bytes, mimo_stream stream);
    /* data[i] *= factor, for i < count; f32, f64, f16 and bf16. */
    mimo_status (*scale)(void *data, int64_t count, mimo_dtype dtype, double factor,
                         mimo_stream stream);
    /* data[i] += parts[i] + parts[count + i] + ... over n parts of `count` elements, in that order;
     * f16 and bf16 are added in f32 and rounded once. Every dtype but MIMO_F8. */
    mimo_status (*add_parts)(void *data, const void *parts, int64_t n, int64_t count,
                             mimo_dtype dtype, mimo_stream stream);
    /* *out = sum of data[i]^2 in f64; blocks the host until it is known. */
    mimo_status (*sum_squares)(double *out, const void *data, int64_t count, mimo_dtype dtype,
                               mimo_stream stream);
} mimo_device;

extern const mimo_device mimo_device_host;

/* The table for a kind of memory. MIMO_ERR_UNSUPPORTED where this build has none. */
mimo_status mimo_device_for(const mimo_device **out, mimo_memory memory);

#endif
