/* Elementary functions and reductions that compilers can vectorise without relaxing IEEE rules.
 * Reductions keep NN_LANES partial results, so the source fixes their order. */
#ifndef MIMO_NN_NN_MATH_H
#define MIMO_NN_NN_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "train/nn/ops/nn_real.h"

enum { NN_LANES = 8 };

#ifdef NN_REAL_F64
static inline nn_real nn_exp(nn_real x)
{
    return exp(x);
}
static inline nn_real nn_sqrt(nn_real x)
{
    return sqrt(x);
}
#else
static inline int32_t nn_float_word(float x)
{
    int32_t word;
    memcpy(&word, &x, sizeof word);
    return word;
}

static inline float nn_word_float(int32_t word)
{
    float x;
    memcpy(&x, &word, sizeof x);
    return x;
}

/* exp to about 2 ulp for |x| <= 60, and exp(+-60) beyond. A sum with 1 does not change there, and
 * subnormal numbers, which are slow, stay far away. NaN and infinities give NaN.
 *
 *   exp(x) = 2^n p(r),    |r| <= ln 2 / 2
 *
 * p is a Taylor polynomial. Its first missing term is below 6e-9. libm's expf would be one call for
 * each element. The clamp works on the bits as integers, because compilers turn a clamp of floats
 * into branches. */
static inline nn_real nn_exp(nn_real x)
{
    const float rounder = 0x1.8p23f; /* adding it rounds to an integer, in the low bits */
    const int32_t most = 0x42700000; /* the bits of 60 */
    int32_t word = nn_float_word(x), size = word & INT32_MAX;
    float nan = x - x;
    size = size < most ? size : most;
    x = nn_word_float(size | (word & INT32_MIN));
    float shifted = x * 0x1.715476p0f + rounder;
    float n = shifted - rounder;
    float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f; /* ln 2 as a sum of two numbers */
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    int32_t power = (int32_t)((uint32_t)(nn_float_word(shifted) - 0x4b400000 + 127) << 23);
    return p * nn_word_float(power) + nan;
}
static inline nn_real nn_sqrt(nn_real x)
{
    return sqrtf(x);
}
#endif

/* Largest element of x[n], at least -1e30. */
static inline nn_real nn_max(const nn_real *x, int64_t n)
{
    nn_real lane[NN_LANES], most = (nn_real)-1e30;
    int64_t j = 0;
    for (int l = 0; l < NN_LANES; l++)
        lane[l] = most;
    for (; j + NN_LANES <= n; j += NN_LANES)
        for (int l = 0; l < NN_LANES; l++)
            lane[l] = x[j + l] > lane[l] ? x[j + l] : lane[l];
    for (; j < n; j++)
        lane[0] = x[j] > lane[0] ? x[j] : lane[0];
    for (int l = 0; l < NN_LANES; l++)
        most = lane[l] > most ? lane[l] : most;
    return most;
}

static inline nn_real nn_sum(const nn_real *x, int64_t n)
{
    nn_real lane[NN_LANES] = {0}, sum = 0;
    int64_t j = 0;
    for (; j + NN_LANES <= n; j += NN_LANES)
        for (int l = 0; l < NN_LANES; l++)
            lane[l] += x[j + l];
    for (; j < n; j++)
        lane[0] += x[j];
    for (int l = 0; l < NN_LANES; l++)
        sum += lane[l];
    return sum;
}

static inline nn_real nn_dot(const nn_real *x, const nn_real *y, int64_t n)
{
    nn_real lane[NN_LANES] = {0}, sum = 0;
    int64_t j = 0;
    for (; j + NN_LANES <= n; j += NN_LANES)
        for (int l = 0; l < NN_LANES; l++)
            lane[l] += x[j + l] * y[j + l];
    for (; j < n; j++)
        lane[0] += x[j] * y[j];
    for (int l = 0; l < NN_LANES; l++)
        sum += lane[l];
    return sum;
}

/* Sums of x[n] and of (x - mean)^2, in f64. */
static inline double nn_sum_f64(const nn_real *x, int64_t n)
{
    double lane[NN_LANES] = {0}, sum = 0;
    int64_t j = 0;
    for (; j + NN_LANES <= n; j += NN_LANES)
        for (int l = 0; l < NN_LANES; l++)
            lane[l] += (double)x[j + l];
    for (; j < n; j++)
        lane[0] += (double)x[j];
    for (int l = 0; l < NN_LANES; l++)
        sum += lane[l];
    return sum;
}

static inline double nn_sum_deviations(const nn_real *x, double mean, int64_t n)
{
    double lane[NN_LANES] = {0}, sum = 0;
    int64_t j = 0;
    for (; j + NN_LANES <= n; j += NN_LANES)
        for (int l = 0; l < NN_LANES; l++)
            lane[l] += ((double)x[j + l] - mean) * ((double)x[j + l] - mean);
    for (; j < n; j++)
        lane[0] += ((double)x[j] - mean) * ((double)x[j] - mean);
    for (int l = 0; l < NN_LANES; l++)
        sum += lane[l];
    return sum;
}

#endif
