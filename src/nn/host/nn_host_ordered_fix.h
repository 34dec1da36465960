/* Private: elements of a row added to sums in fixed point. */
#ifndef MIMO_NN_NN_HOST_ORDERED_FIX_H
#define MIMO_NN_NN_HOST_ORDERED_FIX_H

#include <string.h>

#include "nn/nn_fixed.h"
#include "nn/nn_real.h"

static inline void nn_fix_each(int64_t *sums, const nn_real *x, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        sums[j] = nn_fixed_sum(sums[j], (double)x[j]);
}

#ifndef NN_REAL_F64
/* Vectors of the compiler, in the instructions of the function that uses them. */
typedef float nn_fix_floats __attribute__((vector_size(16), aligned(4)));
typedef double nn_fix_doubles __attribute__((vector_size(32)));
typedef uint64_t nn_fix_words __attribute__((vector_size(32)));
enum { NN_FIX_LANES = 4, NN_FIX_GROUP = 2 * NN_FIX_LANES };

/* Four sums with their elements. Adding 1.5 * 2^52 rounds to an integer, which then is in the low
 * bits. That is so where the result is in [2^52, 2^53), thus for |x| < 2^11; elsewhere, and where a
 * sum comes near the end of the range, one of the highest bits of *far is set. */
static inline __attribute__((always_inline)) void
nn_fix_vector(nn_fix_words *added, nn_fix_words *far, const int64_t *sums, const nn_real *x)
{
    const uint64_t first = 0x4330000000000000u, half = (uint64_t)1 << 51; /* 2^52 has these bits */
    const uint64_t quarter = (uint64_t)1 << 61;
    nn_fix_floats floats;
    memcpy(&floats, x, sizeof floats);
    memcpy(added, sums, sizeof *added);
    nn_fix_doubles rounded =
        __builtin_convertvector(floats, nn_fix_doubles) * NN_FIXED_ONE + 0x1.8p52;
    nn_fix_words fixed = (nn_fix_words)rounded - first;
    *added += fixed - half;
    *far |= (fixed >> 52) | ((*added + quarter) >> 62);
}

/** sums[j] = nn_fixed_sum(sums[j], x[j]), j < n. */
static inline __attribute__((always_inline)) void nn_fix_row(int64_t *sums, const nn_real *x,
                                                             int64_t n)
{
    int64_t j = 0;
    for (; j + NN_FIX_GROUP <= n; j += NN_FIX_GROUP) {
        nn_fix_words low, high, far = {0};
        nn_fix_vector(&low, &far, sums + j, x + j);
        nn_fix_vector(&high, &far, sums + j + NN_FIX_LANES, x + j + NN_FIX_LANES);
        if (far[0] | far[1] | far[2] | far[3]) {
            nn_fix_each(sums + j, x + j, NN_FIX_GROUP);
            continue;
        }
        memcpy(sums + j, &low, sizeof low);
        memcpy(sums + j + NN_FIX_LANES, &high, sizeof high);
    }
    nn_fix_each(sums + j, x + j, n - j);
}
#else
static inline void nn_fix_row(int64_t *sums, const nn_real *x, int64_t n)
{
    nn_fix_each(sums, x, n);
}
#endif

#endif
