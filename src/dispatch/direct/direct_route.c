/* Routes on a device: tables that kernels write and read. The host enqueues, and learns a number of
 * rows where the caller asks for it. */
#include "dispatch/direct/direct_types.h"

#include <inttypes.h>
#include <stdio.h>

#include "comm/calls.h"
#include "core/check.h"
#include "core/memory.h"
#include "dispatch/dispatch_op_types.h"
#include "dispatch/route_state.h"

/* ------------------------------------- its life ------------------------------------- */

static void release(mimo_direct_route *own, const mimo_dispatch *dispatch)
{
    mimo_comm_release_moved(dispatch->mover.comm, own->memory);
    mimo_release(own->needed);
    mimo_release(own->capacity);
    mimo_release(own->rows);
    mimo_release(own);
}

/* Memory of a device is got and released with a wait, and a route is made for each layer and
 * micro-batch. So that of a route which was destroyed stays for the next one. Kernels of a dispatch
 * follow one another, on all streams, so it may be written anew at once. */

static mimo_status make(mimo_direct_route *own, const mimo_dispatch *dispatch)
{
    const mimo_expert_shape *shape = &mimo_direct_of(dispatch)->memory.shape;
    int64_t bytes;
    MIMO_TRY(mimo_route_tables_bytes(&bytes, shape));
    MIMO_TRY(mimo_reserve(&own->needed, shape->ep, sizeof *own->needed));
    MIMO_TRY(mimo_reserve(&own->capacity, shape->ranks, sizeof *own->capacity));
    MIMO_TRY(mimo_reserve(&own->rows, shape->ranks, sizeof *own->rows));
    MIMO_TRY(dispatch->mover.comm->device->reserve(&own->memory, bytes));
    return mimo_route_tables_place(&own->tables, shape, own->memory);
}

mimo_status mimo_direct_route_create(mimo_route *route)
{
    mimo_direct_route *own;
    mimo_direct *direct = mimo_direct_of(route->dispatch);
    if (direct->spare) {
        route->own = own = direct->spare;
        direct->spare = own->next;
        return MIMO_OK;
    }
    MIMO_TRY(mimo_reserve(&own, 1, sizeof *own));
    mimo_status status = make(own, route->dispatch);
    if (status == MIMO_OK)
        route->own = own;
    else
        release(own, route->dispatch);
    return status;
}

void mimo_direct_route_destroy(mimo_route *route)
{
    mimo_direct_route *own = mimo_direct_route_of(route);
    mimo_direct *direct = mimo_direct_of(route->dispatch);
    if (!own)
        return;
    own->next = direct->spare;
    direct->spare = own;
}

void mimo_direct_routes_release(mimo_dispatch *dispatch)
{
    mimo_direct *direct = mimo_direct_of(dispatch);
    while (direct->spare) {
        mimo_direct_route *own = direct->spare;
        direct->spare = own->next;
        release(own, dispatch);
    }
}

/* ------------------------------------- a set ---------------------------------------- */

mimo_status mimo_direct_set_prepare(mimo_route *route, const mimo_route_desc *desc)
{
    mimo_route_desc read;
    mimo_memory memory = route->dispatch->mover.comm->memory;
    MIMO_TRY(mimo_route_read_desc(&read, route->dispatch, desc));
    MIMO_CHECK(read.memory == memory, MIMO_ERR_ARGUMENT,
               "route: the ids lie in %s, and the communicator moves %s",
               mimo_memory_text(read.memory), mimo_memory_text(memory));
    MIMO_CHECK(read.capacity <= INT32_MAX, MIMO_ERR_OVERFLOW,
               "route: a capacity of %" PRId64 " rows, more than %d", read.capacity, INT32_MAX);
    mimo_direct_route_of(route)->asked = read;
    return MIMO_OK;
}

static mimo_status set(mimo_op *op, const mimo_tile_pair *tiles)
{
    (void)tiles;
    mimo_route *route = mimo_route_of(op);
    mimo_comm *comm = op->mover->comm;
    mimo_direct *direct = mimo_direct_of(route->dispatch);
    mimo_direct_route *own = mimo_direct_route_of(route);
    const mimo_route_desc *asked = &own->asked;
    const bool known = asked->capacity >= 0; /* otherwise a read tells the rows */
    const mimo_route_call call = {.call = {.memory = &direct->memory,
                                           .tables = own->tables,
                                           .signature = op->claim.signature},
                                  .ids = asked->ids,
                                  .wide = asked->id_dtype == MIMO_I64,
                                  .tokens = asked->tokens,
                                  .capacity = known ? asked->capacity : INT32_MAX};
    const mimo_route_sizes sizes = {
        .tokens = asked->tokens, .rows = asked->capacity, .overflowed = {.rank = -1}};
    own->stream = direct->stream = op->call.stream;
    MIMO_TRY(comm->backend->route_start(comm, &call, op->call.stream));
    return mimo_route_take(route, &sizes);
}

const mimo_mover_step mimo_direct_set_steps[] = {set, NULL};

/* ----------------------------------- what it knows ---------------------------------- */

mimo_status mimo_direct_ends(const int32_t **out, const mimo_route *route)
{
    *out = mimo_direct_route_of(route)->tables.ends;
    return MIMO_OK;
}

/* The copies behind it find an idle stream, so they wait for no other rank. */
mimo_status mimo_direct_wait(const mimo_dispatch *dispatch, mimo_stream stream, const char *call)
{
    char words[MIMO_CALL_TEXT];
    mimo_comm *comm = dispatch->mover.comm;
    const mimo_device *device = comm->device;
    MIMO_CHECK(!device->records || !device->records(stream), MIMO_ERR_STATE,
               "%s: %s waits for a stream that is being captured", dispatch->mover.title, call);
    MIMO_ENTER(comm, call);
    snprintf(words, sizeof words, "%s: %s", dispatch->mover.title, call);
    return mimo_wait_for_stream(comm, stream, words);
}

/* Waits for the set. */
mimo_status mimo_direct_read(mimo_route_counts *out, mimo_route *route)
{
    mimo_direct_route *own = mimo_direct_route_of(route);
    const mimo_expert_shape *shape = &mimo_direct_of(route->dispatch)->memory.shape;
    const mimo_comm *comm = route->dispatch->mover.comm;
    const mimo_device *device = comm->device;
    MIMO_TRY(mimo_direct_wait(route->dispatch, own->stream, "mimo_route_read"));
    MIMO_TRY(device->download(own->needed, own->tables.needed,
                              shape->ep * (int64_t)sizeof *own->needed, own->stream));
    MIMO_TRY(device->download(own->capacity, own->tables.capacity,
                              shape->ranks * (int64_t)sizeof *own->capacity, own->stream));
    out->ranks = shape->ranks;
    out->rows = own->rows;
    for (int rank = 0; rank < shape->ranks; rank++) {
        own->rows[rank] = own->needed[rank / shape->etp];
        out->overflows += own->rows[rank] > own->capacity[rank];
    }
    if (route->sizes.rows < 0)
        route->sizes.rows = own->rows[comm->rank];
    return MIMO_OK;
}
