/* Prepared calls: the exchange of a move, made from the blocks of its route and the widths of its
 * tensors; and which one serves an operation. */
#include "dispatch/messages/dispatch_call.h"

#include "core/checked.h"
#include "core/dtype_kind.h"
#include "core/memory.h"
#include "dispatch/dispatch_views.h"
#include "dispatch/messages/messages_route.h"

enum { CALLS_KEPT = 8 };

/* ------------------------------------------ blocks ------------------------------------------ */

static mimo_dispatch_block block_at(const mimo_route_blocks *blocks, bool by_pair, int64_t peer)
{
    int64_t first = blocks->begin[peer], end = blocks->begin[peer + 1];
    if (by_pair)
        return (mimo_dispatch_block){blocks->pairs[first],
                                     blocks->pairs[end] - blocks->pairs[first]};
    return (mimo_dispatch_block){first, end - first};
}

mimo_dispatch_block mimo_dispatch_sent(const mimo_route_map *map, bool combines, bool by_pair,
                                       int64_t peer)
{
    return combines ? block_at(&map->in, by_pair, peer)
                    : block_at(&map->out, by_pair, mimo_route_x(&map->shape, peer));
}

mimo_dispatch_block mimo_dispatch_received(const mimo_route_map *map, bool combines, bool by_pair,
                                           int64_t peer)
{
    const int64_t *begin = by_pair ? map->returned_pairs : map->returned;
    return combines ? (mimo_dispatch_block){begin[peer], begin[peer + 1] - begin[peer]}
                    : block_at(&map->in, by_pair, peer);
}

/* Rows of all blocks. The etp ranks of an x are sent the same ones. */
static int64_t end_of(mimo_dispatch_block last)
{
    return last.first + last.count;
}

/* ------------------------------------------- parts ------------------------------------------ */

static void set_part(mimo_dispatch_part *part, const mimo_op *op, int i)
{
    const mimo_tile_pair *pair = &op->tensors.pairs[i];
    bool narrow = mimo_route_of(op)->dispatch->desc.narrow_sums;
    mimo_dtype dtype = pair->src.view.dtype;
    bool widens = op->call.backward && mimo_dtype_is_half(dtype) && !narrow;
    *part = (mimo_dispatch_part){.by_pair = mimo_dispatch_by_pair(pair),
                                 .row_bytes = pair->src.row_bytes,
                                 .dtype = dtype,
                                 .wire = widens ? MIMO_F32 : dtype,
                                 .buffer = mimo_dispatch_target(op, i)};
    part->wire_bytes =
        part->row_bytes / (int64_t)mimo_dtype_size(dtype) * (int64_t)mimo_dtype_size(part->wire);
}

static mimo_status take(int64_t *out, mimo_dispatch_call *call, int64_t rows, int64_t row_bytes)
{
    return mimo_prepared_call_stage(out, &call->common, rows, row_bytes);
}

static mimo_status set_parts(mimo_dispatch_call *call, const mimo_op *op)
{
    const mimo_route_map *map = &mimo_messages_route_of(mimo_route_of(op))->map;
    int64_t last = map->shape.ranks - 1;
    bool combines = call->common.backward;
    MIMO_TRY(mimo_reserve(&call->parts, call->common.count, sizeof *call->parts));
    for (int i = 0; i < call->common.count; i++) {
        mimo_dispatch_part *part = &call->parts[i];
        set_part(part, op, i);
        int64_t sent = end_of(mimo_dispatch_sent(map, combines, part->by_pair, last));
        int64_t back = end_of(mimo_dispatch_received(map, combines, part->by_pair, last));
        MIMO_TRY(take(&part->sent, call, sent, part->wire_bytes));
        MIMO_TRY(take(&part->received, call, back, part->wire_bytes));
    }
    return MIMO_OK;
}

/* ------------------------------------- messages, pushes ------------------------------------- */

/* The lists of an exchange while it is made. */
typedef struct list_maker {
    const mimo_route_map *map;
    const mimo_dispatch_call *call;
    mimo_message *receives, *sends;
    mimo_placed_rows *rows; /* of all messages */
    mimo_push *pushes;
    mimo_placed_copy *pushed; /* of all pushes */
    int *pushers;
    int receive_count, send_count, push_count, pusher_count;
    int64_t row_count, pushed_count;
} list_maker;

/* One row after the other in the staging. */
static mimo_placed_rows staged_rows(int64_t offset, int64_t bytes)
{
    return (mimo_placed_rows){mimo_one_row(NULL, bytes), {MIMO_BASE_STAGING, offset}};
}

