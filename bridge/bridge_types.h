/* The bridge and its operations, shared by bridge.c, bridge_op.c and the executors. */
#ifndef MIMO_BRIDGE_BRIDGE_TYPES_H
#define MIMO_BRIDGE_BRIDGE_TYPES_H

#include <mimo/bridge.h>

#include "bridge/tile.h"
#include "comm/agreement.h"
#include "comm/comm_backend.h"

enum { MIMO_STAGES = 2 };

struct mimo_op {
    mimo_bridge *bridge;
    mimo_op *next; /* in the bridge's queue, or in its list of spare operations */
    bool backward;
    mimo_stream stream;
    mimo_tile_pair *pairs; /* one per tensor: `count` in use, room for `capacity` */
    int count;
    int64_t capacity;
    struct {
        void *room;
        int64_t bytes;
    } stage[MIMO_STAGES]; /* the executor's staging: kept with the operation, grown when short */

    mimo_status local; /* this rank's own checks, to be agreed on */
    uint64_t signature;
    char call[MIMO_CALL_TEXT];
    mimo_agreement agreement;
    enum {
        MIMO_OP_QUEUED,
        MIMO_OP_AGREEING,
        MIMO_OP_COMPARING, /* replica check: hashes of the source over src tp */
        MIMO_OP_COMPARED,  /* replica check: agreeing on its outcome */
        MIMO_OP_MOVING,
        MIMO_OP_ENDED,
    } state;
    int pair, step; /* where MOVING has got to */
    mimo_request *request;
    uint64_t *hashes; /* replica check: own hash, then those of all src tp ranks */
    mimo_status status;
    char sentence[MIMO_SENTENCE_TEXT]; /* of `status`, for the wait that may come much later */
};

/* One step of an executor for one tensor: local work, or a request to be waited for before the next
 * step. A list ends with NULL. */
typedef mimo_status (*mimo_step)(mimo_op *op, const mimo_tile_pair *tiles);

typedef struct mimo_executor_table {
    const char *name;
    /* Before the agreement: get all the staging that the steps will ask for, so that a rank without
     * memory fails while the others can still hear of it. */
    mimo_status (*reserve)(mimo_op *op, const mimo_tile_pair *tiles);
    const mimo_step *forward;
    const mimo_step *backward;
} mimo_executor_table;

extern const mimo_executor_table mimo_collective_executor;

struct mimo_bridge {
    mimo_comm *comm;   /* own: agreements */
    mimo_comm *parent; /* borrowed; NULL until the bridge is whole and rides on it */
    mimo_rider rider;
    const mimo_grid *src, *dst;
    int64_t rank;
    mimo_tile_rules rules;
    mimo_partition *partition; /* NULL where the dst tile holds full sequences */
    int64_t cp;                /* of dst */
    int64_t slot;              /* place in the gather group */
    const mimo_executor_table *executor;
    mimo_comm *gather;  /* collective: the gather group; NULL where EQUAL */
    mimo_comm *cp_sum;  /* collective: dst cp; NULL where cp = 1 */
    mimo_comm *sp_join; /* collective: dst tp, where a partition cuts along it */
    mimo_comm *src_tp;  /* replica check; NULL where it is off */
    mimo_op *queue;     /* operations in flight: only the first moves, so that all ranks start
                           their communication in the same order */
    mimo_op *spare;     /* ended ones, kept for their staging */
};

/* Move the operations of a bridge on, without blocking. */
void mimo_bridge_progress(mimo_bridge *bridge);

/* Room of at least `bytes` bytes in a stage of the operation. */
mimo_status mimo_op_stage(void **out, mimo_op *op, int stage, int64_t bytes);

/* Replica check (MIMO_CHECK_REPLICAS): start comparing this operation's sources, and the
 * outcome. */
mimo_status mimo_replicas_start(mimo_op *op);
mimo_status mimo_replicas_outcome(const mimo_op *op);

#endif
