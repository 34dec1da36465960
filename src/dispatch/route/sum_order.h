/*
 * The order of the additions of a sum: a tree over places 0, 1, ... that halves [0, count) at
 *
 *   lo + (hi - lo) / 2
 *
 * A node with one child present is that child. So a sum depends on which terms there are, and not
 * on how they are cut into parts: a rank that has one node of the tree can add that part alone.
 * Pure.
 */
#ifndef MIMO_DISPATCH_SUM_ORDER_H
#define MIMO_DISPATCH_SUM_ORDER_H

#include <stdint.h>

/* The largest gap: between terms of one place, which are added one after the other. And the most
 * values that are open at once: one more than there are different gaps on a way through two trees.
 */
enum { MIMO_SUM_SAME_PLACE = 127, MIMO_SUM_INNER = 32, MIMO_SUM_OPEN = 72 };

/* The gap between places a < b: how many nodes, from the root down, have both. The larger, the
 * earlier the two sides are added. At most 32. */
int mimo_sum_gap(int64_t a, int64_t b, int64_t count);

/*
 * A sum as a list of its terms, from the left to the right. After term i,
 *
 *   adds[i] times, the last two open values are replaced by their sum
 *
 * Given the gap behind each term except the last one in `adds`, write the additions there.
 */
void mimo_sum_order(uint8_t *adds, int64_t count);

/* Several sums: sum i has terms leaf[begin[i]] to leaf[begin[i + 1]], rows of a tile. */
typedef struct mimo_sum_list {
    int64_t count;
    const int64_t *begin; /* [count + 1] */
    const int64_t *leaf;
    const uint8_t *adds;
} mimo_sum_list;

#endif
