/*
 * The order of additions. In the fast order the sizes of a rank's own tensors decide it, so two
 * topologies differ in the last digits. In the fixed order the model decides it: the same bits from
 * every tp, cp, dp and number of micro-batches ("The same bits" of docs/concepts.md).
 *
 *   product            one chain of fma for each output, k ascending
 *   sum over tp        V parts of equal size in the global index, a chain for each; the chains are
 *                      added by a balanced binary tree, of which each rank's parts are a subtree
 *   sum over tokens    fixed point (nn_fixed.h), a chain for each (sample, pair of chunks)
 *   sum over cp        a chain for each pair of chunks, added by a tree over the C pairs
 *
 * A sequence of 2 C equal chunks has C pairs: pair p is chunk p, then chunk 2 C - 1 - p. The zigzag
 * partition of context parallelism gives each rank the chunks of successive pairs, in the order
 * that `folded` of a product expects. All of this is pure.
 */
#ifndef MIMO_NN_NN_ORDER_H
#define MIMO_NN_NN_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include <mimo/status.h>

MIMO_BEGIN_DECLS

typedef enum nn_order {
    NN_ORDER_FAST = 0,
    NN_ORDER_FIXED = 1, /* only in f32 of full precision */
} nn_order;

/** The largest number of parts of a tree. */
enum { NN_MOST_PARTS = 64 };

/** Check V or C: a power of two up to NN_MOST_PARTS. `what` names it. MIMO_ERR_ARGUMENT. */
mimo_status nn_order_check_parts(const char *what, int64_t parts);

/** Check that `ranks` is a power of two that divides `parts`, so that each rank's parts are a
 *  subtree. `what` names the dimension ("tp"). MIMO_ERR_UNSUPPORTED. */
mimo_status nn_order_check_ranks(const char *what, int64_t ranks, int64_t parts);

/** Check that positions[rows] are those of rank `rank` of `ranks` in the zigzag partition of
 *  ranks * rows positions, and that 2 * pairs divides these; `pairs` are those of all ranks.
 *  MIMO_ERR_UNSUPPORTED, MIMO_ERR_SHAPE. */
mimo_status nn_order_check_positions(const int64_t *positions, int64_t rows, int rank, int ranks,
                                     int64_t pairs);

/** Elements [first, first + count) of the dimension that a product sums over. */
typedef struct nn_piece {
    int64_t first, count;
} nn_piece;

/** Piece 0 or 1 of part `part` of `parts` of k elements. `folded` parts, where there are several,
 *  are two pieces: chunk `part` of 2 * parts equal chunks, then chunk 2 * parts - 1 - part. Others
 *  are one: piece 1 is empty. The number of parts, or of these chunks, divides k. Pure. */
nn_piece nn_order_piece(int64_t k, int64_t parts, bool folded, int64_t part, int piece);

MIMO_END_DECLS

#endif
