#include "device/host_sums.h"

#include "core/check.h"
#include "core/float16.h"

/* Whole numbers wrap, so they are added without a sign. */
#define ADD_PARTS(type)                                       \
    do {                                                      \
        type *sum = (type *)it->data + first;                 \
        const type *part = (const type *)it->parts + first;   \
        for (int64_t p = 0; p < it->n; p++, part += it->step) \
            for (int64_t i = 0; i < it->count; i++)           \
                sum[i] += part[i];                            \
        return MIMO_OK;                                       \
    } while (0)

/* A 16-bit element is widened, takes every part, and is rounded once. */
#define ADD_HALF_PARTS(widen, narrow)                               \
    do {                                                            \
        uint16_t *sum = (uint16_t *)it->data + first;               \
        const uint16_t *part = (const uint16_t *)it->parts + first; \
        for (int64_t i = 0; i < it->count; i++) {                   \
            float wide = widen(sum[i]);                             \
            for (int64_t p = 0; p < it->n; p++)                     \
                wide += widen(part[p * it->step + i]);              \
            sum[i] = narrow(wide);                                  \
        }                                                           \
        return MIMO_OK;                                             \
    } while (0)

/* One stretch, which begins at element `first`. */
static mimo_status add_stretch(const mimo_parts *it, int64_t first)
{
    switch (it->dtype) {
    case MIMO_F32:
        ADD_PARTS(float);
    case MIMO_F64:
        ADD_PARTS(double);
    case MIMO_I32:
        ADD_PARTS(uint32_t);
    case MIMO_I64:
        ADD_PARTS(uint64_t);
    case MIMO_F16:
        ADD_HALF_PARTS(mimo_f16_to, mimo_f16_from);
    case MIMO_BF16:
        ADD_HALF_PARTS(mimo_bf16_to, mimo_bf16_from);
    default:
        return mimo_fail(MIMO_ERR_UNSUPPORTED, "dtype %s can be moved, not summed",
                         mimo_dtype_name(it->dtype));
    }
}

mimo_status mimo_host_add_parts(const mimo_parts *parts, mimo_stream stream)
{
    (void)stream;
    for (int64_t s = 0; s < parts->stretches; s++)
        MIMO_TRY(add_stretch(parts, s * parts->pitch));
    return MIMO_OK;
}
