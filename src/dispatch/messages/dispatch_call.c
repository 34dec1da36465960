/* Prepared calls: the exchange of a move, made from the blocks of its route and the widths of its
 * tensors; and which kept one serves an operation. */
#include "dispatch/messages/dispatch_call.h"

#include <string.h>

#include "core/checked.h"
#include "core/dtype_kind.h"
#include "core/hash.h"
#include "core/memory.h"
#include "dispatch/dispatch_views.h"
#include "dispatch/messages/messages_route.h"

enum { CALLS_KEPT = 8, ALIGNMENT = 64 /* of the parts of the staging */ };

/* The numbers of the bases; the token side of tensor i is TILES + 2 i, its expert side the next. */
enum { BASE_STAGING, BASE_TILES };

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

/* Rows of a tensor without a buffer move through the staging, wherever the tensor lies. */
static mimo_address_key key_of(const mimo_tile_pair *pair, const mimo_buffer *buffer)
{
    static const mimo_address_key staged = {0, {MIMO_LEAST_ALIGNMENT, MIMO_LEAST_ALIGNMENT}};
    return buffer ? mimo_address_key_of(pair, MIMO_DST, buffer, false) : staged;
}

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
    part->key = key_of(pair, part->buffer);
}

/* Take room for rows behind the *used bytes that are taken. */
static mimo_status take(int64_t *out, int64_t *used, int64_t rows, int64_t row_bytes)
{
    int64_t bytes, end;
    MIMO_TRY(mimo_mul(&bytes, rows, row_bytes));
    MIMO_TRY(mimo_add(&end, *used, bytes));
    MIMO_TRY(mimo_add(&end, end, ALIGNMENT - 1));
    *out = *used;
    *used = end / ALIGNMENT * ALIGNMENT;
    return MIMO_OK;
}

