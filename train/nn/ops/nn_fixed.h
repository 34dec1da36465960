/*
 * Sums in fixed point. An element becomes a multiple of 2^-40 in 64 bits. Integers add in any
 * order, so a sum over tokens has the same bits on every topology. For the host and for kernels.
 *
 *   fix(x) = x * 2^40, rounded to an integer, ties to even
 *
 * A sum that leaves the range (2^22 in absolute value), and an element that is no number, turn the
 * sum into NN_FIXED_BROKEN. It stays that: no element that may be added brings it back into the
 * range. nn_params_settle finds it.
 */
#ifndef MIMO_NN_NN_FIXED_H
#define MIMO_NN_NN_FIXED_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define NN_FIXED_INLINE static __host__ __device__ inline
#else
#define NN_FIXED_INLINE static inline
#endif

#define NN_FIXED_ONE 0x1p40
#define NN_FIXED_END 0x1p62 /* a sum lies below it in absolute value */
#define NN_FIXED_BROKEN INT64_MIN
/* Losses are multiples of its inverse, in f64. Sums of them are exact up to 2^53 / NN_LOSS_ONE. No
 * digit is lost: an f32 loss of 5 is known to 2^-21. */
#define NN_LOSS_ONE 0x1p24

/** The sum with fix(x) added. */
NN_FIXED_INLINE int64_t nn_fixed_sum(int64_t sum, double x)
{
    double scaled = x * NN_FIXED_ONE;
    if (!(fabs(scaled) < NN_FIXED_END)) /* also NaN */
        return NN_FIXED_BROKEN;
    int64_t added = (int64_t)((uint64_t)sum + (uint64_t)(int64_t)rint(scaled));
    return fabs((double)added) < NN_FIXED_END ? added : NN_FIXED_BROKEN;
}

#endif
