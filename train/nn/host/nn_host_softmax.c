/* Softmax of attention scores. */
#include <stddef.h>

#include "train/nn/host/nn_host.h"
#include "train/nn/host/nn_math.h"

static void softmax_row(nn_real *row, const nn_real *mask, int64_t n)
{
    if (mask)
        for (int64_t j = 0; j < n; j++)
            row[j] = mask[j] > 0 ? row[j] : (nn_real)-1e30;
    nn_real most = nn_max(row, n);
    if (mask) /* a clamped exp never gives 0: set masked weights to 0 */
        for (int64_t j = 0; j < n; j++)
            row[j] = nn_exp(row[j] - most) * mask[j];
    else
        for (int64_t j = 0; j < n; j++)
            row[j] = nn_exp(row[j] - most);
    nn_real scale = 1 / nn_sum(row, n);
    for (int64_t j = 0; j < n; j++)
        row[j] *= scale;
}

mimo_status nn_host_softmax(const nn_runtime *runtime, const nn_scores *scores)
{
    (void)runtime;
    int64_t width = scores->width;
    for (int64_t p = 0; p < scores->panels; p++)
        for (int64_t i = 0; i < scores->rows; i++)
            softmax_row(scores->data + (p * scores->rows + i) * width,
                        scores->mask ? scores->mask + i * width : NULL, width);
    return MIMO_OK;
}

mimo_status nn_host_softmax_backward(const nn_runtime *runtime, nn_real *d, const nn_real *w,
                                     int64_t rows, int64_t width)
{
    (void)runtime;
    for (int64_t i = 0; i < rows; i++, d += width, w += width) {
        nn_real mean = nn_dot(d, w, width);
        for (int64_t j = 0; j < width; j++)
            d[j] = w[j] * (d[j] - mean);
    }
    return MIMO_OK;
}
