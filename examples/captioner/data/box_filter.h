/* Box filtering: each pixel becomes the mean of the area that it covers. */
#ifndef CAPTIONER_BOX_FILTER_H
#define CAPTIONER_BOX_FILTER_H

#include <stdint.h>

/*
 * Scale a square RGB image of `from` pixels a side down to `to` <= `from` pixels a side.
 *
 * Along one axis, in units of 1 / `to` of a source pixel, target i covers [i * from, (i + 1) *
 * from) and source s covers [s * to, (s + 1) * to): the overlaps are whole numbers that add up to
 * `from`, so the mean is exact and rounds once, to the nearest.
 */
void box_filter_rgb(uint8_t *target, int to, const uint8_t *source, int from);

#endif
