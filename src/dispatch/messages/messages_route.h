/* What the messages executor knows of a route: where each row lies, from the ids of all ranks, and
 * the prepared calls of its moves. */
#ifndef MIMO_DISPATCH_MESSAGES_ROUTE_H
#define MIMO_DISPATCH_MESSAGES_ROUTE_H

#include "core/recent.h"
#include "dispatch/messages/messages_lists.h"
#include "dispatch/route/route_map.h"
#include "dispatch/route_types.h"
#include "move/mover.h"

/* What a rank tells all others of a route. Its ids follow. */
typedef struct mimo_route_record {
    int64_t tokens, capacity;
} mimo_route_record;

typedef struct mimo_messages_route {
    mimo_route_map map;
    mimo_messages_lists lists;         /* of the map, where rows lie */
    mimo_route_desc asked;             /* what the set that follows brings */
    void *fetched;                     /* ids from a device; NULL: the host reads them in place */
    mimo_route_record *told;           /* this rank's, as it is told */
    char *records;                     /* of all ranks, one after the other */
    int64_t *tokens, *capacity, *rows; /* [ranks]: of these, and the rows needed */
    mimo_route_ids ids;
    mimo_recent calls; /* see dispatch_call.h */
} mimo_messages_route;

static inline mimo_messages_route *mimo_messages_route_of(const mimo_route *route)
{
    return route->own;
}

/* What the table of executors says of them. */
mimo_status mimo_messages_route_create(mimo_route *route);
void mimo_messages_route_destroy(mimo_route *route);
mimo_status mimo_messages_set_prepare(mimo_route *route, const mimo_route_desc *desc);
extern const mimo_mover_step mimo_messages_set_steps[];
mimo_status mimo_messages_ends(const int32_t **out, const mimo_route *route);
mimo_status mimo_messages_read(mimo_route_counts *out, mimo_route *route);

#endif
