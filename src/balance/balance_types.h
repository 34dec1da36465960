/* Items on lanes: a descriptor that was read, and an assignment with what it gives. Pure. */
#ifndef MIMO_BALANCE_TYPES_H
#define MIMO_BALANCE_TYPES_H

#include <mimo/balance.h>

/* A descriptor that was checked. Its desc.rows is never NULL. */
typedef struct mimo_balance_input {
    mimo_balance_desc desc;
    int64_t cost, rows;     /* of all items */
    int64_t largest, bound; /* cost of an item, and what no longest lane is below */
} mimo_balance_input;

/* Read and check a descriptor (balance_desc.c). `function` begins no sentence about items. */
mimo_status mimo_balance_read(mimo_balance_input *out, const mimo_balance_desc *desc);

/* An assignment. The arrays are its owner's. */
typedef struct mimo_assignment {
    int64_t *lane;        /* lane[items] */
    int64_t *cost, *rows; /* cost[lanes], rows[lanes]: what each lane has */
    int64_t longest;      /* the most of cost[] */
    int64_t rows_moved, rows_over;
} mimo_assignment;

mimo_status mimo_assignment_open(mimo_assignment *out, const mimo_balance_input *input);
void mimo_assignment_close(mimo_assignment *assignment);

/* Set all fields from lane[], whose numbers are lanes (balance_report.c). */
void mimo_assignment_measure(mimo_assignment *assignment, const mimo_balance_input *input);

/* Whether a lane with `rows` keeps to the limit. */
static inline bool mimo_lane_has_room(const mimo_balance_input *input, int64_t rows)
{
    return input->desc.max_rows == 0 || rows <= input->desc.max_rows;
}

/* Rows of a lane above the limit. */
static inline int64_t mimo_lane_rows_over(const mimo_balance_input *input, int64_t rows)
{
    return mimo_lane_has_room(input, rows) ? 0 : rows - input->desc.max_rows;
}

/* ----- item_order.c ----- */

/* Items by descending weight (at least 0), equal ones by ascending number, into order[count]. */
mimo_status mimo_item_order(int64_t *order, const int64_t *weight, int64_t count);

/* ----- longest_first.c ----- */

/* Items are dealt by weight: their cost, or, where memory is what counts, their rows. */
typedef struct mimo_dealer {
    const mimo_balance_input *input;
    const int64_t *weight;
    int64_t *order;       /* items by descending weight */
    int64_t *rest;        /* items that their homes did not keep, in this order */
    int64_t *load, *rows; /* of each lane so far: weight and rows */
    int64_t *heap;        /* lanes; the one with the least load, then number, is first */
    int64_t *swaps;       /* [3 * items + 1]: for mimo_shorten_longest */
} mimo_dealer;

mimo_status mimo_dealer_open(mimo_dealer *out, const mimo_balance_input *input,
                             const int64_t *weight);
void mimo_dealer_close(mimo_dealer *dealer);

/* Which items lanes keep, of those that they have loaded. */
typedef enum mimo_deal_kind {
    MIMO_DEAL_KEEP,  /* the largest, up to the level */
    MIMO_DEAL_LEAVE, /* what is left when the largest have gone that are not more than the lane has
                        above the level: these have the fewest rows for their cost, where cost grows
                        faster than rows. Of a descriptor with homes */
} mimo_deal_kind;

/* Lanes keep items by `kind`; the rest goes, largest first, to the lane with the least that has
 * room. KEEP at level -1: nothing is kept, which is longest-first. */
void mimo_deal(mimo_assignment *out, mimo_dealer *dealer, mimo_deal_kind kind, int64_t level);

/* Items go back to homes that have room for them below `limit`, the largest first. Of a descriptor
 * with homes. */
void mimo_bring_home(mimo_assignment *assignment, const mimo_dealer *dealer, int64_t limit);

/* ----- lane_swaps.c ----- */

/* Move items between the longest and the shortest lane, or swap two of them, while that makes the
 * longest lane shorter and it is above `target`. The dealer's weight is the cost. */
void mimo_shorten_longest(mimo_assignment *assignment, mimo_dealer *dealer, int64_t target);

/* ----- balance_cut.c ----- */

/* Consecutive items for each lane, into out->lane; the longest lane is as short as it can be. */
mimo_status mimo_balance_cut(mimo_assignment *out, const mimo_balance_input *input);

#endif
