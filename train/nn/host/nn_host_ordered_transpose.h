/* Private: blocks of 8 x 8 elements transposed in registers of AVX. */
#include <immintrin.h>
#include <string.h>

#include "train/nn/ops/nn_ops.h"

/* to[l * width + j] = from[j * stride + l], j, l < 8 */
NN_TARGET static inline void nn_transpose_8(float *to, int64_t width, const float *from,
                                            int64_t stride)
{
    __m256 r[8], pairs[8], fours[8];
    for (int j = 0; j < 8; j++)
        r[j] = _mm256_loadu_ps(from + j * stride);
    for (int j = 0; j < 8; j += 2) {
        pairs[j] = _mm256_unpacklo_ps(r[j], r[j + 1]);
        pairs[j + 1] = _mm256_unpackhi_ps(r[j], r[j + 1]);
    }
    for (int j = 0; j < 8; j += 4)
        for (int h = 0; h < 2; h++) {
            fours[j + 2 * h] = _mm256_shuffle_ps(pairs[j + h], pairs[j + 2 + h], 0x44);
            fours[j + 2 * h + 1] = _mm256_shuffle_ps(pairs[j + h], pairs[j + 2 + h], 0xee);
        }
    for (int l = 0; l < 4; l++) {
        _mm256_storeu_ps(to + l * width, _mm256_permute2f128_ps(fours[l], fours[l + 4], 0x20));
        _mm256_storeu_ps(to + (l + 4) * width,
                         _mm256_permute2f128_ps(fours[l], fours[l + 4], 0x31));
    }
}

NN_TARGET static void nn_transpose_part(float *to, int64_t width, const nn_matrix *from,
                                        int64_t first, int64_t count)
{
    for (int64_t l = 0; l < from->rows; l++)
        for (int64_t j = first; j < first + 8; j++)
            to[l * width + j] = j < first + count ? from->data[j * from->stride + l] : 0;
}

NN_TARGET static void transpose(float *to, int64_t width, const nn_matrix *from, int64_t columns)
{
    int64_t whole = from->rows - from->rows % 8;
    for (int64_t j = 0; j < width; j += 8) {
        if (j + 8 > columns) {
            nn_transpose_part(to, width, from, j, columns > j ? columns - j : 0);
            continue;
        }
        const float *line = from->data + j * from->stride;
        for (int64_t l = 0; l < whole; l += 8)
            nn_transpose_8(to + l * width + j, width, line + l, from->stride);
        for (int64_t l = whole; l < from->rows; l++)
            for (int64_t i = 0; i < 8; i++)
                to[l * width + j + i] = line[i * from->stride + l];
    }
}
