/* One round of a routed operation: rows move once between the ranks, then contributions are
 * added. */
#ifndef MIMO_BRIDGE_ROUTED_ROUND_H
#define MIMO_BRIDGE_ROUTED_ROUND_H

#include "bridge/routed_messages.h"

/* How rows are pushed, where they are. */
typedef struct mimo_push_rule {
    bool idle;          /* mimo_bridge_desc.destinations_idle */
    int ctas;           /* and .ctas */
    mimo_buffer *flags; /* of the bridge's own; NULL: those of the buffer that rows go to */
} mimo_push_rule;

typedef struct mimo_round {
    mimo_leg *legs; /* legs[count]; the caller fills them, the round releases them */
    int count;
    int64_t classes;
    mimo_exchange *exchange;
} mimo_round;

/* Turn the legs into an exchange. Local. */
mimo_status mimo_round_compile(mimo_round *round, mimo_comm *comm, const mimo_push_rule *rule);
void mimo_round_release(mimo_round *round, mimo_comm *comm);

/* Start what the round moves. */
mimo_status mimo_round_move(mimo_request **out, const mimo_round *round, mimo_comm *comm,
                            mimo_stream stream);

/* Once they have arrived: add the classes to class 0, in their order. */
mimo_status mimo_round_add(const mimo_round *round, mimo_comm *comm, mimo_stream stream);

#endif
