/* What a gradient object keeps, and the checks that finalize, norm and explain share. */
#ifndef MIMO_GRADIENT_GRADIENT_STATE_H
#define MIMO_GRADIENT_GRADIENT_STATE_H

#include "comm/agreement.h"
#include "gradient/bucket_rules.h"

/* The communicator of sums along a set of dimensions of a grid. */
typedef struct mimo_gradient_group {
    int home; /* index of the grid */
    mimo_dim_set dims;
    mimo_comm *comm; /* NULL on ranks outside the grid */
} mimo_gradient_group;

struct mimo_gradient {
    mimo_comm *comm;
    /* grids[grid_count]: the modules' by mimo_side, then the added ones, whose texts are owned. */
    mimo_gradient_grid *grids;
    int grid_count;
    double loss; /* of this rank, since the reset */
    int64_t tokens;
    bool counted;       /* total and mean_loss hold all adds so far */
    bool finalized;     /* some bucket was, since the reset */
    bool late;          /* an add came after that: the next step's, without a reset */
    int64_t old_tokens; /* of this rank before the first late add */
    int64_t total;
    double mean_loss;
    bool check_copies; /* MIMO_CHECK has the word `replicas` */
    /* groups[group_count]: each was made when a bucket first needed it, in the same order on all
     * ranks. */
    mimo_gradient_group *groups;
    int64_t group_count, group_capacity;
    /* The buckets that were finalized since the count: done[done_count], a hash of each. */
    uint64_t *done;
    int64_t done_count, done_capacity;
    bool has_agreed; /* the ranks agreed on the buckets of the last finalize */
    uint64_t agreed; /* the hash of these buckets */
};

/* The index of a grid by name; -1 where there is none. */
int mimo_gradient_find_grid(const mimo_gradient *gradient, const char *name);

/* The end of the object's use of its grids. */
void mimo_gradient_release_grids(mimo_gradient *gradient);

/* One rank's share of a global sum of two numbers. */
typedef struct mimo_share {
    double value;
    int64_t count;
} mimo_share;

/* Gather every rank's share into all[comm size], in rank order. Collective, without an agreement of
 * its own. `call` names the call in the sentence of a deadline. */
mimo_status mimo_gradient_gather_shares(mimo_share *all, mimo_gradient *gradient, mimo_share mine,
                                        const char *call);

/* The loss and the tokens of the step, from what each rank added: all[comm size]. Each token counts
 * once. Checks that ranks whose tokens count nowhere added none, that copies added the same, and
 * that no rank added NaN or infinity without a token. With tokens these are a line of the log.
 * Local; all ranks return the same. */
mimo_status mimo_gradient_sum_tokens(mimo_share *sum, const mimo_gradient *gradient,
                                     const mimo_share *all);

/* Read the caller's buckets into own[n], check them as far as one rank can, and read rules[n] from
 * them. Local. */
mimo_status mimo_gradient_read_buckets(mimo_gradient_bucket *own, mimo_bucket_rule *rules,
                                       const mimo_gradient *gradient,
                                       const mimo_gradient_bucket *buckets, int n);

/* A call over buckets: its arguments, and what was read from them. */
typedef struct mimo_bucket_call {
    mimo_gradient *gradient;
    const mimo_gradient_bucket *buckets; /* the caller's; from mimo_bucket_call_prepare on, `own` */
    int n;
    mimo_gradient_bucket *own; /* [n] */
    mimo_bucket_rule *rules;   /* [n] */
    mimo_share *shares;        /* [comm size] */
    double *squares;           /* [n]: sums of squares on this rank */
    bool guarded;
    bool before_count; /* it needs no N */
} mimo_bucket_call;

/* The grid of bucket i. */
static inline const mimo_gradient_grid *mimo_bucket_home(const mimo_bucket_call *call, int i)
{
    return &call->gradient->grids[call->rules[i].home];
}

/* Read the buckets and get the memory of a call. Local. Released after an error as well. */
mimo_status mimo_bucket_call_prepare(mimo_bucket_call *call);
void mimo_bucket_call_release(mimo_bucket_call *call);

/* MIMO_ERR_STATE where a bucket of the call was finalized since the count. Also reserves memory for
 * mimo_finalized_note, which notes the buckets of the call, and can't fail. Local. */
mimo_status mimo_finalized_check(const mimo_bucket_call *call);
void mimo_finalized_note(const mimo_bucket_call *call);

/* What the ranks agree on. Counts are not part of it: they may change on some ranks only, and every
 * rank decides by this hash whether to agree again. All ranks must decide the same. */
uint64_t mimo_bucket_call_hash(const mimo_bucket_call *call);

/* Agree on this rank's status (`local`) and on the call. `verb` begins it in words. Where buckets
 * differ, the sentence names the first that does. */
mimo_status mimo_bucket_call_agree(const mimo_bucket_call *call, mimo_status local,
                                   mimo_call_kind kind, const char *verb);

/* Ranks that are summed over, or hold copies, must have the same number of elements of a bucket.
 * Where they differ, the sentence names the first such bucket. Ranks are numbered as in the
 * communicator. */
mimo_status mimo_gradient_agree_on_counts(const mimo_bucket_call *call);

/* With MIMO_CHECK=replicas: ranks that hold the same elements of a bucket must have the same norm
 * of it (call->squares). MIMO_ERR_MISMATCH on all ranks, with the first bucket and rank that do
 * not, and the dimensions that separate it from the others. Collective. */
mimo_status mimo_gradient_check_copies(const mimo_bucket_call *call);

#endif
