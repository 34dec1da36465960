/* Programs that move rows between two places: how few loops they need, how wide their words can be,
 * and how many workers write over the link. */
#ifndef MIMO_COMM_ROW_LOOPS_H
#define MIMO_COMM_ROW_LOOPS_H

#include "core/rows.h"

enum {
    MIMO_WIDEST_WORD = 4, /* a word has at most 1 << 4 bytes, which bulk copies need */
    /* Speeds by loads and stores: copying within a device is a little more than twice as fast as
     * writing over the link (H200, 32 thread blocks), and 1.4 times where both move in bulk. */
    MIMO_LINK_SPEED = 5,
    MIMO_LINK_SPEED_IN_BULK = 8,
    MIMO_COPY_SPEED = 11,
};

/* Matching rows in two loops. Rows and strides are bytes. */
typedef struct mimo_row_loops {
    int64_t row, n_inner, n_outer;
    int64_t to_inner, from_inner, to_outer, from_outer;
} mimo_row_loops;

/* Loops are merged into the row, in the order of the rows: rows that lie one after the other at
 * both ends are one longer row, and a loop of one iteration is no loop. */
static inline mimo_row_loops mimo_row_loops_of(const mimo_rows *to, const mimo_rows *from)
{
    int64_t bytes = to->row_bytes;
    mimo_row_loops it = {.row = bytes,
                         .n_inner = to->n_inner,
                         .n_outer = to->n_outer,
                         .to_inner = to->inner * bytes,
                         .from_inner = from->inner * bytes,
                         .to_outer = to->outer * bytes,
                         .from_outer = from->outer * bytes};
    for (int loop = 0; loop < 2; loop++) {
        bool one_run = it.to_inner == it.row && it.from_inner == it.row;
        if (it.n_inner > 1 && !one_run)
            return it;
        it = (mimo_row_loops){it.row * it.n_inner, it.n_outer, 1, it.to_outer, it.from_outer, 0, 0};
    }
    return it;
}

/* The widest word that divides rows, strides and the bits of addresses or offsets. */
static inline uint32_t mimo_word_width(const mimo_row_loops *it, uint64_t bits)
{
    uint32_t width = 0;
    bits |= (uint64_t)it->row;
    if (it->n_inner > 1)
        bits |= (uint64_t)(it->to_inner | it->from_inner);
    if (it->n_outer > 1)
        bits |= (uint64_t)(it->to_outer | it->from_outer);
    while (width < MIMO_WIDEST_WORD && bits % (2u << width) == 0)
        width++;
    return width;
}

/* Of all workers, those that write over the link, so that they end with those that copy. */
static inline int64_t mimo_link_workers(int64_t all, double link_time, double copy_time)
{
    return (int64_t)((double)all * link_time / (link_time + copy_time) + 0.5);
}

#endif
