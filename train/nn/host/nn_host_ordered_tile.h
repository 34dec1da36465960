/*
 * The kernels of one kind of processor. A file that includes this defines
 *
 *   NN_TARGET              attributes of a function for it
 *   NN_TILE_ROWS           4, 6 or 12
 *   NN_VECTOR, nn_vector   the elements of a vector, and its type
 *   nn_fix_widen(p)        four floats as four doubles (nn_host_ordered_fix.h)
 *   nn_zeros(), nn_load(p), nn_store(p, x), nn_each(p) (all elements are *p), nn_fma(a, b, c)
 *
 * An element of a tile stays in its lane of a register for all of k, so what a tile looks like has
 * no effect on the bits.
 */
#include "train/nn/host/nn_host_ordered_fix.h"
#include "train/nn/host/nn_host_ordered_kernels.h"

#define NN_INSIDE NN_TARGET static inline __attribute__((always_inline))

/* One step of k; a[r] is element r of the left factor. */
NN_INSIDE void nn_tile_step(const int rows, const int vectors, nn_vector sums[NN_TILE_ROWS][2],
                            const float *const a[NN_TILE_ROWS], const float *b)
{
    nn_vector right[2];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; v++)
        right[v] = nn_load(b + v * NN_VECTOR);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        nn_vector left = nn_each(a[r]);
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++)
            sums[r][v] = nn_fma(left, right[v], sums[r][v]);
    }
}

NN_INSIDE void nn_tile(const int rows, const int vectors, const bool by_row, float *tile,
                       int64_t stride, const nn_tile_run *run)
{
    nn_vector sums[NN_TILE_ROWS][2];
    const float *base[NN_TILE_ROWS / 2], *b = run->b;
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++)
            sums[r][v] = nn_zeros();
    if (!run->fresh)
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
            for (int v = 0; v < vectors; v++)
                sums[r][v] = nn_load(tile + r * stride + v * NN_VECTOR);
    const int64_t row = by_row ? 1 : run->row, step = by_row ? run->step : 1;
#pragma GCC unroll 16
    for (int g = 0; 3 * g < rows; g++) /* a pointer for three rows: registers are scarce */
        base[g] = run->a + 3 * g * row;
    for (int64_t l = 0; l < run->k; l++) {
        const float *a[NN_TILE_ROWS];
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
            a[r] = by_row ? base[0] + r : base[r / 3] + (r % 3) * row;
        nn_tile_step(rows, vectors, sums, a, b);
#pragma GCC unroll 16
        for (int g = 0; 3 * g < rows; g++)
            base[g] += step;
        b += run->b_step;
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++)
            nn_store(tile + r * stride + v * NN_VECTOR, sums[r][v]);
}

#define NN_TILE(rows, vectors)                                                    \
    NN_TARGET static void by_row_##rows##_##vectors(float *tile, int64_t stride,  \
                                                    const nn_tile_run *run)       \
    {                                                                             \
        nn_tile(rows, vectors, true, tile, stride, run);                          \
    }                                                                             \
    NN_TARGET static void by_step_##rows##_##vectors(float *tile, int64_t stride, \
                                                     const nn_tile_run *run)      \
    {                                                                             \
        nn_tile(rows, vectors, false, tile, stride, run);                         \
    }
#define NN_TILES(rows) NN_TILE(rows, 1) NN_TILE(rows, 2)
#define NN_BY_ROW(rows) by_row_##rows##_1, by_row_##rows##_2,
#define NN_BY_STEP(rows) by_step_##rows##_1, by_step_##rows##_2,

#define NN_FOUR(f) f(1) f(2) f(3) f(4)
#if NN_TILE_ROWS == 4
#define NN_EACH_TILE(f) NN_FOUR(f)
#elif NN_TILE_ROWS == 6
#define NN_EACH_TILE(f) NN_FOUR(f) f(5) f(6)
#else
#define NN_EACH_TILE(f) NN_FOUR(f) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12)
#endif

NN_EACH_TILE(NN_TILES)
static nn_tile_kernel *const by_row[2 * NN_TILE_ROWS] = {NN_EACH_TILE(NN_BY_ROW)};
static nn_tile_kernel *const by_step[2 * NN_TILE_ROWS] = {NN_EACH_TILE(NN_BY_STEP)};

NN_TARGET static void add(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

NN_TARGET static void add_fixed(int64_t *sums, int64_t stride, const float *tile, int64_t width,
                                int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++)
        nn_fix_row(sums + r * stride, tile + r * width, columns);
}
