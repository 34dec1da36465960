/*
 * Balance: which lane works on which item, so that no lane waits long for another one. Pure, local,
 * without a communicator, in whole numbers alone: every rank that passes the same numbers gets the
 * same answer. Thread-safe.
 *
 * An *item* is an image, a clip or a sound: what an encoder takes as a whole. A *lane* is a dp
 * coordinate of the encoder. The *home* of an item is the lane that has loaded it; where another
 * lane takes it, its rows move there and back.
 *
 * docs/concepts.md has an example, under "Balanced encoders".
 */
#ifndef MIMO_BALANCE_H
#define MIMO_BALANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mimo/status.h>

MIMO_BEGIN_DECLS

/* ---------------------------------------- experimental ---------------------------------------- */
/* Only where MIMO_EXPERIMENTAL is defined: see <mimo/status.h>. */
#ifdef MIMO_EXPERIMENTAL

/** Arrays are borrowed during the call. */
typedef struct mimo_balance_desc {
    size_t size;            /* set by the initializer */
    int64_t items, lanes;   /* at least 0, at least 1 */
    const int64_t *cost;    /* cost[items], at least 0, in any unit. Forward of a transformer block
                               over an image of r rows: r * (r + 6 * hidden) */
    const int64_t *rows;    /* rows[items], at least 0: what moves where an item leaves its home,
                               and what max_rows counts; NULL: cost */
    const int64_t *home;    /* home[items], a lane, or -1 for an item without; NULL: none has one */
    int64_t max_rows;       /* the most rows that a lane has memory for; 0: no limit */
    int64_t slack_permille; /* how much longer than the bound the longest lane may be, in
                               thousandths of the bound, where fewer rows move then */
    bool in_order; /* lanes take items that follow each other; home and slack don't count */
} mimo_balance_desc;

#define MIMO_BALANCE_DESC_INIT                                          \
    {                                                                   \
        sizeof(mimo_balance_desc), 0, 1, NULL, NULL, NULL, 0, 10, false \
    }

MIMO_API void mimo_balance_desc_init(mimo_balance_desc *out, size_t size);

/**
 * The lane of each item, into lane[items].
 *
 * The *bound* is what no assignment can be below: the larger one of the mean cost of a lane
 * (rounded up) and the largest item. *Longest-first* gives the items, by descending cost, each to
 * the lane that has the least so far.
 *
 * The cost of the longest lane is at most the larger one of
 *
 *     (1 + slack_permille / 1000) * bound
 *     the longest lane of longest-first
 *
 * and of the assignments below this limit that were looked at, the one with the fewest rows that
 * leave their homes is returned. Each of these has another level. Lanes keep what they have loaded,
 * largest items first, up to the level; or they give away what they have above it, largest items
 * first, as these have the fewest rows for their cost. The rest goes where longest-first would put
 * it, and then home again where there is room. Ties go to the lower item and the lower lane.
 *
 * in_order: lanes 0, 1, ... take consecutive items, and no cut has a shorter longest lane.
 *
 * max_rows is bin packing: where no assignment that was looked at keeps to it, the one with the
 * fewest rows too many is returned, and mimo_balance_report_of counts them.
 *
 * Errors: MIMO_ERR_ARGUMENT (a number out of range, with the first item that has it),
 * MIMO_ERR_SHAPE (an item, or all items together, have more rows than max_rows allows),
 * MIMO_ERR_OVERFLOW (a sum does not fit 63 bits).
 */
MIMO_API mimo_status mimo_balance(int64_t *lane, const mimo_balance_desc *desc);

/** What an assignment is worth. */
typedef struct mimo_balance_report {
    size_t size;          /* set by the initializer */
    int64_t cost;         /* of all items */
    int64_t mean;         /* of a lane, rounded up */
    int64_t bound;        /* the larger one of the mean and the largest item */
    int64_t longest_home; /* cost of the longest lane where each item stays at home; items without
                             one are left out */
    int64_t longest;      /* cost of the longest lane of the assignment */
    int64_t rows;         /* of all items */
    int64_t rows_moved;   /* of items that leave their homes */
    int64_t rows_over;    /* the sum over lanes of the rows above max_rows; 0: no limit */
    int64_t empty_lanes;  /* lanes without items */
} mimo_balance_report;

#define MIMO_BALANCE_REPORT_INIT                               \
    {                                                          \
        sizeof(mimo_balance_report), 0, 0, 0, 0, 0, 0, 0, 0, 0 \
    }

MIMO_API void mimo_balance_report_init(mimo_balance_report *out, size_t size);

/** Sum up any assignment of the descriptor's items. `out` starts from its _INIT. Errors: those of
 *  mimo_balance; MIMO_ERR_ARGUMENT for a lane that does not exist. */
MIMO_API mimo_status mimo_balance_report_of(mimo_balance_report *out, const mimo_balance_desc *desc,
                                            const int64_t *lane);

#endif

MIMO_END_DECLS

#endif
