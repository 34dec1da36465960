/* Products of the fixed order by AVX2 (x86-64-v3). */
#include "train/nn/host/nn_host_ordered_kernels.h"

#if defined(__x86_64__) && !defined(NN_REAL_F64)
#include <immintrin.h>

#define NN_TARGET __attribute__((target("avx2,fma")))
#define NN_TILE_ROWS 6
#define NN_VECTOR 8
typedef __m256 nn_vector;

#define nn_zeros() _mm256_setzero_ps()
#define nn_load(x) _mm256_loadu_ps(x)
#define nn_store(to, x) _mm256_storeu_ps(to, x)
#define nn_each(x) _mm256_set1_ps(*(x))
#define nn_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define nn_fix_widen(x) ((nn_fix_doubles)_mm256_cvtps_pd(_mm_loadu_ps(x)))

#include "train/nn/host/nn_host_ordered_tile.h"
#include "train/nn/host/nn_host_ordered_transpose.h"

static bool runs(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

const nn_ordered_kernels nn_ordered_kernels_avx2 = {
    .name = "AVX2",
    .runs = runs,
    .rows = NN_TILE_ROWS,
    .vector = NN_VECTOR,
    .by_row = by_row,
    .by_step = by_step,
    .transpose = transpose,
    .add = add,
    .add_fixed = add_fixed,
};
#endif