static mimo_status set_parts(mimo_dispatch_call *call, const mimo_op *op)
{
    const mimo_route_map *map = &mimo_messages_route_of(mimo_route_of(op))->map;
    int64_t last = map->shape.ranks - 1;
    MIMO_TRY(mimo_reserve(&call->parts, call->count, sizeof *call->parts));
    for (int i = 0; i < call->count; i++) {
        mimo_dispatch_part *part = &call->parts[i];
        set_part(part, op, i);
        int64_t sent = end_of(mimo_dispatch_sent(map, call->combines, part->by_pair, last));
        int64_t back = end_of(mimo_dispatch_received(map, call->combines, part->by_pair, last));
        MIMO_TRY(take(&part->sent, &call->staging_bytes, sent, part->wire_bytes));
        MIMO_TRY(take(&part->received, &call->staging_bytes, back, part->wire_bytes));
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
    return (mimo_placed_rows){mimo_one_row(NULL, bytes), {BASE_STAGING, offset}};
}

/* A message to a peer, or from it: a block of each tensor whose rows are not pushed. */
static void append_message(list_maker *it, bool sends, int peer)
{
    mimo_message *message = sends ? &it->sends[it->send_count] : &it->receives[it->receive_count];
    *message = (mimo_message){peer, 0, it->rows + it->row_count};
    for (int i = 0; i < it->call->count; i++) {
        const mimo_dispatch_part *part = &it->call->parts[i];
        const mimo_dispatch_block block = (sends ? mimo_dispatch_sent : mimo_dispatch_received)(
            it->map, it->call->combines, part->by_pair, peer);
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
    return (mimo_placed_copy){{to, {BASE_TILES + 2 * i + 1, distance}},
                              {from, {BASE_TILES + 2 * i, 0}}};
}

static void append_push(list_maker *it, int peer)
{
    mimo_push *push = &it->pushes[it->push_count];
    *push = (mimo_push){peer, 0, it->pushed + it->pushed_count};
    for (int i = 0; i < it->call->count; i++) {
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
    for (int i = 0; i < it->call->count; i++) {
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
    MIMO_TRY(mimo_mul(&rows, 2 * ranks, it->call->count));
    for (int i = 0; i < it->call->count; i++)
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
    mimo_messages messages = {.alignments = it->call->alignments,
                              .base_count = it->call->base_count,
                              .receives = it->receives,
                              .sends = it->sends,
                              .receive_count = it->receive_count,
                              .send_count = it->send_count};
    if (it->call->base_count > BASE_TILES)
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

/* --------------------------------------- its life ------------------------------------------- */

static void destroy(mimo_dispatch_call *call, const mimo_route *route)
{
    route->dispatch->mover.comm->backend->exchange_destroy(call->exchange);
    mimo_release(call->parts);
    mimo_release(call->bases);
    mimo_release(call->alignments);
    mimo_release(call);
}

/* Where the tensors of an operation lie. Messages alone need the staging alone: then other tensors
 * change nothing, and requests stay as they are. */
static void set_bases(mimo_dispatch_call *call, const mimo_op *op)
{
    call->bases[BASE_STAGING] = call->staging;
    for (int i = 0; i < call->count && call->base_count > BASE_TILES; i++) {
        call->bases[BASE_TILES + 2 * i] = op->tensors.pairs[i].src.view.data;
        call->bases[BASE_TILES + 2 * i + 1] = op->tensors.pairs[i].dst.view.data;
    }
}

static void set_alignments(const mimo_dispatch_call *call)
{
    call->alignments[BASE_STAGING] = MIMO_MOST_ALIGNMENT;
    for (int i = 0; i < call->count && call->base_count > BASE_TILES; i++)
        memcpy(&call->alignments[BASE_TILES + 2 * i], call->parts[i].key.tiles,
               sizeof call->parts[i].key.tiles);
}

static bool has_pushes(const mimo_dispatch_call *call)
{
    bool any = false;
    for (int i = 0; i < call->count; i++)
        any = any || call->parts[i].buffer;
    return any;
}

static mimo_status fill(mimo_dispatch_call *call, const mimo_op *op)
{
    MIMO_TRY(set_parts(call, op));
    call->base_count = BASE_TILES + (has_pushes(call) ? 2 * call->count : 0);
    MIMO_TRY(mimo_reserve(&call->bases, call->base_count, sizeof *call->bases));
    MIMO_TRY(mimo_reserve(&call->alignments, call->base_count, sizeof *call->alignments));
    set_alignments(call);
    return make_exchange(call, mimo_route_of(op));
}

static mimo_status make(mimo_dispatch_call **out, const mimo_op *op)
{
    mimo_dispatch_call *call;
    MIMO_TRY(mimo_reserve(&call, 1, sizeof *call));
    call->combines = op->call.backward;
    call->count = op->call.n;
    mimo_status status = fill(call, op);
    if (status == MIMO_OK)
        *out = call;
    else
        destroy(call, mimo_route_of(op));
    return status;
}

/* ----------------------------------------- keeping ------------------------------------------ */

static bool serves(const mimo_recent_entry *entry, const void *context)
{
    const mimo_op *op = context;
    const mimo_dispatch_call *call = (const mimo_dispatch_call *)entry;
    bool same = call->combines == op->call.backward && call->count == op->call.n;
    for (int i = 0; same && i < call->count; i++) {
        mimo_dispatch_part wanted;
        const mimo_dispatch_part *part = &call->parts[i];
        set_part(&wanted, op, i);
        same = part->by_pair == wanted.by_pair && part->row_bytes == wanted.row_bytes &&
               part->dtype == wanted.dtype && mimo_address_key_equals(&part->key, &wanted.key);
    }
    return same;
}

static void release_entry(mimo_recent_entry *entry, void *route)
{
    destroy((mimo_dispatch_call *)entry, route);
}

static const mimo_recent_kind call_kind = {NULL, release_entry};

mimo_status mimo_dispatch_call_get(mimo_op *op)
{
    void *staging;
    mimo_comm *comm = op->mover->comm;
    mimo_dispatch_op *own = mimo_dispatch_op_of(op);
    mimo_messages_route *route = mimo_messages_route_of(own->route);
    mimo_dispatch_call *call = (mimo_dispatch_call *)mimo_recent_take(&route->calls, serves, op);
    if (!call)
        MIMO_TRY(make(&call, op));
    own->own = call;
    MIMO_TRY(mimo_op_get_staging(&staging, op, MIMO_STAGING_CONTRIBUTIONS, call->staging_bytes));
    call->staging = staging;
    set_bases(call, op);
    return comm->backend->exchange_bind(call->exchange, call->bases, op->claim.signature);
}

void mimo_dispatch_call_put_back(mimo_op *op)
{
    mimo_dispatch_op *own = mimo_dispatch_op_of(op);
    mimo_messages_route *route = mimo_messages_route_of(own->route);
    mimo_dispatch_call *call = own->own;
    own->own = NULL;
    if (!call)
        return;
    if (op->progress.status != MIMO_OK) { /* it may have been in flight */
        destroy(call, own->route);
        return;
    }
    mimo_recent_put(&route->calls, &call->entry);
    mimo_recent_trim(&route->calls, CALLS_KEPT, &call_kind, own->route);
}

void mimo_dispatch_calls_release(mimo_route *route)
{
    mimo_recent_clear(&mimo_messages_route_of(route)->calls, &call_kind, route);
}
