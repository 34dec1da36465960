/*
 * The order of the additions of a sum, by the tree of core/sum_tree.h. So a sum depends on which
 * terms there are, and not on how they are cut into parts: a rank that has one node of the tree can
 * add that part alone. Pure.
 */
#ifndef MIMO_DISPATCH_SUM_ORDER_H
#define MIMO_DISPATCH_SUM_ORDER_H

#include "core/sum_list.h"
#include "core/sum_tree.h"

/* A sum as in a mimo_sum_list: given the gap behind each term except the last one in `adds`, write
 * the additions there. */
void mimo_sum_order(uint8_t *adds, int64_t count);

#endif
