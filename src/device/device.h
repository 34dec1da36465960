/*
 * Memory and row copies where tensors lie: one table per kind of memory, so that partition,
 * alignment and bridge are written once. Callers have validated; a function trusts its arguments.
 *
 * `stream` is NULL on the host, where a function is done on return. On a device it enqueues its
 * work on the stream and returns, unless it says that it blocks. There the calling thread's current
 * device is the one that the memory and the stream belong to (comm/device_visit.h).
 *
 * Source and destination never overlap. Counts may be 0. Any alignment and row size is right.
 */
#ifndef MIMO_DEVICE_DEVICE_H
#define MIMO_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mimo/tensor.h>

#include "core/backend_api.h"
#include "core/rows.h"
#include "core/sum_list.h"

/* Rows of a tile, picked by position, and the same rows packed one after the other.
 *
 *   position of packed row n    position[n] = b * seq + s
 *   its row in the tile         b * tile_b + s * tile_s
 *   its row in the packed rows  n / length * packed_b + n % length * packed_s
 */
typedef struct mimo_row_map {
    const int64_t *position; /* [rows], in the memory that the rows lie in */
    int64_t rows, row_bytes;
    int64_t seq, tile_b, tile_s;
    int64_t length, packed_b, packed_s;
} mimo_row_map;

/* Where rows of an inner loop come from: rows [to, to + length) of the destination's loop are rows
 * [from, from + length) of the source's. */
typedef struct mimo_stretch {
    int64_t to, from, length; /* length > 0 */
} mimo_stretch;

/* Stretches ascend in `to` and do not overlap there. Their largest number is what a kernel takes by
 * value. */
enum { MIMO_STRETCHES = 32 };
typedef struct mimo_stretches {
    int count;
    mimo_stretch at[MIMO_STRETCHES];
} mimo_stretches;

/* n terms that are added to data. Data and terms lie in stretches of `count` elements, which begin
 * `pitch` elements after each other. The terms begin `step` elements after each other. */
typedef struct mimo_addends {
    void *data;
    const void *terms;
    int64_t n, step;
    int64_t stretches, pitch, count;
    mimo_dtype dtype;
} mimo_addends;

/* Sums [first, first + count) of a list: rows `from` of `width` elements, to rows `to`, which begin
 * with that of sum `first`. The list lies in the memory that the rows lie in. */
typedef struct mimo_row_sums {
    const mimo_sum_list *list;
    int64_t first, count, width;
    void *to;
    const void *from;
    mimo_dtype to_dtype, from_dtype; /* both are f64, or neither is */
} mimo_row_sums;

/* Rows of a tile that it repeats: for each n < count, row[begin[n]] is copied to the rows
 *   row[begin[n] + 1] to row[begin[n + 1] - 1]
 * No row is named twice. The lists lie in the memory that the rows lie in. */
typedef struct mimo_row_repeats {
    void *tile;
    int64_t row_bytes, count;
    const int64_t *begin, *row; /* begin[count + 1] */
} mimo_row_repeats;

/* A point in the work of a stream, for others to wait for. */
typedef struct mimo_event mimo_event;

