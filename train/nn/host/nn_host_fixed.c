/* The sums of the fixed order: fixed point, trees, and the squares of the norm. */
#include <math.h>

#include "train/nn/host/nn_host.h"
#include "train/nn/host/nn_host_ordered_fix.h"
#include "train/nn/host/nn_math.h"

mimo_status nn_host_add_columns_fixed(const nn_runtime *runtime, int64_t *sums, const nn_real *x,
                                      int64_t rows, int64_t width)
{
    (void)runtime;
    for (int64_t i = 0; i < rows; i++)
        nn_fix_row(sums, x + i * width, width);
    return MIMO_OK;
}

mimo_status nn_host_lookup_backward_fixed(const nn_runtime *runtime, int64_t *sums,
                                          const nn_real *dy, const nn_lookup *lookup,
                                          const nn_uses *uses)
{
    (void)runtime;
    int64_t width = lookup->width;
    for (int64_t k = 0; k < uses->count; k++)
        for (int64_t u = uses->begin[k]; u < uses->begin[k + 1]; u++)
            for (int64_t j = 0; j < lookup->repeat; j++)
                nn_fix_row(sums + uses->entry[k] * width,
                           dy + (uses->order[u] * lookup->repeat + j) * width, width);
    return MIMO_OK;
}

mimo_status nn_host_tree(const nn_runtime *runtime, nn_real *to, nn_real *parts, int64_t count,
                         int64_t n)
{
    (void)runtime;
    for (int64_t distance = 1; distance < count; distance *= 2)
        for (int64_t p = 0; p < count; p += 2 * distance) {
            nn_real *left = parts + p * n;
            const nn_real *right = left + distance * n;
            for (int64_t i = 0; i < n; i++)
                left[i] += right[i];
        }
    for (int64_t i = 0; to != parts && i < n; i++)
        to[i] = parts[i];
    return MIMO_OK;
}

mimo_status nn_host_fixed_largest(const nn_runtime *runtime, double *most, const int64_t *sums,
                                  int64_t n)
{
    (void)runtime;
    for (int64_t i = 0; i < n; i++) {
        double size = fabs((double)sums[i]);
        *most = size > *most ? size : *most;
    }
    return MIMO_OK;
}

/* Element i is written over the sum i / 2, which has been read. */
mimo_status nn_host_settle(const nn_runtime *runtime, int64_t *sums, int64_t n, double factor)
{
    (void)runtime;
    char *to = (char *)sums;
    for (int64_t i = 0; i < n; i++) {
        nn_real value = (nn_real)((double)sums[i] * factor);
        memcpy(to + i * (int64_t)sizeof value, &value, sizeof value);
    }
    return MIMO_OK;
}

/* Elements of a row, of which the first belongs to lane `first`. */
static void add_squares(double lanes[NN_LANES], const nn_real *x, int64_t n, int64_t first)
{
    int64_t j = 0;
    for (; j < n && (first + j) % NN_LANES != 0; j++)
        lanes[(first + j) % NN_LANES] += (double)x[j] * (double)x[j];
    for (; j + NN_LANES <= n; j += NN_LANES)
        for (int l = 0; l < NN_LANES; l++)
            lanes[l] += (double)x[j + l] * (double)x[j + l];
    for (int l = 0; j < n; j++, l++)
        lanes[l] += (double)x[j] * (double)x[j];
}

static double squares_of(const nn_matrix *x, const nn_real *data)
{
    double lanes[NN_LANES] = {0}, sum = 0;
    for (int64_t i = 0; i < x->rows; i++)
        add_squares(lanes, data + i * x->stride, x->columns, i * x->columns % NN_LANES);
    for (int l = 0; l < NN_LANES; l++)
        sum += lanes[l];
    return sum;
}

mimo_status nn_host_block_squares(const nn_runtime *runtime, double *sums, const nn_matrix *x,
                                  int64_t count)
{
    (void)runtime;
    for (int64_t i = 0; i < count; i++)
        sums[i] = squares_of(x, x->data + i * x->step);
    return MIMO_OK;
}

mimo_status nn_host_plain_zeros(const nn_runtime *runtime, nn_real *x, int64_t n)
{
    (void)runtime;
    for (int64_t i = 0; i < n; i++)
        x[i] += 0;
    return MIMO_OK;
}
