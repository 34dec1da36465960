#include "train/nn/ops/nn_order.h"

#include <inttypes.h>

#include "core/check.h"

static bool is_power_of_two(int64_t n)
{
    return n >= 1 && (n & (n - 1)) == 0;
}

mimo_status nn_order_check_parts(const char *what, int64_t parts)
{
    MIMO_CHECK(is_power_of_two(parts) && parts <= NN_MOST_PARTS, MIMO_ERR_ARGUMENT,
               "fixed order: %s is %" PRId64 ", must be a power of two up to %d", what, parts,
               NN_MOST_PARTS);
    return MIMO_OK;
}

mimo_status nn_order_check_ranks(const char *what, int64_t ranks, int64_t parts)
{
    MIMO_CHECK(is_power_of_two(ranks), MIMO_ERR_UNSUPPORTED,
               "fixed order: %s=%" PRId64 " is no power of two: a rank's part of a sum of %" PRId64
               " parts would be no subtree",
               what, ranks, parts);
    MIMO_CHECK(ranks <= parts, MIMO_ERR_UNSUPPORTED,
               "fixed order: %s=%" PRId64 " is more than the %" PRId64 " parts of a sum", what,
               ranks, parts);
    return MIMO_OK;
}

/* The position of row i of a rank's 2 chunks in the zigzag partition. */
static int64_t zigzag(int64_t i, int64_t rows, int rank, int ranks)
{
    int64_t chunk = rows / 2;
    return i < chunk ? rank * chunk + i : (2 * ranks - 1 - rank) * chunk + i - chunk;
}

mimo_status nn_order_check_positions(const int64_t *positions, int64_t rows, int rank, int ranks,
                                     int64_t pairs)
{
    int64_t all = ranks * rows;
    /* One pair is the whole sequence, of any length. */
    MIMO_CHECK(pairs == 1 || all % (2 * pairs) == 0, MIMO_ERR_SHAPE,
               "fixed order: a sequence of %" PRId64 " positions does not divide into %" PRId64
               " pairs of chunks",
               all, pairs);
    for (int64_t i = 0; i < rows; i++) {
        int64_t expected = ranks == 1 ? i : zigzag(i, rows, rank, ranks);
        MIMO_CHECK(positions[i] == expected, MIMO_ERR_UNSUPPORTED,
                   "fixed order: row %" PRId64 " of cp rank %d of %d has position %" PRId64
                   ", the zigzag partition has %" PRId64
                   " there; other partitions' pairs of chunks are no subtree of the sum",
                   i, rank, ranks, positions[i], expected);
    }
    return MIMO_OK;
}

nn_piece nn_order_piece(int64_t k, int64_t parts, bool folded, int64_t part, int piece)
{
    if (!folded)
        return (nn_piece){part * (k / parts), piece == 0 ? k / parts : 0};
    if (parts == 1) /* one pair: both chunks follow each other, also where k is odd */
        return (nn_piece){0, piece == 0 ? k : 0};
    int64_t chunk = k / (2 * parts);
    return (nn_piece){(piece == 0 ? part : 2 * parts - 1 - part) * chunk, chunk};
}
