/* The routed executor's own: how each side's tiles are cut, and the jobs that it has prepared. */
#ifndef MIMO_BRIDGE_ROUTED_TYPES_H
#define MIMO_BRIDGE_ROUTED_TYPES_H

#include "bridge/bridge_types.h"
#include "bridge/plan/plan_cache.h"
#include "bridge/routed/batch_split.h"
#include "bridge/routed/routed_phase.h"
#include "comm/buffer_state.h"

/* The most rounds of a job. */
enum { MIMO_ROUNDS = 2 };

/* An operation made ready for fixed tensors, all of them together. It serves one operation at a
 * time and is kept for the next one with the same tensors. */
typedef struct mimo_job {
    struct mimo_job *next; /* among the idle ones, the last used first */
    bool backward;
    bool guarded;            /* its messages are */
    bool pushes;             /* into destinations that lie in a buffer */
    bool recorded;           /* a graph runs it again, so it stays until an update or the end, */
    mimo_stream stream;      /* and serves no other stream than the graph's: it would be made for
                                that one's rooms, and the graph still reads its lists */
    bool failed;             /* it can't be started again */
    uint64_t signature;      /* of the operation */
    uint64_t cut;            /* its hash */
    uint64_t buffer_changes; /* of the communicator, when it was made */
    int count;
    mimo_tile_pair *pairs; /* pairs[count], the tensors that this is for */
    mimo_round round[MIMO_ROUNDS];
    int rounds;
    int chunks;  /* that each of them moves, one after the other */
    char *stage; /* the operation's: contributions, and sums between two rounds */
    int64_t stage_bytes;
} mimo_job;

typedef struct mimo_routed {
    mimo_partition_rule rules[MIMO_PLACES]; /* by mimo_place, of which mimo_side are the first: */
    mimo_layout_desc places[MIMO_PLACES];   /* but for order, batch and seq; partition NULL: none */
    int32_t *packed[2];                     /* the lengths that a thd rule points to */
    int64_t sharers[2];                     /* ranks that share one sequence */
    bool can_push; /* into destinations that lie in a buffer: not where ranks share no memory */
    mimo_push_rule push_rule;
    int64_t shards;        /* that a dst tile could be cut into before it is read; 1: none */
    mimo_layout *roles[2]; /* who holds rows; of no samples */
    int64_t first_batch;   /* as the descriptor told; -1: to be found out */
    bool ragged;           /* the src tiles hold the rows of `spans` alone */
    mimo_span *spans;      /* that the layouts point to */
    mimo_cuts cuts;
    mimo_plan_cache *plans;
    mimo_job *idle;
} mimo_routed;

/* Creation, release, tiles and their signature, as mimo_executor_table says. */
mimo_status mimo_routed_create(mimo_bridge *bridge, const mimo_bridge_desc *desc);
mimo_status mimo_routed_connect(mimo_bridge *bridge);
void mimo_routed_destroy(mimo_bridge *bridge);
mimo_layout_desc mimo_routed_side(const mimo_bridge *bridge, mimo_side side);
mimo_status mimo_routed_survey(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from, int n);
mimo_status mimo_routed_read(mimo_tile_pair *out, const mimo_op *op, const mimo_tensor *src,
                             const mimo_tensor *dst);
uint64_t mimo_routed_sign(uint64_t hash, const mimo_tile_pair *tiles);

/* Ragged: rows of this rank's src tile, whose samples are those of an even cut. */
int64_t mimo_routed_src_rows(const mimo_bridge *bridge);

/* A thd rule that tells T = cu[sequences]. */
static inline bool mimo_rule_is_packed(const mimo_partition_rule *rule)
{
    return rule && rule->format == MIMO_THD && rule->cu && rule->sequences >= 0;
}

/* The buffer that a tile lies in, if the operation pushes at all; NULL where it does not. */
mimo_buffer *mimo_job_buffer(const mimo_op *op, const mimo_tile *tile);

/* A job for the operation's tensors, cut so, new or kept, into op->job. Local. MIMO_ERR_MEMORY,
 * MIMO_ERR_UNSUPPORTED (a sum of f8), errors of the layouts. */
mimo_status mimo_job_prepare(mimo_op *op, const mimo_cut *cut);

/* The operation has ended: put its job back among the idle ones, or release it after an error. */
void mimo_job_put_back(mimo_op *op);

void mimo_job_destroy_idle(mimo_bridge *bridge);

#endif
