/* What a gradient object keeps, and the checks that finalize, norm and explain share. */
#ifndef MIMO_GRADIENT_GRADIENT_STATE_H
#define MIMO_GRADIENT_GRADIENT_STATE_H

#include "comm/agreement.h"
#include "gradient/span_rules.h"

struct mimo_gradient {
    mimo_comm *comm;
    const mimo_grid *grid[2]; /* by mimo_side */
    double loss;              /* of this rank, since the reset */
    int64_t tokens;
    bool counted; /* total and mean_loss hold all adds so far */
    int64_t total;
    double mean_loss;
    /* The communicators of the sums, one for each module and set of dimensions. A communicator is
     * made when a span first needs it. NULL on ranks outside the grid. */
    bool made[2][MIMO_RULE_MASKS];
    mimo_comm *group[2][MIMO_RULE_MASKS];
    bool has_agreed; /* the ranks agreed on the spans of the last finalize */
    uint64_t agreed; /* the hash of these spans */
};

/* One rank's share of a global sum of two numbers. */
typedef struct mimo_share {
    double value;
    int64_t count;
} mimo_share;

/* Gather every rank's share into all[comm size], in rank order, and write the sum into *sum. All
 * ranks add in the same order and get the same bits. Collective, without an agreement of its
 * own. */
mimo_status mimo_gradient_sum_shares(mimo_share *sum, mimo_gradient *gradient, mimo_share mine,
                                     mimo_share *all);

/* Check the spans as far as one rank can, and read rules[n] from them. Local. */
mimo_status mimo_gradient_read_spans(mimo_span_rule *rules, const mimo_gradient *gradient,
                                     const mimo_gradient_span *spans, int n);

#endif
