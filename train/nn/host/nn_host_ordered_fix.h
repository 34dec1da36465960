/* Private: elements of a row added to sums in fixed point. A file that compiles this for one kind
 * of processor defines NN_TARGET and nn_fix_widen first (nn_host_ordered_tile.h). */
#ifndef MIMO_NN_NN_HOST_ORDERED_FIX_H
#define MIMO_NN_NN_HOST_ORDERED_FIX_H

#include <string.h>

#include "train/nn/ops/nn_fixed.h"
#include "train/nn/ops/nn_real.h"

static inline void nn_fix_each(int64_t *sums, const nn_real *x, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        sums[j] = nn_fixed_sum(sums[j], (double)x[j]);
}

#ifndef NN_REAL_F64
/* Vectors of the compiler, in the instructions of the function that uses them. */
typedef float nn_fix_floats __attribute__((vector_size(16), aligned(4), may_alias));
typedef double nn_fix_doubles __attribute__((vector_size(32)));
typedef uint64_t nn_fix_words __attribute__((vector_size(32)));
enum { NN_FIX_LANES = 4, NN_FIX_ROW = 4 * NN_FIX_LANES };

#ifndef NN_TARGET
#define NN_TARGET
#define nn_fix_widen(x) __builtin_convertvector(*(const nn_fix_floats *)(x), nn_fix_doubles)
#endif

/* Four sums with their elements. Adding 1.5 * 2^52 rounds to an integer, which then is in the low
 * bits. That is so where the result is in [2^52, 2^53), thus for |x| < 2^11; elsewhere one of the
 * highest 12 bits of far[0] is set. Where a sum comes near the end of the range, one of the highest
 * two bits of far[1] is. */
NN_TARGET static inline __attribute__((always_inline)) void
nn_fix_vector(nn_fix_words *to, nn_fix_words far[2], const int64_t *sums, const nn_real *x)
{
    const uint64_t first = 0x4330000000000000u, half = (uint64_t)1 << 51; /* 2^52 has these bits */
    const uint64_t quarter = (uint64_t)1 << 61;
    nn_fix_words added;
    memcpy(&added, sums, sizeof added);
    nn_fix_doubles rounded = nn_fix_widen(x) * NN_FIXED_ONE + 0x1.8p52;
    nn_fix_words fixed = (nn_fix_words)rounded - first;
    added += fixed - half;
    far[0] |= fixed;
    far[1] |= added + quarter;
    *to = added;
}

/* The same as nn_fix_each for groups * NN_FIX_LANES elements. */
NN_TARGET static inline __attribute__((always_inline)) void
nn_fix_groups(int64_t *sums, const nn_real *x, const int groups)
{
    nn_fix_words added[4], far[2] = {{0}, {0}};
#pragma GCC unroll 4
    for (int g = 0; g < groups; g++)
        nn_fix_vector(&added[g], far, sums + g * NN_FIX_LANES, x + g * NN_FIX_LANES);
    far[0] = (far[0] >> 52) | (far[1] >> 62);
    if (far[0][0] | far[0][1] | far[0][2] | far[0][3])
        nn_fix_each(sums, x, groups * NN_FIX_LANES);
    else
        memcpy(sums, added, (size_t)groups * sizeof *added);
}

/** sums[j] = nn_fixed_sum(sums[j], x[j]), j < n. */
NN_TARGET static inline __attribute__((always_inline)) void nn_fix_row(int64_t *sums,
                                                                       const nn_real *x, int64_t n)
{
    for (; n >= NN_FIX_ROW; n -= NN_FIX_ROW, sums += NN_FIX_ROW, x += NN_FIX_ROW)
        nn_fix_groups(sums, x, 4);
    for (; n >= NN_FIX_LANES; n -= NN_FIX_LANES, sums += NN_FIX_LANES, x += NN_FIX_LANES)
        nn_fix_groups(sums, x, 1);
    nn_fix_each(sums, x, n);
}
#else
static inline void nn_fix_row(int64_t *sums, const nn_real *x, int64_t n)
{
    nn_fix_each(sums, x, n);
}
#endif

#endif
