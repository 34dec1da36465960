/* One round of a routed operation: rows move once between the ranks, then contributions are
 * added. */
#ifndef MIMO_BRIDGE_ROUTED_ROUND_H
#define MIMO_BRIDGE_ROUTED_ROUND_H

#include <mimo/plan.h>

#include "comm/comm_backend.h"

/* What one tensor does in a round. */
typedef struct mimo_leg {
    const mimo_plan *plan; /* looked at while the round is made */
    char *from, *to;       /* tiles whose rows the plan counts */
    char *classes;         /* contribution classes 1, 2, ... one after the other, each like `to` */
    int64_t row_bytes;
    int64_t bytes; /* of `to` */
    mimo_dtype dtype;
} mimo_leg;

/* Rows that stay on this rank. */
typedef struct mimo_row_copy {
    mimo_rows to, from;
} mimo_row_copy;

typedef struct mimo_round {
    mimo_leg *legs; /* legs[count]; the caller fills them, the round releases them */
    int count;
    int64_t classes;
    mimo_exchange *exchange;
    mimo_row_copy *copies; /* copies[copy_count] */
    int64_t copy_count;
} mimo_round;

/* Turn the legs into messages and copies. Local. */
mimo_status mimo_round_compile(mimo_round *round, mimo_comm *comm);
void mimo_round_release(mimo_round *round, mimo_comm *comm);

/* Start the messages, and copy what stays here while they are in flight. */
mimo_status mimo_round_move(mimo_request **out, const mimo_round *round, mimo_comm *comm,
                            mimo_stream stream);

/* Once they have arrived: add the classes to class 0, in their order. */
mimo_status mimo_round_add(const mimo_round *round, mimo_comm *comm, mimo_stream stream);

#endif
