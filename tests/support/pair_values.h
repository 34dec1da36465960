/* What experts give back in tests of dispatches: values whose sums depend on their order. */
#ifndef PAIR_VALUES_H
#define PAIR_VALUES_H

#include <mimo/dtype.h>

#include "core/float16.h"
#include "plain_route.h"

enum { PAIR_MOST_TOKENS = 8192 /* of a rank, whose values then all differ */ };

/* One column of the rows that experts give back. */
typedef struct pair_column {
    uint64_t seed;
    int64_t at;
    mimo_dtype dtype;
} pair_column;

static inline double pair_to_bf16(double value)
{
    return (double)mimo_bf16_to(mimo_bf16_from((float)value));
}

static inline double pair_to_f16(double value)
{
    return (double)mimo_f16_to(mimo_f16_from((float)value));
}

/* How a dtype rounds; NULL: f32 and f64, which do not. */
static inline plain_rounding pair_rounding(mimo_dtype dtype)
{
    return dtype == MIMO_BF16 ? pair_to_bf16 : (dtype == MIMO_F16 ? pair_to_f16 : NULL);
}

/* The value of a pair on the rank with coordinate t; `context` is a pair_column. For plain_sum. */
static inline double pair_value(const void *context, const plain_row *pair, int64_t t)
{
    const pair_column *it = context;
    int64_t token = pair->rank * PAIR_MOST_TOKENS + pair->token;
    int64_t index = (token * 32 + pair->choice) * 8 + t;
    double value = (double)plain_random(it->seed + (uint64_t)it->at * 77, index, 1 << 30) / 3e8;
    plain_rounding round = pair_rounding(it->dtype);
    value = it->dtype == MIMO_F64 ? value - 1.7 : (double)(float)(value - 1.7);
    return round ? round(value) : value;
}

static inline void pair_put(void *data, mimo_dtype dtype, int64_t at, double value)
{
    if (dtype == MIMO_F64)
        ((double *)data)[at] = value;
    else if (dtype == MIMO_F32)
        ((float *)data)[at] = (float)value;
    else
        ((uint16_t *)data)[at] =
            dtype == MIMO_BF16 ? mimo_bf16_from((float)value) : mimo_f16_from((float)value);
}

#endif
