/*
 * Memory and row copies where tensors lie: one table per kind of memory, so that partition,
 * alignment and bridge are written once. The front has validated; a slot trusts its arguments.
 * `stream` is NULL on the host, where a slot is done on return; on a device a slot enqueues its
 * work on the stream and returns, unless it says that it blocks. On a device the calling thread's
 * current device is the one that the memory and the stream belong to.
 *
 * Slots never overlap source and destination. Counts may be 0. Any alignment and row size is right.
 */
#ifndef MIMO_DEVICE_DEVICE_H
#define MIMO_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mimo/tensor.h>

#include "core/rows.h"

/* Rows of a tile, picked by position, beside the same rows packed one after the other. Packed row
 * n stands at position[n] = b * seq + s of the tile, which is tile row b * tile_b + s * tile_s; in
 * the packed rows it lies at n / length * packed_b + n % length * packed_s. */
typedef struct mimo_row_map {
    const int64_t *position; /* [rows], in the memory that the rows lie in */
    int64_t rows, row_bytes;
    int64_t seq, tile_b, tile_s;
    int64_t length, packed_b, packed_s;
} mimo_row_map;

/* Where rows come from, along an inner loop: `length` of them, from `to` on in the one loop and
 * from `from` on in the other. */
typedef struct mimo_stretch {
    int64_t to, from, length; /* length > 0 */
} mimo_stretch;

/* As many as a kernel takes by value; they ascend in `to` and do not meet there. */
enum { MIMO_STRETCHES = 32 };
typedef struct mimo_stretches {
    int count;
    mimo_stretch at[MIMO_STRETCHES];
} mimo_stretches;

/* Numbers that are added to others. All lie in stretches of `count` elements, which begin `pitch`
 * elements after each other; the n parts begin `step` elements after each other. */
typedef struct mimo_parts {
    void *data;
    const void *parts;
    int64_t n, step;
    int64_t stretches, pitch, count;
    mimo_dtype dtype;
} mimo_parts;

/* A point in the work of a stream, for others to wait for. */
typedef struct mimo_event mimo_event;

typedef struct mimo_device {
    const char *name;
    /* Work is enqueued on a stream, and the host does not wait for it. */
    bool enqueues;
    /* Work of the stream is being recorded, to be run again later. NULL: it never is. */
    bool (*records)(mimo_stream stream);
    /* Uninitialised room, aligned for any dtype. Both block, a device's release until all its
     * work is done; not called on a hot path. */
    mimo_status (*reserve)(void **out, int64_t bytes);
    void (*release)(void *room); /* NULL is fine */
    mimo_status (*copy)(void *to, const void *from, int64_t bytes, mimo_stream stream);
    /* From and to host memory. `from` may be reused when upload returns; download blocks until the
     * bytes have arrived. */
    mimo_status (*upload)(void *to, const void *from, int64_t bytes, mimo_stream stream);
    mimo_status (*download)(void *to, const void *from, int64_t bytes, mimo_stream stream);
    /* Whether all work of a stream is done. Never blocks. */
    mimo_status (*finished)(bool *out, mimo_stream stream);
    /* Events, where work is enqueued; else NULL. Recording takes the place of what was recorded
     * before, but for streams that were made to wait for that already. */
    mimo_status (*event_create)(mimo_event **out);
    void (*event_destroy)(mimo_event *event); /* NULL is fine */
    mimo_status (*event_record)(mimo_event *event, mimo_stream stream);
    mimo_status (*event_wait)(mimo_event *event, mimo_stream stream); /* the host does not wait */
    /* Strided rows: set to zero; and matching ones, copied. */
    mimo_status (*zero_rows)(const mimo_rows *to, mimo_stream stream);
    mimo_status (*copy_rows)(const mimo_rows *to, const mimo_rows *from, mimo_stream stream);
    /* The same for each of a list, whose targets are apart; a few launches for all. */
    mimo_status (*copy_list)(const mimo_row_copy *list, int64_t count, mimo_stream stream);
    /* Every row of `to`, in one pass: a copy of the row of `from` that its stretch names, in the
     * same turn of the outer loop; zeros where no stretch lies. The stretches say how far the inner
     * loop of `from` runs, not its n_inner. */
    mimo_status (*fill_rows)(const mimo_rows *to, const mimo_rows *from,
                             const mimo_stretches *stretches, mimo_stream stream);
    /* Packed rows `to` from the tile `from`. */
    mimo_status (*gather_rows)(void *to, const void *from, const mimo_row_map *map,
                               mimo_stream stream);
    /* Rows of the tile `to` from packed rows `from`; its other rows stay as they are. */
    mimo_status (*scatter_rows)(void *to, const void *from, const mimo_row_map *map,
                                mimo_stream stream);
    /* data[i] *= factor, for i < count; f32, f64, f16 and bf16. */
    mimo_status (*scale)(void *data, int64_t count, mimo_dtype dtype, double factor,
                         mimo_stream stream);
    /* data[i] += parts[i] + parts[step + i] + ..., in that order, for the elements i of all
     * stretches; f16 and bf16 are added in f32 and rounded once. Every dtype but MIMO_F8. */
    mimo_status (*add_parts)(const mimo_parts *parts, mimo_stream stream);
    /* *out = sum of data[i]^2 in f64, added in an order that depends on count alone; blocks until
     * it is known. */
    mimo_status (*sum_squares)(double *out, const void *data, int64_t count, mimo_dtype dtype,
                               mimo_stream stream);
} mimo_device;

extern const mimo_device mimo_device_host;
extern const mimo_device mimo_device_cuda; /* where this build has CUDA */

/* "host memory", "CUDA memory". */
const char *mimo_memory_text(mimo_memory memory);

/* The table for a kind of memory. MIMO_ERR_UNSUPPORTED where this build has none. */
mimo_status mimo_device_for(const mimo_device **out, mimo_memory memory);

#endif
