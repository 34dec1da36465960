/* Setting a route: every rank tells all others its ids, in 16 bits each, its number of tokens and
 * the size of its tile. Then each computes the rest alone, overflows included. */
#include "dispatch/messages/messages_route.h"

#include <inttypes.h>
#include <string.h>

#include "comm/comm_backend.h"
#include "core/check.h"
#include "core/checked.h"
#include "core/memory.h"
#include "dispatch/dispatch_op_types.h"
#include "dispatch/route_state.h"
#include "move/prepared_call.h"

/* Bytes of a rank's record. */
static int64_t record_bytes(const mimo_dispatch *dispatch)
{
    int64_t ids = dispatch->desc.max_tokens * dispatch->shape.top_k;
    int64_t bytes = (int64_t)sizeof(mimo_route_record) + ids * (int64_t)sizeof(mimo_route_id);
    return (bytes + 7) / 8 * 8;
}

/* ------------------------------------- its life ------------------------------------- */

mimo_status mimo_messages_route_create(mimo_route *route)
{
    const mimo_dispatch *dispatch = route->dispatch;
    mimo_messages_route *own;
    int64_t bytes = record_bytes(dispatch), ranks = dispatch->shape.ranks, all;
    MIMO_TRY(mimo_mul(&all, bytes, ranks));
    MIMO_TRY(mimo_reserve(&own, 1, sizeof *own));
    route->own = own;
    MIMO_TRY(mimo_reserve(&own->told, bytes, 1));
    MIMO_TRY(mimo_reserve(&own->records, all, 1));
    MIMO_TRY(mimo_reserve(&own->tokens, ranks, sizeof *own->tokens));
    MIMO_TRY(mimo_reserve(&own->capacity, ranks, sizeof *own->capacity));
    MIMO_TRY(mimo_reserve(&own->rows, ranks, sizeof *own->rows));
    own->ids = (mimo_route_ids){
        (const mimo_route_id *)(const void *)(own->records + sizeof(mimo_route_record)),
        bytes / (int64_t)sizeof(mimo_route_id), own->tokens, own->capacity};
    return mimo_route_map_reserve(&own->map, &dispatch->shape, dispatch->mover.comm->rank,
                                  dispatch->desc.max_tokens);
}

void mimo_messages_route_destroy(mimo_route *route)
{
    mimo_messages_route *own = mimo_messages_route_of(route);
    if (!own)
        return;
    mimo_prepared_calls_release(&own->calls, route->dispatch->mover.comm);
    mimo_route_map_release(&own->map);
    mimo_release(own->told);
    mimo_release(own->records);
    mimo_release(own->tokens);
    mimo_release(own->capacity);
    mimo_release(own->rows);
    mimo_release(own);
}

/* -------------------------------------- telling ------------------------------------- */

/* Read the ids into this rank's record. */
static mimo_status read_own(mimo_messages_route *own, const mimo_dispatch *dispatch,
                            const mimo_route_desc *desc)
{
    mimo_route_desc read;
    MIMO_TRY(mimo_route_read_desc(&read, dispatch, desc));
    MIMO_TRY(mimo_route_ids_read((mimo_route_id *)(own->told + 1), &read, &dispatch->shape));
    *own->told = (mimo_route_record){read.tokens, read.capacity};
    return MIMO_OK;
}

mimo_status mimo_messages_set_prepare(mimo_route *route, const mimo_route_desc *desc)
{
    mimo_comm *comm = route->dispatch->mover.comm;
    MIMO_TRY(read_own(mimo_messages_route_of(route), route->dispatch, desc));
    return comm->backend->host_allgather_prepare(comm, (int)record_bytes(route->dispatch));
}

static mimo_status tell(mimo_op *op, const mimo_tile_pair *tiles)
{
    (void)tiles;
    mimo_comm *comm = op->mover->comm;
    const mimo_route *route = mimo_route_of(op);
    const mimo_messages_route *own = mimo_messages_route_of(route);
    return comm->backend->host_allgather_start(&op->progress.request, comm, own->records, own->told,
                                               (int)record_bytes(route->dispatch));
}

/* -------------------------------------- knowing ------------------------------------- */

static void read_records(mimo_messages_route *own, int64_t bytes)
{
    for (int64_t rank = 0; rank < own->map.shape.ranks; rank++) {
        mimo_route_record record;
        memcpy(&record, own->records + rank * bytes, sizeof record);
        own->tokens[rank] = record.tokens;
        own->capacity[rank] = record.capacity;
    }
}

static mimo_route_sizes sizes_of(const mimo_messages_route *own)
{
    int64_t rank = own->map.rank, small = mimo_route_overflow(&own->map, &own->ids);
    mimo_route_sizes sizes = {.tokens = own->tokens[rank],
                              .rows =
                                  own->capacity[rank] >= 0 ? own->capacity[rank] : own->rows[rank],
                              .overflowed = {.rank = small}};
    if (small >= 0)
        sizes.overflowed = (mimo_route_tile){small, own->rows[small], own->capacity[small]};
    for (int64_t other = 0; other < own->map.shape.ranks; other++)
        if (own->rows[other] > sizes.most_rows)
            sizes.most_rows = own->rows[other];
    return sizes;
}

/* All is known. What was prepared for the ids before is released. */
static mimo_status take(mimo_op *op, const mimo_tile_pair *tiles)
{
    (void)tiles;
    mimo_route *route = mimo_route_of(op);
    mimo_messages_route *own = mimo_messages_route_of(route);
    mimo_prepared_calls_release(&own->calls, route->dispatch->mover.comm);
    read_records(own, record_bytes(route->dispatch));
    mimo_route_map_fill(&own->map, &own->ids);
    for (int64_t rank = 0; rank < own->map.shape.ranks; rank++)
        own->rows[rank] = mimo_route_rows(&own->map, rank);
    const mimo_route_sizes sizes = sizes_of(own);
    return mimo_route_take(route, &sizes);
}

const mimo_mover_step mimo_messages_set_steps[] = {tell, take, NULL};

mimo_status mimo_messages_ends(const int32_t **out, const mimo_route *route)
{
    *out = mimo_messages_route_of(route)->map.ends;
    return MIMO_OK;
}

mimo_status mimo_messages_read(mimo_route_counts *out, mimo_route *route)
{
    const mimo_messages_route *own = mimo_messages_route_of(route);
    out->ranks = own->map.shape.ranks;
    out->rows = own->rows;
    for (int64_t rank = 0; rank < out->ranks; rank++)
        out->overflows += own->capacity[rank] >= 0 && own->rows[rank] > own->capacity[rank];
    return MIMO_OK;
}
