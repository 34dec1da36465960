/*
 * What the ranks of grids that pair (mimo_pairing_of) exchange, without a plan of each.
 *
 * Let n be the smaller of the two dp sizes. Its coordinates cut the ranks into n *slices* of P,
 * which exchange nothing: a cell of either layout lies in one slice, with all that it gives and
 * needs. In a slice src has N cells of C = P / N equal copies each.
 *
 *   receives   A rank needs T rows, of each of the N cells the same number, m = T / N: one side
 *              leaves sequences whole, so what two cells share is the fewer samples times the
 *              shorter shard. One of the cells it holds itself: it keeps m rows, and N - 1 messages
 *              of m rows come from as many ranks.
 *   sends      The P readers of a cell have consecutive numbers from a multiple of P, so of C, on
 *              (plan.c: the rule that names a sender). Without the C that hold the cell they are
 *              (N - 1) C, which take turns at its C copies: each copy sends to N - 1 of them.
 *
 * So every rank keeps m rows, sends N - 1 messages of m rows and receives as many. Ranks differ
 * only in how many of these messages are one run in memory.
 */
#ifndef MIMO_BRIDGE_PLAN_PAIRED_H
#define MIMO_BRIDGE_PLAN_PAIRED_H

#include "tools/plan_cost.h"

/* The most of each field over the plans of all ranks; in, out, local and pair are every rank's. The
 * layouts are those of grids that pair, in either order, with whole sequences on the encoder's side
 * and equal copies; both dp sizes divide the batch; nothing is ragged or packed.
 * MIMO_ERR_MEMORY. */
mimo_status mimo_plan_load_paired(mimo_plan_load *out, const mimo_layout *src,
                                  const mimo_layout *dst, int64_t row_bytes);

#endif
