/* What the files of a dispatch share. */
#ifndef MIMO_DISPATCH_DISPATCH_TYPES_H
#define MIMO_DISPATCH_DISPATCH_TYPES_H

#include <mimo/dispatch.h>

#include "core/recent.h"
#include "dispatch/route/route_map.h"
#include "move/mover.h"

struct mimo_dispatch {
    mimo_mover mover;
    mimo_dispatch_desc desc; /* its name is in the mover's title */
    mimo_route_shape shape;
    mimo_buffer *flags; /* of rows that are written into buffers, on the host; see buffer_state.h */
    bool can_push;      /* ranks share memory */
    int64_t made;       /* the number of the newest route */
    int64_t routes;     /* that were not destroyed */
    bool destroyed;     /* by the caller */
    mimo_dispatch_counts counts;
};

/* What a rank tells all others of a route. Its ids follow. */
typedef struct mimo_route_record {
    int64_t tokens, capacity;
} mimo_route_record;

typedef enum mimo_route_state {
    MIMO_ROUTE_NEVER_SET,
    MIMO_ROUTE_SET,
    MIMO_ROUTE_OVERFLOWED, /* a tile has fewer rows than it needs */
} mimo_route_state;

struct mimo_route {
    mimo_dispatch *dispatch;
    int64_t number; /* in the dispatch, from 1 */
    mimo_route_state state;
    mimo_route_map map;
    int64_t overflowing; /* the first rank whose tile is too small; -1: none */

    mimo_route_record *own;            /* this rank's, as it is told */
    char *records;                     /* of all ranks, one after the other */
    int64_t *tokens, *capacity, *rows; /* [ranks]: of these, and the rows needed */
    mimo_route_ids ids;

    mimo_recent calls; /* prepared ones: see dispatch_call.h */
    int moving;        /* operations that have begun and not ended */
    bool destroyed;    /* by the caller; the last of these operations releases it */
};

/* Release a dispatch; and one that the caller has destroyed, where neither a route nor an operation
 * needs it any more (dispatch_end.c). */
void mimo_dispatch_release(mimo_dispatch *dispatch);
void mimo_dispatch_release_unused(void *dispatch);

/* The same with a route (route.c). */
void mimo_route_release_unused(mimo_route *route);

/* MIMO_ERR_STATE where a route was never set, and the error of one that overflowed (route.c). */
mimo_status mimo_route_check_set(const mimo_route *route);

/* Bytes of a rank's record. */
static inline int64_t mimo_route_record_bytes(const mimo_dispatch *dispatch)
{
    int64_t ids = dispatch->desc.max_tokens * dispatch->shape.top_k;
    int64_t bytes = (int64_t)sizeof(mimo_route_record) + ids * (int64_t)sizeof(mimo_route_id);
    return (bytes + 7) / 8 * 8;
}

/* Rows that this rank's tile has. */
static inline int64_t mimo_route_tile_rows(const mimo_route *route)
{
    int64_t capacity = route->capacity[route->map.rank];
    return capacity >= 0 ? capacity : mimo_route_rows(&route->map, route->map.rank);
}

static inline int64_t mimo_route_own_tokens(const mimo_route *route)
{
    return route->tokens[route->map.rank];
}

#endif
