/* The transfers of one phase, and the messages that are made of them. */
#ifndef MIMO_BRIDGE_TRANSFER_TYPES_H
#define MIMO_BRIDGE_TRANSFER_TYPES_H

#include <mimo/plan.h>

#include "comm/comm_backend.h"

/* How one tensor moves in a phase. */
typedef struct mimo_transfer {
    const mimo_plan *plan; /* read while the phase is made */
    mimo_place from, to;   /* tiles whose rows the plan counts */
    mimo_buffer *buffer;   /* that `to` lies in on all ranks, so that peers can push; NULL: none */
    mimo_place classes;    /* contribution classes 1, 2, ... one after the other, each like `to` */
    int64_t row_bytes;
    int64_t bytes; /* of `to` */
    mimo_dtype dtype;
} mimo_transfer;

typedef struct mimo_transfers {
    const mimo_transfer *list; /* list[count], count > 0 */
    int count;
} mimo_transfers;

/* The messages that are sent, or those that are received: messages[count], and the rows of all of
 * them, one after the other. */
typedef struct mimo_message_list {
    mimo_message *messages;
    mimo_placed_rows *rows;
    int count;
    int64_t row_count;
} mimo_message_list;

typedef struct mimo_push_list {
    mimo_push *pushes;
    mimo_placed_copy *rows;
    int count;
    int64_t row_count;
} mimo_push_list;

/* The messages of an exchange while they are made, and their memory. */
typedef struct mimo_message_maker {
    mimo_message_list receives, sends;
    mimo_push_list pushes;
    int *pushers;
    int pusher_count;
    mimo_placed_copy *copies;
    int64_t copy_count;
    mimo_messages made; /* points into the above */
} mimo_message_maker;

#endif
