#include "device/staging.h"

#include "core/memory.h"

struct mimo_staging_area {
    mimo_staging_area *next;
    mimo_staging_key key;
    void *data;
    int64_t bytes;
};

static bool is_of(const mimo_staging_area *area, const mimo_staging_key *key)
{
    return area->key.device == key->device && area->key.stream == key->stream &&
           area->key.slot == key->slot;
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

mimo_status mimo_staging_get(void **out, mimo_staging *staging, const mimo_staging_key *key,
                             int64_t bytes)
{
    mimo_staging_area *area;
    MIMO_TRY(area_for(&area, staging, key));
    if (bytes > area->bytes || !area->data) {
        void *data;
        MIMO_TRY(key->device->reserve(&data, bytes));
        key->device->release(area->data);
        area->data = data;
        area->bytes = bytes;
    }
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
        area->key.device->release(area->data);
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
