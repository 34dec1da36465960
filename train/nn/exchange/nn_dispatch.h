/*
 * How rows of tokens go to experts and come back (<mimo/dispatch.h>), in the layers' own dtype and
 * counted as the exchanges are. All mixtures of a model share one dispatch. It owns their routes:
 * one for each saved state, because a state owns nothing.
 */
#ifndef MIMO_NN_NN_DISPATCH_H
#define MIMO_NN_NN_DISPATCH_H

#include <mimo/dispatch.h>

#include "train/nn/exchange/nn_exchange.h"

typedef struct nn_dispatch nn_dispatch;

/** Make it before the layers that use it. The communicator is the group along "etp,ep". `hidden` of
 *  the descriptor is the width of the rows, which are nn_real, `max_tokens` covers each rank's own.
 *  Moves have room for numbers where `tensors` is 2. Collective over the communicator, blocking.
 *  Errors: those of mimo_dispatch_create. */
mimo_status nn_dispatch_create(nn_dispatch **out, const nn_runtime *runtime, mimo_comm *comm,
                               const mimo_dispatch_desc *desc);
/** After the layers. NULL is fine. */
void nn_dispatch_destroy(nn_dispatch *dispatch);

/** The descriptor, without its name, and the communicator. */
const mimo_dispatch_desc *nn_dispatch_sizes(const nn_dispatch *dispatch);
mimo_comm *nn_dispatch_comm(const nn_dispatch *dispatch);

/** A route, and room in host memory for the ends of its rows [E / ep] (nn_dispatch_ends), that live
 *  as long as the dispatch. Local; all ranks add routes in the same order. */
mimo_status nn_dispatch_add_route(mimo_route **out, int32_t **ends, nn_dispatch *dispatch);

/** Begin to set a route: ids [tokens, k], -1 for none, in the runtime's memory; `capacity` rows on
 *  this rank, and as many on all others. mimo_op_wait ends it. Collective, in one order on all
 *  ranks. Errors: as mimo_route_set_start. */
mimo_status nn_dispatch_set_start(mimo_op **out, const nn_dispatch *dispatch, mimo_route *route,
                                  const int32_t *ids, int64_t tokens, int64_t capacity);

/** To measure what moves cost: from now on, until it is called with false, no rank waits for
 *  another one. Routes stay as they were set, and a move copies as many rows on this rank as it
 *  would bring here: those of its experts, or one for each choice of its tokens. A copy has the
 *  thread blocks of a move (mimo_dispatch_desc.ctas). Values are of no use.
 *  Local. Errors: those of mimo_route_read (a route that was never set). */
mimo_status nn_dispatch_set_local(nn_dispatch *dispatch, bool local);

/** From now on routes are set on the stream `sets`, and rows move on `moves`: streams of the
 *  runtime's device. Before, both are the runtime's. The caller orders them. Where nn_dispatch_ends
 *  waits, it does for `sets` alone. Local. */
void nn_dispatch_use_streams(nn_dispatch *dispatch, mimo_stream sets, mimo_stream moves);

/** mimo_dispatch_report, with what checks were told since the last one. */
mimo_status nn_dispatch_report(mimo_dispatch_counts *out, nn_dispatch *dispatch);

/** Where the rows of each of this rank's experts end [E / ep], for calls on groups (nn_ops.h),
 *  until the route is set again. Local.
 *    In host memory, and in the fixed order: where the route has them. Nobody waits. On a device a
 *      tile that is too small shows in nn_dispatch_check.
 *    On a device in the fast order, whose products take them from the host: in `room`. It waits for
 *      the set. MIMO_ERR_SHAPE, the same on all ranks: a tile that is too small. */
mimo_status nn_dispatch_ends(const int32_t **out, nn_dispatch *dispatch, mimo_route *route,
                             int32_t *room, int64_t capacity);

/** Whether all tiles were large enough since the last check. Where the fixed order has let nobody
 *  wait on a device it waits for the last call of the dispatch, otherwise there is nothing to ask.
 *  Once a step, where the host waits anyway. Local. Errors: MIMO_ERR_SHAPE, the same on all ranks
 *  of the group, with the rows needed and, where a route still knows it, the rank: tokens that lost
 *  a row are NaN; and those of mimo_dispatch_report. */
mimo_status nn_dispatch_check(nn_dispatch *dispatch);

/** The tensors of a move. */
typedef struct nn_dispatch_move {
    mimo_route *route;
    int64_t tokens, capacity;       /* of the route */
    nn_real *token_rows, *values;   /* [tokens, H], [tokens, k] */
    nn_real *rows, *row_values;     /* of experts: [capacity, H], [capacity] */
    int64_t *numbers, *row_numbers; /* of rows alone: a number that each token's row takes along,
                                       [tokens], to those of experts, [capacity]; NULL: none */
    nn_exchange_counts *counts;     /* of the layer's store; NULL: uncounted */
} nn_dispatch_move;

/** Begin a move to the experts, from the tokens; and one of their sums back. mimo_op_wait ends it,
 *  and until then its tensors are the operation's. `values` NULL: rows alone. Numbers are not
 *  counted. Collective, in one order on all ranks. Errors: as mimo_dispatch_rows_start. */
mimo_status nn_dispatch_rows_start(mimo_op **out, const nn_dispatch *dispatch,
                                   const nn_dispatch_move *move);
mimo_status nn_dispatch_combine_start(mimo_op **out, const nn_dispatch *dispatch,
                                      const nn_dispatch_move *move);

#endif
