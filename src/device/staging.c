#include "device/staging.h"

#include <inttypes.h>

#include "core/memory.h"

struct mimo_staging_area {
    mimo_staging_area *next;
    mimo_staging_key key;
    void *data;
    int64_t bytes;
    bool recorded; /* a graph uses it: its memory stays where it is */
    bool replaced; /* a larger one serves the key now; kept for the graphs that use it */
};

static bool is_of(const mimo_staging_area *area, const mimo_staging_key *key)
{
    return !area->replaced && area->key.device == key->device && area->key.stream == key->stream &&
           area->key.use == key->use;
}

static mimo_staging_area *find(const mimo_staging *staging, const mimo_staging_key *key)
{
    mimo_staging_area *area = staging->first;
    while (area && !is_of(area, key))
        area = area->next;
    return area;
}

static mimo_status area_for(mimo_staging_area **out, mimo_staging *staging,
                            const mimo_staging_key *key)
{
    *out = find(staging, key);
    if (*out)
        return MIMO_OK;
    MIMO_TRY(mimo_reserve(out, 1, sizeof **out));
    (*out)->key = *key;
    (*out)->next = staging->first;
    staging->first = *out;
    return MIMO_OK;
}

static mimo_status ask(void **out, const mimo_allocator *allocator, int64_t bytes,
                       mimo_stream stream)
{
    size_t size = bytes > 0 ? (size_t)bytes : 1;
    void *data = allocator->reserve(allocator->context, size, stream);
    MIMO_CHECK(data, MIMO_ERR_MEMORY,
               "the communicator's `reserve` gave no memory for %zu bytes of staging", size);
    if ((uintptr_t)data % MIMO_ALLOCATOR_ALIGNMENT != 0) {
        allocator->release(allocator->context, data, size, stream);
        return mimo_fail(MIMO_ERR_ARGUMENT,
                         "the communicator's `reserve` gave %p, which is no multiple of %d", data,
                         MIMO_ALLOCATOR_ALIGNMENT);
    }
    *out = data;
    return MIMO_OK;
}

static bool is_recorded(const mimo_staging_key *key)
{
    return key->device->records && key->device->records(key->stream);
}

static mimo_status reserve(void **out, const mimo_staging *staging, const mimo_staging_key *key,
                           int64_t bytes)
{
    const mimo_device *device = key->device;
    MIMO_CHECK(!is_recorded(key), MIMO_ERR_STATE,
               "a call needs %" PRId64 " bytes of staging that its stream does not have yet, and "
               "none is taken while a graph is captured: make the call once before on that stream",
               bytes);
    if (staging->allocator)
        return ask(out, staging->allocator, bytes, key->stream);
    return device->reserve_on ? device->reserve_on(out, bytes, key->stream)
                              : device->reserve(out, bytes);
}

/* `last`: with all areas. Until then an area is released while its stream has work. */
static void release(const mimo_staging *staging, const mimo_staging_area *area, bool last)
{
    const mimo_allocator *allocator = staging->allocator;
    const mimo_device *device = area->key.device;
    if (allocator && area->data)
        allocator->release(allocator->context, area->data,
                           area->bytes > 0 ? (size_t)area->bytes : 1, area->key.stream);
    if (allocator)
        return;
    if (!device->reserve_on)
        device->release(area->data);
    else if (last)
        device->release_last(area->data);
    else
        device->release_on(area->data, area->key.stream);
}

/* Give an area more memory. What a graph uses stays in the list until all is released. */
static mimo_status grow(mimo_staging *staging, mimo_staging_area *area, int64_t bytes)
{
    void *data;
    mimo_staging_area *kept = NULL;
    if (area->recorded)
        MIMO_TRY(mimo_reserve(&kept, 1, sizeof *kept));
    mimo_status status = reserve(&data, staging, &area->key, bytes);
    if (status != MIMO_OK) {
        mimo_release(kept);
        return status;
    }
    if (kept) {
        *kept = *area;
        kept->replaced = true;
        area->next = kept;
    } else {
        release(staging, area, false);
    }
    area->data = data;
    area->bytes = bytes;
    area->recorded = false;
    return MIMO_OK;
}

mimo_status mimo_staging_get(void **out, mimo_staging *staging, const mimo_staging_key *key,
                             int64_t bytes)
{
    mimo_staging_area *area;
    MIMO_TRY(area_for(&area, staging, key));
    if (bytes > area->bytes || !area->data)
        MIMO_TRY(grow(staging, area, bytes));
    area->recorded = area->recorded || is_recorded(key);
    *out = area->data;
    return MIMO_OK;
}

static mimo_staging_area *take_first(mimo_staging *staging)
{
    mimo_staging_area *area = staging->first;
    staging->first = area->next;
    return area;
}

void mimo_staging_release(mimo_staging *staging)
{
    while (staging->first) {
        mimo_staging_area *area = take_first(staging);
        release(staging, area, true);
        mimo_release(area);
    }
}

void mimo_staging_abandon(mimo_staging *staging)
{
    while (staging->first) {
        mimo_staging_area *area = take_first(staging);
        mimo_abandon(area->data);
        mimo_release(area);
    }
}
