/*
 * The tree of a sum: over places 0, 1, ..., it halves [0, count) at
 *
 *   lo + (hi - lo) / 2
 *
 * A node with one child present is that child.
 */
#ifndef MIMO_CORE_SUM_TREE_H
#define MIMO_CORE_SUM_TREE_H

#include "core/host_device.h"

/* The largest gap: between terms of one place, which are added one after the other. In two trees,
 * one within the other, gaps of the inner one are larger by MIMO_SUM_INNER. */
enum { MIMO_SUM_SAME_PLACE = 127, MIMO_SUM_INNER = 32 };

static inline MIMO_HOST_AND_DEVICE int mimo_leading_zeros(unsigned value)
{
#ifdef __CUDA_ARCH__
    return __clz((int)value);
#else
    return __builtin_clz(value);
#endif
}

/* The gap between places a < b: how many nodes, from the root down, have both. The larger, the
 * earlier the two sides are added. At most 32. */
static inline MIMO_HOST_AND_DEVICE int mimo_sum_gap(int a, int b, int count)
{
    int lo = 0, hi = count, gap = 0;
    if ((count & (count - 1)) == 0) /* a node has the places of equal upper bits */
        return mimo_leading_zeros((unsigned)(a ^ b)) - mimo_leading_zeros((unsigned)count);
    for (;;) {
        const int middle = lo + (hi - lo) / 2;
        gap++;
        if (a < middle && b >= middle)
            return gap;
        if (b < middle)
            hi = middle;
        else
            lo = middle;
    }
}

#endif
