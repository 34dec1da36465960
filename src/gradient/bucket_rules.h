/*
 * What the strings of a gradient bucket mean on its grid: along which dimensions its gradient is
 * summed, and along which dimensions ranks hold different elements. Pure.
 */
#ifndef MIMO_GRADIENT_BUCKET_RULES_H
#define MIMO_GRADIENT_BUCKET_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include <mimo/gradient.h>

#include "grid/dim_set.h"

/* A grid of a gradient object, and what is true of all buckets on it. */
typedef struct mimo_gradient_grid {
    const mimo_grid *grid;
    const char *name;  /* in sentences */
    const char *data;  /* along these dimensions ranks hold different samples or tokens */
    const char *shard; /* each bucket names these dimensions as its own `shard` */
} mimo_gradient_grid;

/* Along all other dimensions ranks hold copies. */
typedef struct mimo_bucket_rule {
    int home;             /* its grid: an index into those of the gradient object */
    mimo_dim_set data;    /* ranks hold different samples or tokens */
    mimo_dim_set partial; /* ranks hold a part of each element's gradient */
    mimo_dim_set shard;   /* ranks hold different elements */
    mimo_dim_set copies;  /* ranks hold the same elements with the same gradient */
} mimo_bucket_rule;

/* data | partial: the dimensions that finalize sums over. */
mimo_dim_set mimo_rule_sum(const mimo_bucket_rule *rule);

/* All but shard: the dimensions along which ranks hold the same elements. */
mimo_dim_set mimo_rule_same(const mimo_bucket_rule *rule);

/* Whether a rank speaks for those that hold the same elements: it has coordinate 0 along all
 * dimensions of mimo_rule_same. False outside the grid. */
bool mimo_rule_is_representative(const mimo_bucket_rule *rule, const mimo_grid *grid, int64_t rank);

/* The grid of a module. */
mimo_gradient_grid mimo_module_grid(const mimo_grid *grid, mimo_side module);

/* Check that the grid of a module says what its dimensions mean (mimo_grid_check_meaning), and that
 * the encoder has cp 1. */
mimo_status mimo_rule_check_grid(const mimo_grid *grid, mimo_side module);

/* Read a bucket, all but the home of the rule. MIMO_ERR_GRID: an unknown or repeated dim, a dim
 * both sharded and partial, a data dim or one of copies in either string, a dim of the grid's
 * `shard` that the bucket's does not name. */
mimo_status mimo_bucket_rule_of(mimo_bucket_rule *out, const mimo_gradient_grid *home,
                                const mimo_gradient_bucket *bucket);

/* The rank whose tokens count for a rank of the LLM: ranks along tp hold copies, and the first one
 * counts. -1 where none does: outside the grid, and on all pipeline stages except the last. */
int64_t mimo_rule_token_rank(const mimo_grid *llm, int64_t rank);

/* Whether a rank's tokens count for it, so that each token counts once. */
bool mimo_rule_counts_tokens(const mimo_grid *llm, int64_t rank);

#endif
