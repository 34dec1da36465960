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

#include "core/sum_list.h"

/* The largest gap: between terms of one place, which are added one after the other. The most values
 * that are open at once (MIMO_SUM_OPEN) are one more than there are different gaps on a way through
 * two trees. */
enum { MIMO_SUM_SAME_PLACE = 127, MIMO_SUM_INNER = 32 };

/* The gap between places a < b: how many nodes, from the root down, have both. The larger, the
 * earlier the two sides are added. At most 32. */
int mimo_sum_gap(int64_t a, int64_t b, int64_t count);

/* A sum as in a mimo_sum_list: given the gap behind each term except the last one in `adds`, write
 * the additions there. */
void mimo_sum_order(uint8_t *adds, int64_t count);

#endif
