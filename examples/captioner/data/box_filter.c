#include "captioner/data/box_filter.h"

/* How much of source pixel s lies under target pixel i, along one axis. */
static uint32_t overlap(int i, int s, int to, int from)
{
    int low = i * from > s * to ? i * from : s * to;
    int high = (i + 1) * from < (s + 1) * to ? (i + 1) * from : (s + 1) * to;
    return high > low ? (uint32_t)(high - low) : 0;
}

static void filter_pixel(uint8_t *target, int row, int column, int to, const uint8_t *source,
                         int from)
{
    uint64_t sum[3] = {0, 0, 0};
    for (int y = row * from / to; y * to < (row + 1) * from; y++) {
        for (int x = column * from / to; x * to < (column + 1) * from; x++) {
            uint64_t weight = (uint64_t)overlap(row, y, to, from) * overlap(column, x, to, from);
            const uint8_t *pixel = source + ((int64_t)y * from + x) * 3;
            for (int c = 0; c < 3; c++)
                sum[c] += weight * pixel[c];
        }
    }
    uint64_t area = (uint64_t)from * (uint64_t)from;
    for (int c = 0; c < 3; c++)
        target[c] = (uint8_t)((sum[c] + area / 2) / area);
}

void box_filter_rgb(uint8_t *target, int to, const uint8_t *source, int from)
{
    for (int row = 0; row < to; row++)
        for (int column = 0; column < to; column++)
            filter_pixel(target + ((int64_t)row * to + column) * 3, row, column, to, source, from);
}
