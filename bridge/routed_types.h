/* The routed executor's own: how each side's tiles are cut, and the jobs that it has prepared. */
#ifndef MIMO_BRIDGE_ROUTED_TYPES_H
#define MIMO_BRIDGE_ROUTED_TYPES_H

#include "bridge/bridge_types.h"
#include "bridge/plan_cache.h"
#include "bridge/routed_cuts.h"

/* Rows that stay on this rank. */
typedef struct mimo_row_copy {
    mimo_rows to, from;
} mimo_row_copy;

/* An operation made ready for fixed tensors: the messages of all of them, what stays here, and the
 * staging of contributions. It serves one operation at a time and is kept for the next one with the
 * same tensors. */
typedef struct mimo_job {
    struct mimo_job *next; /* among the idle ones, the last used first */
    bool backward;
    uint64_t cut; /* its hash */
    int count;
    mimo_tile_pair *pairs; /* pairs[count], the tensors that this is for */
    int64_t classes;
    char *stage; /* the operation's staging: (classes - 1) tiles for every tensor */
    int64_t stage_bytes;
    mimo_exchange *exchange;
    mimo_row_copy *copies; /* copies[copy_count] */
    int64_t copy_count;
} mimo_job;

typedef struct mimo_routed {
    mimo_partition_rule rules[2]; /* by mimo_side, as are the others: */
    int32_t *packed[2];           /* the lengths that a thd rule points to */
    mimo_layout_desc sides[2];    /* all but order, batch and seq; partition NULL: nothing cuts */
    int64_t sharers[2];           /* ranks that share one sequence */
    mimo_layout *roles[2];        /* who holds rows; of no samples */
    mimo_cuts cuts;
    mimo_plan_cache *plans;
    mimo_job *idle;
} mimo_routed;

/* "src", "dst": by mimo_side. */
extern const char *const mimo_side_names[2];

/* Creation, release, tiles and their signature, as mimo_executor_table says. */
mimo_status mimo_routed_create(mimo_bridge *bridge, const mimo_bridge_desc *desc);
void mimo_routed_destroy(mimo_bridge *bridge);
mimo_status mimo_routed_read(mimo_tile_pair *out, const mimo_op *op, const mimo_tensor *src,
                             const mimo_tensor *dst);
uint64_t mimo_routed_sign(uint64_t hash, const mimo_tile_pair *tiles);

/* A thd rule that tells T = cu[sequences]. */
static inline bool mimo_rule_is_packed(const mimo_partition_rule *rule)
{
    return rule && rule->format == MIMO_THD && rule->cu && rule->sequences >= 0;
}

/* The tile that an operation fills, and the one that it reads. */
static inline const mimo_tile *mimo_pair_to(const mimo_tile_pair *pair, bool backward)
{
    return backward ? &pair->src : &pair->dst;
}

static inline const mimo_tile *mimo_pair_from(const mimo_tile_pair *pair, bool backward)
{
    return backward ? &pair->dst : &pair->src;
}

/* A job for the operation's tensors, cut so, new or kept, into op->job. Local. MIMO_ERR_MEMORY,
 * MIMO_ERR_UNSUPPORTED (a sum of f8), errors of the layouts. */
mimo_status mimo_job_prepare(mimo_op *op, const mimo_cut *cut);

/* Add the staged classes to class 0, in their order. */
mimo_status mimo_job_add_classes(const mimo_op *op);

/* The operation has ended: put its job back among the idle ones, or release it after an error. */
void mimo_job_put_back(mimo_op *op);

void mimo_job_destroy_idle(mimo_bridge *bridge);

#endif
