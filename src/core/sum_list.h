/* Sums of rows of a tile, each with an order of its additions. */
#ifndef MIMO_CORE_SUM_LIST_H
#define MIMO_CORE_SUM_LIST_H

#include <stdint.h>

/* The most values that are open at once. */
enum { MIMO_SUM_OPEN = 72 };

/* Sum i has terms leaf[begin[i]] to leaf[begin[i + 1]], rows of a tile, from the left to the right.
 * After term n,
 *
 *   adds[n] times, the last two open values are replaced by their sum
 */
typedef struct mimo_sum_list {
    int64_t count;
    const int64_t *begin; /* [count + 1] */
    const int64_t *leaf;
    const uint8_t *adds;
} mimo_sum_list;

#endif
