/* Products of the fixed order by fmaf alone: on any processor. */
#include "train/nn/host/nn_host_ordered_kernels.h"

#ifndef NN_REAL_F64
#include <math.h>

#define NN_TARGET
#define nn_fix_widen(x) __builtin_convertvector(*(const nn_fix_floats *)(x), nn_fix_doubles)
#define NN_TILE_ROWS 4
#define NN_VECTOR 1
typedef float nn_vector;

static inline float nn_zeros(void)
{
    return 0;
}

static inline float nn_load(const float *x)
{
    return *x;
}

static inline void nn_store(float *to, float x)
{
    *to = x;
}

static inline float nn_each(const float *x)
{
    return *x;
}

static inline float nn_fma(float a, float b, float c)
{
    return fmaf(a, b, c);
}

#include "train/nn/host/nn_host_ordered_tile.h"

static bool runs(void)
{
    return true;
}

static void transpose(float *to, int64_t width, const nn_matrix *from, int64_t columns)
{
    for (int64_t l = 0; l < from->rows; l++)
        for (int64_t j = 0; j < width; j++)
            to[l * width + j] = j < columns ? from->data[j * from->stride + l] : 0;
}

const nn_ordered_kernels nn_ordered_kernels_plain = {
    .name = "plain",
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