typedef struct mimo_device {
    const char *name;
    /* Work is enqueued on a stream, and the host does not wait for it. */
    bool enqueues;
    /* The number of the calling thread's current device (-1: CUDA does not say), and another one in
     * its place. A device that the process does not use yet does not become current. NULL: there is
     * one device. */
    int (*current)(void);
    void (*set_current)(int number);
    /* Whether the stream's work is recorded now, to run again later. NULL: it never is. */
    bool (*records)(mimo_stream stream);
    /* Uninitialised memory, aligned for any dtype. Both block: on a device, release waits until all
     * its work is done. Not called on a hot path. */
    mimo_status (*reserve)(void **out, int64_t bytes);
    void (*release)(void *memory); /* NULL is fine */
    /* Memory for the work of one stream. It is released in the order of that work, so the host does
     * not wait. release_last is for when the stream may be gone: it waits as release does. NULL
     * where work is not enqueued. */
    mimo_status (*reserve_on)(void **out, int64_t bytes, mimo_stream stream);
    void (*release_on)(void *memory, mimo_stream stream); /* NULL is fine */
    void (*release_last)(void *memory);                   /* NULL is fine */
    mimo_status (*copy)(void *to, const void *from, int64_t bytes, mimo_stream stream);
    /* From host memory, and to host memory. `from` may be reused when upload returns. download
     * blocks until the bytes have arrived. */
    mimo_status (*upload)(void *to, const void *from, int64_t bytes, mimo_stream stream);
    mimo_status (*download)(void *to, const void *from, int64_t bytes, mimo_stream stream);
    /* Whether all work of a stream is done. Never blocks. */
    mimo_status (*finished)(bool *out, mimo_stream stream);
    /* Events. NULL where work is not enqueued. A new recording replaces the one before; streams
     * that were told to wait before it still wait for the old one. */
    mimo_status (*event_create)(mimo_event **out);
    void (*event_destroy)(mimo_event *event); /* NULL is fine */
    mimo_status (*event_record)(mimo_event *event, mimo_stream stream);
    mimo_status (*event_wait)(mimo_event *event, mimo_stream stream); /* the host does not wait */
    /* Set strided rows to zero; copy matching strided rows. */
    mimo_status (*zero_rows)(const mimo_rows *to, mimo_stream stream);
    mimo_status (*copy_rows)(const mimo_rows *to, const mimo_rows *from, mimo_stream stream);
    /* copy_rows for each of a list, whose destinations do not overlap; a few launches for all. */
    mimo_status (*copy_list)(const mimo_row_copy *list, int64_t count, mimo_stream stream);
    /* Write every row of `to` in one pass: a copy of the row of `from` that its stretch names, in
     * the same iteration of the outer loop, or zeros where no stretch lies. The stretches bound the
     * inner loop of `from`; its n_inner is ignored. */
    mimo_status (*fill_rows)(const mimo_rows *to, const mimo_rows *from,
                             const mimo_stretches *stretches, mimo_stream stream);
    /* Packed rows `to` from the tile `from`. */
    mimo_status (*gather_rows)(void *to, const void *from, const mimo_row_map *map,
                               mimo_stream stream);
    /* Rows of the tile `to` from packed rows `from`. The tile's other rows stay as they are. */
    mimo_status (*scatter_rows)(void *to, const void *from, const mimo_row_map *map,
                                mimo_stream stream);
    /* data[i] *= factor, for i < count; f32, f64, f16 and bf16. */
    mimo_status (*scale)(void *data, int64_t count, mimo_dtype dtype, double factor,
                         mimo_stream stream);
    /* For the elements i of all stretches, in this order:
     *   data[i] += terms[i] + terms[step + i] + ...
     * f16 and bf16 are added in f32 and rounded once. Every dtype except MIMO_F8. */
    mimo_status (*accumulate)(const mimo_addends *addends, mimo_stream stream);
    /* Sums of rows, each in the order of its list; one of nothing is zeros. f32, f64, f16 and bf16.
     * Additions are in f64 where the rows are, and otherwise in f32; the result is rounded once.
     * NULL, as the next one: no executor of a dispatch asks this device. */
    mimo_status (*add_rows)(const mimo_row_sums *sums, mimo_stream stream);
    mimo_status (*repeat_rows)(const mimo_row_repeats *repeats, mimo_stream stream);
    /* *out = sum of data[i]^2 in f64. The order of the additions depends on count alone. Blocks
     * until the sum is known. */
    mimo_status (*sum_squares)(double *out, const void *data, int64_t count, mimo_dtype dtype,
                               mimo_stream stream);
} mimo_device;

MIMO_BACKEND_API extern const mimo_device mimo_device_host;
extern const mimo_device mimo_device_cuda; /* where this build has CUDA */

/* "host memory", "CUDA memory". */
const char *mimo_memory_text(mimo_memory memory);

/* The table for a kind of memory. MIMO_ERR_UNSUPPORTED where this build has none. */
mimo_status mimo_device_for(const mimo_device **out, mimo_memory memory);

#endif
