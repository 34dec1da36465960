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
    bool counted; /* total and mean_loss are those of all adds so far */
    int64_t total;
    double mean_loss;
    /* The communicators of the sums, one per module and set of dimensions, made when a span first
     * asks for the set. NULL on ranks outside the grid. */
    bool made[2][MIMO_RULE_MASKS];
    mimo_comm *group[2][MIMO_RULE_MASKS];
    bool has_agreed; /* the last finalize's spans were agreed on; `agreed` is their hash */
    uint64_t agreed;
};

/* One rank's share of a global sum of two numbers. */
typedef struct mimo_share {
    double value;
    int64_t count;
} mimo_share;

/* Collect every rank's share, in rank order, so that all ranks add alike and get the same bits: the
 * sum into *sum. Collective, without an agreement of its own; all[comm size] is room. */
mimo_status mimo_gradient_sum_shares(mimo_share *sum, mimo_gradient *gradient, mimo_share mine,
                                     mimo_share *all);

/* What can be said about the spans without the other ranks; rules[n] are read from them. */
mimo_status mimo_gradient_read_spans(mimo_span_rule *rules, const mimo_gradient *gradient,
                                     const mimo_gradient_span *spans, int n);

#endif
