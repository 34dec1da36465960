/* What the direct executor knows of a dispatch and of a route. */
#ifndef MIMO_DISPATCH_DIRECT_TYPES_H
#define MIMO_DISPATCH_DIRECT_TYPES_H

#include "comm/expert_calls.h"
#include "dispatch/route_types.h"

typedef struct mimo_direct_route mimo_direct_route;

/* Of a dispatch. Its memory lies in the buffer of dispatch->flags. */
typedef struct mimo_direct {
    mimo_expert_memory memory;
    mimo_stream stream;            /* of the last call */
    mimo_expert_counters reported; /* as the last report read them */
    mimo_direct_route *spare;      /* of routes that were destroyed, for those that follow */
} mimo_direct;

/* Of a route. */
struct mimo_direct_route {
    mimo_direct_route *next; /* among the spare ones */
    void *memory;            /* of the device: the tables */
    mimo_route_tables tables;
    mimo_route_desc asked; /* what the set that follows brings */
    mimo_stream stream;    /* of the last set */
    /* In host memory, for reads. */
    int32_t *needed, *capacity; /* [ep], [ranks] */
    int64_t *rows;              /* [ranks] */
};

static inline mimo_direct *mimo_direct_of(const mimo_dispatch *dispatch)
{
    return dispatch->own;
}

static inline mimo_direct_route *mimo_direct_route_of(const mimo_route *route)
{
    return route->own;
}

/* What the table of executors says of routes (direct_route.c). */
mimo_status mimo_direct_route_create(mimo_route *route);
void mimo_direct_route_destroy(mimo_route *route);
/* Release the spare ones. */
void mimo_direct_routes_release(mimo_dispatch *dispatch);
mimo_status mimo_direct_set_prepare(mimo_route *route, const mimo_route_desc *desc);
extern const mimo_mover_step mimo_direct_set_steps[];
mimo_status mimo_direct_ends(const int32_t **out, const mimo_route *route);
mimo_status mimo_direct_read(mimo_route_counts *out, mimo_route *route);

/* What it says of moves (direct_moves.c). */
mimo_status mimo_direct_move_prepare(mimo_op *op);
extern const mimo_mover_step mimo_direct_move_steps[];

/* Wait for the work of a stream, under the communicator's deadline; `call` is the public call that
 * does. MIMO_ERR_STATE: the stream is being captured. */
mimo_status mimo_direct_wait(const mimo_dispatch *dispatch, mimo_stream stream, const char *call);

#endif
