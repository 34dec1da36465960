/*
 * What the ranks of grids that pair (mimo_pairing_of) exchange, without a plan of each rank.
 *
 * Let n be the smaller of the two dp sizes. Its coordinates divide the ranks into n *slices* of P
 * ranks. A cell of either layout lies in one slice, with all rows that it gives and needs. So
 * slices exchange nothing. In a slice, src has N cells of C = P / N equal copies each.
 *
 * Claim: every rank keeps m rows, receives N - 1 messages of m rows, and sends N - 1. Ranks
 * differ only in how many of these messages are one run in memory.
 *
 * Why, received: a rank needs T rows. One side leaves sequences whole. So two cells share as many
 * rows as the smaller number of samples times the shorter shard. This product is the same for any
 * two cells of the slice. The rank needs from each of the N cells
 *
 *   m = T / N
 *
 * rows. It holds one of the cells and keeps those m rows. The others come from N - 1 ranks.
 *
 * Why, sent: the P readers of a cell have consecutive numbers, and the first number is a multiple
 * of P and therefore of C (plan.c: the rule that names a sender). C of them hold the cell and drop
 * out. The other (N - 1) C readers take turns at the C copies. So each copy sends to N - 1 of them.
 */
#ifndef MIMO_TOOLS_PLAN_PAIRED_H
#define MIMO_TOOLS_PLAN_PAIRED_H

#include "tools/plan_cost.h"

/* The largest value of each field over the plans of all ranks. in, out, local and pair are the same
 * on every rank. The layouts are those of grids that pair, in either order, with whole sequences on
 * the encoder's side and equal copies. Both dp sizes divide the batch. Nothing is ragged or packed.
 * MIMO_ERR_MEMORY. */
mimo_status mimo_plan_load_paired(mimo_plan_load *out, const mimo_layout *src,
                                  const mimo_layout *dst, int64_t row_bytes);

#endif
