#include "device/host_sums.h"

#include "core/check.h"
#include "core/float16.h"

/* Integers are added as unsigned ones: their overflow wraps. */
#define ADD_TERMS(type)                                       \
    do {                                                      \
        type *sum = (type *)it->data + first;                 \
        const type *term = (const type *)it->terms + first;   \
        for (int64_t p = 0; p < it->n; p++, term += it->step) \
            for (int64_t i = 0; i < it->count; i++)           \
                sum[i] += term[i];                            \
        return MIMO_OK;                                       \
    } while (0)

/* A 16-bit element is widened, all terms are added, and the sum is rounded once. */
#define ADD_HALF_TERMS(widen, narrow)                               \
    do {                                                            \
        uint16_t *sum = (uint16_t *)it->data + first;               \
        const uint16_t *term = (const uint16_t *)it->terms + first; \
        for (int64_t i = 0; i < it->count; i++) {                   \
            float wide = widen(sum[i]);                             \
            for (int64_t p = 0; p < it->n; p++)                     \
                wide += widen(term[p * it->step + i]);              \
            sum[i] = narrow(wide);                                  \
        }                                                           \
        return MIMO_OK;                                             \
    } while (0)

/* One stretch, which begins at element `first`. */
static mimo_status add_stretch(const mimo_addends *it, int64_t first)
{
    switch (it->dtype) {
    case MIMO_F32:
        ADD_TERMS(float);
    case MIMO_F64:
        ADD_TERMS(double);
    case MIMO_I32:
        ADD_TERMS(uint32_t);
    case MIMO_I64:
        ADD_TERMS(uint64_t);
    case MIMO_F16:
        ADD_HALF_TERMS(mimo_f16_to, mimo_f16_from);
    case MIMO_BF16:
        ADD_HALF_TERMS(mimo_bf16_to, mimo_bf16_from);
    case MIMO_F8:
        break;
    }
    return mimo_fail(MIMO_ERR_UNSUPPORTED, "dtype %s can be moved, not summed",
                     mimo_dtype_name(it->dtype));
}

mimo_status mimo_host_accumulate(const mimo_addends *addends, mimo_stream stream)
{
    (void)stream;
    for (int64_t s = 0; s < addends->stretches; s++)
        MIMO_TRY(add_stretch(addends, s * addends->pitch));
    return MIMO_OK;
}
