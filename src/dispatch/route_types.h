/* What all executors know of a route. */
#ifndef MIMO_DISPATCH_ROUTE_TYPES_H
#define MIMO_DISPATCH_ROUTE_TYPES_H

#include "dispatch/dispatch_types.h"

typedef enum mimo_route_state {
    MIMO_ROUTE_NEVER_SET,
    MIMO_ROUTE_SET,
    MIMO_ROUTE_OVERFLOWED, /* a tile has fewer rows than it needs */
} mimo_route_state;

/* A rank's tile: the rows that it needs and those that it has. */
typedef struct mimo_route_tile {
    int64_t rank, needed, capacity;
} mimo_route_tile;

/* What setting a route finds out. */
typedef struct mimo_route_sizes {
    int64_t tokens, rows;       /* this rank's tokens, and the rows that its tile has; -1: as many
                                   as it needs, which a read tells */
    mimo_route_tile overflowed; /* the first one that is too small; rank -1: none is */
    int64_t most_rows;          /* that any rank needs */
} mimo_route_sizes;

struct mimo_route {
    mimo_dispatch *dispatch;
    int64_t number; /* in the dispatch, from 1 */
    mimo_route_state state;
    mimo_route_sizes sizes;
    void *own;      /* the executor's */
    int moving;     /* moves that have begun and not ended */
    int setting;    /* operations that set it and were not waited for. Until then nothing depends on
                       the route: whether a set has ended differs between ranks */
    bool destroyed; /* by the caller; the last of these operations releases it */
};

#endif
