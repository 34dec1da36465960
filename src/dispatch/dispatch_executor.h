/*
 * What moves rows of a dispatch. Dispatch reads and checks a call, agrees on it, and then does what
 * its executor says. It reaches the executor through this table alone, and what the executor knows
 * of a route or of a move lies behind a pointer.
 */
#ifndef MIMO_DISPATCH_DISPATCH_EXECUTOR_H
#define MIMO_DISPATCH_DISPATCH_EXECUTOR_H

#include "dispatch/route_types.h"

typedef struct mimo_dispatch_executor {
    const char *name;

    /* ------ creation ------ */

    /* Whether it moves tensors in the memory of a communicator. All ranks say the same. */
    bool (*moves)(const mimo_comm *comm);
    /* Get what all routes share, into dispatch->own and dispatch->flags. Collective over the
     * mover's communicator. */
    mimo_status (*connect)(mimo_dispatch *dispatch);
    /* Release dispatch->own, also where connect failed halfway. The flags are released before.
     * NULL: there is none. */
    void (*disconnect)(mimo_dispatch *dispatch);
    /* What the routes needed since the last report, where the host does not know: it may wait for
     * the device, which counts replays of graphs as well. NULL: mimo_route_take has counted it. */
    mimo_status (*report)(mimo_dispatch_counts *out, mimo_dispatch *dispatch);

    /* ------ routes ------ */

    /* Memory for any batch, into route->own. Local. */
    mimo_status (*route_create)(mimo_route *route);
    /* Release what creation made, or began to make. */
    void (*route_destroy)(mimo_route *route);
    /* Read what this rank brings, and get the memory that the ranks' exchange takes. Local. What
     * the route knew stays: its moves may be in flight. */
    mimo_status (*set_prepare)(mimo_route *route, const mimo_route_desc *desc);
    /* The steps that set the route: all ranks agree, and its moves have ended. The last one calls
     * mimo_route_take (route_state.h). */
    const mimo_mover_step *set;
    /* Where the rows of this rank's experts end, and the rows that all tiles need. Of a route that
     * was set. A read also gives the route the rows of its tile, where the device alone knew them.
     */
    mimo_status (*ends)(const int32_t **out, const mimo_route *route);
    mimo_status (*read)(mimo_route_counts *out, mimo_route *route);

    /* ------ moves ------ */

    /* With all tensors read: get the memory that the steps will use, into mimo_dispatch_op.own.
     * Local. A rank without memory then fails while the others can still hear of it. */
    mimo_status (*prepare)(mimo_op *op);
    const mimo_mover_step *rows, *combine;
    /* After the last step, or where the operation failed before. NULL: nothing to do. */
    void (*finish)(mimo_op *op);
} mimo_dispatch_executor;

extern const mimo_dispatch_executor mimo_direct_executor, mimo_messages_executor;

/* The first executor that moves the memory of a communicator (dispatch_executors.c).
 * MIMO_ERR_UNSUPPORTED where none does. */
mimo_status mimo_dispatch_choose_executor(const mimo_dispatch_executor **out,
                                          const mimo_comm *comm);

#endif
