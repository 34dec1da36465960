#include "device/host_sums.h"

#include "core/check.h"
#include "core/float16.h"

/* Whole numbers wrap, so they are added without a sign. */
#define ADD_PARTS(type)                                \
    do {                                               \
        type *sum = data;                              \
        const type *part = parts;                      \
        for (int64_t p = 0; p < n; p++, part += count) \
            for (int64_t i = 0; i < count; i++)        \
                sum[i] += part[i];                     \
        return MIMO_OK;                                \
    } while (0)

/* A 16-bit element is widened, takes every part, and is rounded once. */
#define ADD_HALF_PARTS(widen, narrow)               \
    do {                                            \
        uint16_t *sum = data;                       \
        const uint16_t *part = parts;               \
        for (int64_t i = 0; i < count; i++) {       \
            float wide = widen(sum[i]);             \
            for (int64_t p = 0; p < n; p++)         \
                wide += widen(part[p * count + i]); \
            sum[i] = narrow(wide);                  \
        }                                           \
        return MIMO_OK;                             \
    } while (0)

mimo_status mimo_host_add_parts(void *data, const void *parts, int64_t n, int64_t count,
                                mimo_dtype dtype, mimo_stream stream)
{
    (void)stream;
    switch (dtype) {
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
                         mimo_dtype_name(dtype));
    }
}