/* A message to a peer, or from it: a block of each tensor whose rows are not pushed. */
static void append_message(list_maker *it, bool sends, int peer)
{
    mimo_message *message = sends ? &it->sends[it->send_count] : &it->receives[it->receive_count];
    *message = (mimo_message){peer, 0, it->rows + it->row_count};
    for (int i = 0; i < it->call->common.count; i++) {
        const mimo_dispatch_part *part = &it->call->parts[i];
        const mimo_dispatch_block block = (sends ? mimo_dispatch_sent : mimo_dispatch_received)(
            it->map, it->call->common.backward, part->by_pair, peer);
        int64_t bytes = block.count * part->wire_bytes;
        if (bytes == 0 || mimo_dispatch_pushes(part, it->map, peer))
            continue;
        int64_t first = sends ? part->sent : part->received;
        it->rows[it->row_count++] = staged_rows(first + block.first * part->wire_bytes, bytes);
        message->count++;
    }
    if (message->count > 0)
        ++*(sends ? &it->send_count : &it->receive_count);
}

/* Row n of a block to a peer, from the token side of tensor i straight into the peer's tile. */
static mimo_placed_copy pushed_row(const list_maker *it, int i, int peer, int64_t n)
{
    const mimo_dispatch_part *part = &it->call->parts[i];
    const mimo_route_blocks *out = &it->map->out;
    const mimo_buffer *buffer = part->buffer;
    intptr_t distance = (intptr_t)buffer->data[peer] - (intptr_t)mimo_buffer_data(buffer);
    mimo_rows to = {NULL, part->row_bytes, part->by_pair ? out->row[n] : out->first[n], 1, 1, 1, 1};
    mimo_rows from = to;
    from.first = part->by_pair ? out->pair[n] : out->token[n];
    return (mimo_placed_copy){{to, {mimo_base_of_tile(i, MIMO_DST), distance}},
                              {from, {mimo_base_of_tile(i, MIMO_SRC), 0}}};
}

static void append_push(list_maker *it, int peer)
{
    mimo_push *push = &it->pushes[it->push_count];
    *push = (mimo_push){peer, 0, it->pushed + it->pushed_count};
    for (int i = 0; i < it->call->common.count; i++) {
        const mimo_dispatch_part *part = &it->call->parts[i];
        const mimo_dispatch_block block = mimo_dispatch_sent(it->map, false, part->by_pair, peer);
        if (part->row_bytes == 0 || !mimo_dispatch_pushes(part, it->map, peer))
            continue;
        for (int64_t n = block.first; n < end_of(block); n++, push->count++)
            it->pushed[it->pushed_count++] = pushed_row(it, i, peer, n);
    }
    if (push->count > 0)
        it->push_count++;
}

static void append_pusher(list_maker *it, int peer)
{
    bool pushes = false;
    for (int i = 0; i < it->call->common.count; i++) {
        const mimo_dispatch_part *part = &it->call->parts[i];
        pushes = pushes || (part->row_bytes > 0 && mimo_dispatch_pushes(part, it->map, peer) &&
                            mimo_dispatch_received(it->map, false, part->by_pair, peer).count > 0);
    }
    if (pushes)
        it->pushers[it->pusher_count++] = peer;
}

/* Memory for the most that there can be. */
static mimo_status reserve_lists(list_maker *it)
{
    int64_t ranks = it->map->shape.ranks, rows, pushed = 0;
    MIMO_TRY(mimo_mul(&rows, 2 * ranks, it->call->common.count));
    for (int i = 0; i < it->call->common.count; i++)
        for (int64_t rank = 0; rank < ranks; rank++)
            if (mimo_dispatch_pushes(&it->call->parts[i], it->map, rank))
                pushed +=
                    mimo_dispatch_sent(it->map, false, it->call->parts[i].by_pair, rank).count;
    MIMO_TRY(mimo_reserve(&it->receives, ranks, sizeof *it->receives));
    MIMO_TRY(mimo_reserve(&it->sends, ranks, sizeof *it->sends));
    MIMO_TRY(mimo_reserve(&it->rows, rows, sizeof *it->rows));
    MIMO_TRY(mimo_reserve(&it->pushes, ranks, sizeof *it->pushes));
    MIMO_TRY(mimo_reserve(&it->pushed, pushed, sizeof *it->pushed));
    return mimo_reserve(&it->pushers, ranks, sizeof *it->pushers);
}

