/*
 * Staging that outlives a call: one area of memory for each (stream, use). An area grows where a
 * call needs more. Calls on one stream share its areas, as the stream runs them one after the
 * other; calls on different streams never use the same one. The memory is the stream's as well
 * (mimo_device.reserve_on), so growing does not wait for its work. A call of a shape that was seen
 * before allocates nothing. Memory that a graph uses stays when its area grows, because the graph
 * may be replayed at any time: it is released with all areas.
 */
#ifndef MIMO_DEVICE_STAGING_H
#define MIMO_DEVICE_STAGING_H

#include "device/device.h"

/* What an area is for. Areas that are in use at one time on one stream have different uses. */
typedef enum mimo_staging_use {
    MIMO_STAGING_GATHERED, /* a backend: rows of other ranks before they go where they belong */
    MIMO_STAGING_PACKED,   /* a backend: own rows made contiguous; numbers in a wider dtype */
    MIMO_STAGING_SHARDS,   /* the partition's adjoint: the shards of all tp ranks */
    MIMO_STAGING_FULL,   /* a bridge, collective: full sequences, before they are split or summed */
    MIMO_STAGING_JOINED, /* a bridge, collective: the sp shards of all tp ranks */
    MIMO_STAGING_CONTRIBUTIONS, /* a bridge, routed: also the sums between two phases */
    MIMO_STAGING_TAGS_SENT,     /* a bridge's samples check: tags that it sends */
    MIMO_STAGING_TAGS_RECEIVED, /* a bridge's samples check: tags that it received */
} mimo_staging_use;

typedef struct mimo_staging_area mimo_staging_area;

/* Where areas come from in place of the device's reserve and release. The functions are those of
 * mimo_nccl_desc. */
typedef struct mimo_allocator {
    void *(*reserve)(void *context, size_t bytes, mimo_stream stream);
    void (*release)(void *context, void *data, size_t bytes, mimo_stream stream);
    void *context;
} mimo_allocator;

enum { MIMO_ALLOCATOR_ALIGNMENT = 256 };

typedef struct mimo_staging {
    mimo_staging_area *first;
    const mimo_allocator *allocator; /* borrowed; NULL: none */
} mimo_staging;

/* Where to look: the device that the areas lie on, the stream and the use. */
typedef struct mimo_staging_key {
    const mimo_device *device;
    mimo_stream stream;
    mimo_staging_use use;
} mimo_staging_key;

/* The area of `key`, of at least `bytes` bytes. Where it grows, its old content is lost. It does
 * not grow while the stream's work is recorded: MIMO_ERR_STATE. */
mimo_status mimo_staging_get(void **out, mimo_staging *staging, const mimo_staging_key *key,
                             int64_t bytes);

/* Release all areas. */
void mimo_staging_release(mimo_staging *staging);

/* Forget all areas without freeing them: something may still write there. */
void mimo_staging_abandon(mimo_staging *staging);

#endif
