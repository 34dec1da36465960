/* Private: what nn_host_ordered.c takes from a kind of processor. nn_host_ordered_tile.h is their
 * source, compiled once for each kind. All of them give the same bits. */
#ifndef MIMO_NN_NN_HOST_ORDERED_KERNELS_H
#define MIMO_NN_NN_HOST_ORDERED_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "train/nn/ops/nn_ops.h"

#ifndef NN_REAL_F64

enum { NN_TILE_MOST_ROWS = 12, NN_TILE_MOST_COLUMNS = 32 };

/* k steps of the chains of a tile. Element (r, l) of the left factor is a[r * row + l * step], of
 * which one is 1; row l of the right factor is b + l * b_step. */
typedef struct nn_tile_run {
    const float *a;
    int64_t row, step;
    const float *b;
    int64_t b_step;
    int64_t k;
    bool fresh; /* begin with 0; otherwise with the tile's old elements */
} nn_tile_run;

/* The tile's rows are `stride` elements apart. */
typedef void nn_tile_kernel(float *tile, int64_t stride, const nn_tile_run *run);

typedef struct nn_ordered_kernels {
    const char *name;
    bool (*runs)(void);   /* on this processor */
    int64_t rows, vector; /* the most rows of a tile; elements of a vector. A tile has 1 or 2 */
    nn_tile_kernel *const *by_row;  /* [rows][2], where row is 1 */
    nn_tile_kernel *const *by_step; /* [rows][2], where step is 1 */
    /* to[l * width + j] = from[j * stride + l], j < columns, l < k; 0 where columns <= j < width.
     * `width` is a multiple of the vector. */
    void (*transpose)(float *to, int64_t width, const nn_matrix *from, int64_t columns);
    void (*add)(float *to, const float *from, int64_t n); /* to[i] += from[i] */
    /* The first `columns` elements of rows of `width`, to sums that are `stride` apart. */
    void (*add_fixed)(int64_t *sums, int64_t stride, const float *tile, int64_t width, int64_t rows,
                      int64_t columns);
} nn_ordered_kernels;

extern const nn_ordered_kernels nn_ordered_kernels_avx512, nn_ordered_kernels_avx2,
    nn_ordered_kernels_plain;

#endif
#endif
