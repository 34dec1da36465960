/* Setting a route: every rank tells all others its ids, in 16 bits each, its number of tokens and
 * the size of its tile. Then each computes the rest alone, overflows included. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "comm/agreement.h"
#include "comm/calls.h"
#include "core/check.h"
#include "core/hash.h"
#include "device/profile.h"
#include "dispatch/messages/dispatch_call.h"

/* -------------------------------------- telling ------------------------------------- */

/* Read the ids into this rank's record. */
static mimo_status read_own(mimo_route *route, const mimo_route_desc *desc)
{
    mimo_route_desc own;
    const mimo_dispatch *dispatch = route->dispatch;
    MIMO_TRY(mimo_route_desc_read(&own, desc));
    MIMO_CHECK(own.tokens <= dispatch->desc.max_tokens, MIMO_ERR_SHAPE,
               "route: %" PRId64 " tokens, room for %" PRId64 " (max_tokens)", own.tokens,
               dispatch->desc.max_tokens);
    MIMO_TRY(mimo_route_ids_read((mimo_route_id *)(route->own + 1), &own, &dispatch->shape));
    *route->own = (mimo_route_record){own.tokens, own.capacity};
    return MIMO_OK;
}

static mimo_status prepare(mimo_route *route, const mimo_route_desc *desc)
{
    mimo_comm *comm = route->dispatch->mover.parent;
    MIMO_TRY(read_own(route, desc));
    return comm->backend->host_allgather_prepare(comm,
                                                 (int)mimo_route_record_bytes(route->dispatch));
}

static mimo_status tell(mimo_route *route, const char *call)
{
    mimo_request *request = NULL;
    mimo_comm *comm = route->dispatch->mover.parent;
    int bytes = (int)mimo_route_record_bytes(route->dispatch);
    MIMO_TRY(
        comm->backend->host_allgather_start(&request, comm, route->records, route->own, bytes));
    return mimo_wait(comm, &request, call);
}

/* -------------------------------------- knowing ------------------------------------- */

static void read_records(mimo_route *route)
{
    int64_t bytes = mimo_route_record_bytes(route->dispatch);
    for (int64_t rank = 0; rank < route->map.shape.ranks; rank++) {
        mimo_route_record record;
        memcpy(&record, route->records + rank * bytes, sizeof record);
        route->tokens[rank] = record.tokens;
        route->capacity[rank] = record.capacity;
    }
}

static void count(mimo_route *route)
{
    mimo_dispatch_counts *counts = &route->dispatch->counts;
    counts->routes++;
    counts->overflows += route->overflowing >= 0;
    for (int64_t rank = 0; rank < route->map.shape.ranks; rank++)
        if (route->rows[rank] > counts->rows)
            counts->rows = route->rows[rank];
}

/* All is known. What was prepared for the ids before is released. */
static void take(mimo_route *route)
{
    mimo_dispatch_calls_release(route);
    read_records(route);
    mimo_route_map_fill(&route->map, &route->ids);
    for (int64_t rank = 0; rank < route->map.shape.ranks; rank++)
        route->rows[rank] = mimo_route_rows(&route->map, rank);
    route->overflowing = mimo_route_overflow(&route->map, &route->ids);
    route->state = route->overflowing < 0 ? MIMO_ROUTE_SET : MIMO_ROUTE_OVERFLOWED;
    count(route);
}

/* -------------------------------------- setting ------------------------------------- */

/* The ranks agree on setting a route of this number; 0: this rank can't. */
static mimo_status agree(const mimo_mover *mover, int64_t number, mimo_status local,
                         const char *call)
{
    uint64_t signature = mimo_hash_int(mover->id, MIMO_CALL_ROUTE_SET);
    return mimo_agree_as(mover->parent, MIMO_AGREE_CALL, mimo_mover_prefix_error(mover, local),
                         mimo_hash_int(signature, number), call);
}

static mimo_status set(mimo_route *route, const mimo_route_desc *desc)
{
    char call[MIMO_CALL_TEXT];
    mimo_mover *mover = &route->dispatch->mover;
    snprintf(call, sizeof call, "%s set of route %" PRId64, mover->title, route->number);
    MIMO_TRY(agree(mover, route->number, prepare(route, desc), call));
    if (route->moving > 0) /* these move by what is overwritten now */
        mimo_mover_finish(mover);
    MIMO_TRY(tell(route, call));
    take(route);
    return mimo_route_check_set(route);
}

mimo_status mimo_dispatch_refuse_route(mimo_dispatch *dispatch, mimo_status local)
{
    MIMO_RANGE();
    char call[MIMO_CALL_TEXT];
    MIMO_CHECK(dispatch, MIMO_ERR_ARGUMENT, "dispatch refuse route: dispatch is NULL");
    MIMO_ENTER(dispatch->mover.parent, "dispatch refuse route");
    snprintf(call, sizeof call, "%s set of a route", dispatch->mover.title);
    return agree(&dispatch->mover, 0, mimo_refused_status(local, "dispatch refuse route"), call);
}

mimo_status mimo_route_set(mimo_route *route, const mimo_route_desc *desc, mimo_stream stream)
{
    (void)stream;
    MIMO_RANGE();
    MIMO_CHECK(route, MIMO_ERR_ARGUMENT, "mimo_route_set: route is NULL");
    MIMO_ENTER(route->dispatch->mover.parent, "route set");
    return set(route, desc);
}