static void release_lists(list_maker *it)
{
    mimo_release(it->receives);
    mimo_release(it->sends);
    mimo_release(it->rows);
    mimo_release(it->pushes);
    mimo_release(it->pushed);
    mimo_release(it->pushers);
}

static mimo_messages messages_of(const list_maker *it, const mimo_dispatch *dispatch)
{
    mimo_messages messages = {.alignments = it->call->common.bases.alignments,
                              .base_count = it->call->common.bases.count,
                              .receives = it->receives,
                              .sends = it->sends,
                              .receive_count = it->receive_count,
                              .send_count = it->send_count};
    if (it->call->common.bases.count > MIMO_BASE_TILES)
        messages.pushes = (mimo_pushes){.buffer = dispatch->flags,
                                        .list = it->pushes,
                                        .count = it->push_count,
                                        .pushers = it->pushers,
                                        .pusher_count = it->pusher_count,
                                        .ctas = dispatch->desc.ctas};
    return messages;
}

static mimo_status make_exchange(mimo_dispatch_call *call, const mimo_route *route)
{
    mimo_comm *comm = route->dispatch->mover.comm;
    list_maker maker = {.map = &mimo_messages_route_of(route)->map, .call = call};
    mimo_status status = reserve_lists(&maker);
    for (int peer = 0; peer < comm->size && status == MIMO_OK; peer++) {
        if (peer == comm->rank)
            continue;
        append_message(&maker, false, peer);
        append_message(&maker, true, peer);
        append_push(&maker, peer);
        append_pusher(&maker, peer);
    }
    if (status == MIMO_OK) {
        const mimo_messages messages = messages_of(&maker, route->dispatch);
        status = comm->backend->exchange_create(&call->exchange, comm, &messages);
    }
    release_lists(&maker);
    return status;
}

/* ----------------------------------- the calls of a route ----------------------------------- */

static mimo_status fill(mimo_prepared_call *prepared, mimo_op *op, const void *wanted)
{
    (void)wanted;
    mimo_dispatch_call *call = (mimo_dispatch_call *)prepared;
    MIMO_TRY(set_parts(call, op));
    return make_exchange(call, mimo_route_of(op));
}

static void empty(mimo_prepared_call *prepared, mimo_comm *comm)
{
    mimo_dispatch_call *call = (mimo_dispatch_call *)prepared;
    comm->backend->exchange_destroy(call->exchange);
    mimo_release(call->parts);
}

static bool serves(const mimo_prepared_call *prepared, const mimo_op *op, const void *wanted)
{
    (void)wanted;
    bool same = true;
    for (int i = 0; same && i < prepared->count; i++) {
        const mimo_tile_pair *pair = &op->tensors.pairs[i];
        const mimo_dispatch_part *part = &((const mimo_dispatch_call *)prepared)->parts[i];
        same = part->by_pair == mimo_dispatch_by_pair(pair) &&
               part->row_bytes == pair->src.row_bytes && part->dtype == pair->src.view.dtype;
    }
    return same;
}

static mimo_status bind(mimo_prepared_call *prepared, const mimo_op *op)
{
    const mimo_comm_backend *backend = op->mover->comm->backend;
    return backend->exchange_bind(((mimo_dispatch_call *)prepared)->exchange, prepared->bases.at,
                                  op->claim.signature);
}

static const mimo_prepared_kind kind = {.bytes = sizeof(mimo_dispatch_call),
                                        .kept = CALLS_KEPT,
                                        .staged = true,
                                        .target = mimo_dispatch_target,
                                        .serves = serves,
                                        .fill = fill,
                                        .empty = empty,
                                        .bind = bind};

mimo_status mimo_dispatch_call_get(mimo_op *op)
{
    mimo_prepared_call *call;
    mimo_dispatch_op *own = mimo_dispatch_op_of(op);
    mimo_recent *idle = &mimo_messages_route_of(own->route)->calls;
    MIMO_TRY(mimo_prepared_call_get(&call, idle, &kind, op, NULL));
    own->own = call;
    return mimo_prepared_call_bind(call, op);
}

void mimo_dispatch_call_put_back(mimo_op *op)
{
    mimo_dispatch_op *own = mimo_dispatch_op_of(op);
    mimo_prepared_call *call = own->own;
    own->own = NULL;
    if (call)
        mimo_prepared_call_put_back(call, &mimo_messages_route_of(own->route)->calls, op);
}
