/* Where an id stands in token ids, as spans. */
#include <inttypes.h>
#include <string.h>

#include <mimo/plan.h>
#include <mimo/tensor.h>

#include "core/check.h"

/* Token ids of either width. */
static inline int64_t id_at(const mimo_tensor *ids, int64_t i)
{
    return ids->dtype == MIMO_I32 ? ((const int32_t *)ids->data)[i]
                                  : ((const int64_t *)ids->data)[i];
}

typedef struct span_list {
    mimo_span *spans; /* spans[capacity] */
    int64_t capacity, count;
} span_list;

static void add_span(span_list *own, const mimo_span *span)
{
    if (own->count < own->capacity)
        own->spans[own->count] = *span;
    own->count++;
}

static void scan_sample(span_list *own, const mimo_tensor *ids, int64_t special, int64_t sample)
{
    int64_t seq = ids->shape[1], row = 0, begin = -1;
    for (int64_t s = 0; s <= seq; s++) {
        bool is_row = s < seq && id_at(ids, sample * seq + s) == special;
        if (is_row && begin < 0)
            begin = s;
        if (is_row || begin < 0)
            continue;
        add_span(own, &(mimo_span){sample, row, begin, s - begin});
        row += s - begin;
        begin = -1;
    }
}

static mimo_status check_ids(const mimo_tensor *ids)
{
    MIMO_CHECK(ids->dtype == MIMO_I32 || ids->dtype == MIMO_I64, MIMO_ERR_ARGUMENT,
               "spans: ids are %s, not i32 or i64", mimo_dtype_name(ids->dtype));
    MIMO_CHECK(strncmp(ids->letters, "bs", 3) == 0 && ids->memory == MIMO_MEMORY_HOST,
               MIMO_ERR_ARGUMENT, "spans: ids are '%.3s', not 'bs' in host memory", ids->letters);
    MIMO_CHECK(ids->shape[0] >= 0 && ids->shape[1] >= 0, MIMO_ERR_ARGUMENT,
               "spans: ids have shape [%" PRId64 ",%" PRId64 "]", ids->shape[0], ids->shape[1]);
    MIMO_CHECK(ids->data || ids->shape[0] == 0 || ids->shape[1] == 0, MIMO_ERR_ARGUMENT,
               "spans: ids are NULL");
    return MIMO_OK;
}

mimo_status mimo_spans_find(int64_t *count, mimo_span *spans, int64_t capacity,
                            const mimo_tensor *ids, int64_t special)
{
    MIMO_CHECK(count && ids, MIMO_ERR_ARGUMENT, "spans: %s is NULL", count ? "ids" : "count");
    MIMO_CHECK(capacity >= 0 && (spans || capacity == 0), MIMO_ERR_ARGUMENT,
               "spans: room for %" PRId64 "%s", capacity, spans ? "" : ", NULL");
    MIMO_TRY(check_ids(ids));
    span_list own = {spans, capacity, 0};
    for (int64_t b = 0; b < ids->shape[0]; b++)
        scan_sample(&own, ids, special, b);
    *count = own.count;
    return MIMO_OK;
}
