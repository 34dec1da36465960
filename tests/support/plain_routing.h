/* What the ranks of a plain route call, as the library takes it. */
#ifndef MIMO_TESTS_PLAIN_ROUTING_H
#define MIMO_TESTS_PLAIN_ROUTING_H

#include <mimo/dispatch.h>

#include "plain_route.h"

/* descs[ranks] are the caller's. capacity[ranks], NULL: as many rows as are needed. */
static inline mimo_routing plain_routing(mimo_route_desc *descs, const plain_route *plain,
                                         const int64_t *capacity)
{
    mimo_routing routing = MIMO_ROUTING_INIT;
    for (int64_t rank = 0; rank < plain->ranks; rank++) {
        descs[rank] = (mimo_route_desc)MIMO_ROUTE_DESC_INIT;
        descs[rank].ids = plain->ids[rank];
        descs[rank].tokens = plain->tokens[rank];
        descs[rank].capacity = capacity ? capacity[rank] : -1;
    }
    routing.experts = plain->experts;
    routing.top_k = plain->top_k;
    routing.etp = plain->etp;
    routing.alignment = plain->alignment;
    routing.ranks = descs;
    routing.rank_count = plain->ranks;
    return routing;
}

#endif
