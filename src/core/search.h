/* Binary search. */
#ifndef MIMO_CORE_SEARCH_H
#define MIMO_CORE_SEARCH_H

#include <stdint.h>

/* The last i in [0, count) with first[i * stride] <= value. The numbers ascend, and the first is
 * not above the value. */
static inline int64_t mimo_last_at_most(const int64_t *first, int64_t stride, int64_t count,
                                        int64_t value)
{
    int64_t low = 0, high = count;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (first[middle * stride] <= value)
            low = middle;
        else
            high = middle;
    }
    return low;
}

#endif
