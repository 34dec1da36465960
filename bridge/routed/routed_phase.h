/* One round of a routed operation: rows move once between the ranks, then contributions are
 * added; all of it at once, or chunk by chunk. */
#ifndef MIMO_BRIDGE_ROUTED_ROUND_H
#define MIMO_BRIDGE_ROUTED_ROUND_H

#include "bridge/plan/plan_chunk.h"
#include "bridge/routed/routed_messages.h"

/* How rows are pushed, where they are. */
typedef struct mimo_push_rule {
    bool idle;          /* mimo_bridge_desc.destinations_idle */
    int ctas;           /* and .ctas */
    mimo_buffer *flags; /* of the bridge's own; NULL: those of the buffer that rows go to */
} mimo_push_rule;

/* What one chunk takes. */
typedef struct mimo_round_part {
    mimo_exchange *exchange;
    mimo_addends *sums; /* sums[sum_count] */
    int64_t sum_count;
} mimo_round_part;

typedef struct mimo_round {
    mimo_leg *legs; /* legs[count]; the caller fills them, the round releases them */
    int count;
    int64_t classes;
    uint64_t signature;     /* what all ranks that push must have alike; the caller's, too */
    mimo_round_part *parts; /* parts[chunks] */
    int64_t chunks;
    bool guarded; /* its messages are */
} mimo_round;

/* Turn the legs into the parts, which move chunks of the samples of `tiles`; NULL where there is
 * one chunk. Local. */
mimo_status mimo_round_compile(mimo_round *round, mimo_comm *comm, const mimo_push_rule *rule,
                               const mimo_layout *tiles);
void mimo_round_release(mimo_round *round, mimo_comm *comm);

/* Start what a part moves. */
mimo_status mimo_round_move(mimo_request **out, const mimo_round_part *part, mimo_comm *comm,
                            mimo_stream stream);

/* Once it has arrived: add the classes to class 0, in their order. */
mimo_status mimo_round_add(const mimo_round_part *part, mimo_comm *comm, mimo_stream stream);

#endif
