/*
 * The steps of both moves.
 *
 *   rows     pack token rows by peer, exchange, place them: first rows, then copies for the other
 *            pairs of a token, then zeros between experts
 *   combine  add the rows of each token here, exchange, add what comes back
 *
 * Rows of this rank's own tokens take the same way, except through the exchange.
 */
#include "core/check.h"
#include "core/mutation.h"
#include "dispatch/messages/dispatch_call.h"
#include "dispatch/messages/messages_route.h"

/* What the steps need of an operation. */
typedef struct moving {
    const mimo_device *device;
    const mimo_route_map *map;
    const mimo_dispatch_call *call;
    mimo_stream stream;
} moving;

static moving moving_of(const mimo_op *op)
{
    return (moving){op->mover->comm->device, &mimo_messages_route_of(mimo_route_of(op))->map,
                    mimo_dispatch_call_of(op), op->call.stream};
}

/* Rows of the staging, by their number among those that a part sends or receives. */
static char *sent_rows(const moving *it, const mimo_dispatch_part *part, int64_t first)
{
    return it->call->common.bases.at[MIMO_BASE_STAGING] + part->sent + first * part->wire_bytes;
}

static char *received_rows(const moving *it, const mimo_dispatch_part *part, int64_t first)
{
    return it->call->common.bases.at[MIMO_BASE_STAGING] + part->received + first * part->wire_bytes;
}

/* Packed rows and the rows of a tile at these positions. */
static mimo_row_map rows_at(const int64_t *position, int64_t rows, int64_t row_bytes)
{
    return (mimo_row_map){.position = position,
                          .rows = rows,
                          .row_bytes = row_bytes,
                          .seq = 1,
                          .tile_b = 1,
                          .length = rows,
                          .packed_s = 1};
}

static mimo_status exchange(mimo_op *op, const mimo_tile_pair *tiles)
{
    (void)tiles;
    mimo_comm *comm = op->mover->comm;
    return comm->backend->exchange_start(&op->progress.request, comm,
                                         mimo_dispatch_call_of(op)->exchange, op->call.stream);
}

/* ---------------------------------------- rows -------------------------------------- */

/* Whether rows to the ranks of an x are packed: at least one is not written to straight away. */
static bool packs(const moving *it, const mimo_dispatch_part *part, int64_t x)
{
    int64_t etp = it->map->shape.etp;
    for (int64_t rank = x * etp; rank < (x + 1) * etp; rank++)
        if (!mimo_dispatch_pushes(part, it->map, rank))
            return true;
    return false;
}

static mimo_status pack_part(const moving *it, const mimo_dispatch_part *part, const void *from)
{
    const mimo_route_map *map = it->map;
    const int64_t *positions = part->by_pair ? map->out.pair : map->out.token;
    for (int64_t x = 0; x < map->shape.ep; x++) {
        const mimo_dispatch_block block =
            mimo_dispatch_sent(map, false, part->by_pair, x * map->shape.etp);
        if (block.count == 0 || part->row_bytes == 0 || !packs(it, part, x))
            continue;
        const mimo_row_map rows = rows_at(positions + block.first, block.count, part->row_bytes);
        MIMO_TRY(
            it->device->gather_rows(sent_rows(it, part, block.first), from, &rows, it->stream));
    }
    return MIMO_OK;
}

static mimo_status pack(mimo_op *op, const mimo_tile_pair *tiles)
{
    const moving it = moving_of(op);
    for (int i = 0; i < it.call->common.count; i++)
        MIMO_TRY(pack_part(&it, &it.call->parts[i], tiles[i].src.view.data));
    return MIMO_OK;
}

/* Rows that no peer has written here go to their first rows, values of pairs to their rows. */
static mimo_status place_blocks(const moving *it, const mimo_dispatch_part *part, void *to)
{
    const mimo_route_map *map = it->map;
    const int64_t *positions = part->by_pair ? map->in.row : map->in.first;
    for (int64_t rank = 0; rank < map->shape.ranks; rank++) {
        const mimo_dispatch_block block = mimo_dispatch_received(map, false, part->by_pair, rank);
        const mimo_dispatch_block own = mimo_dispatch_sent(map, false, part->by_pair, rank);
        if (block.count == 0 || part->row_bytes == 0 || mimo_dispatch_pushes(part, map, rank))
            continue;
        const char *from = rank == map->rank ? sent_rows(it, part, own.first)
                                             : received_rows(it, part, block.first);
        const mimo_row_map rows = rows_at(positions + block.first, block.count, part->row_bytes);
        MIMO_TRY(it->device->scatter_rows(to, from, &rows, it->stream));
    }
    return MIMO_OK;
}

/* A token that has several pairs here came once. */
static mimo_status copy_to_other_pairs(const moving *it, const mimo_dispatch_part *part, void *tile)
{
    const mimo_route_blocks *in = &it->map->in;
    const mimo_row_repeats repeats = {.tile = tile,
                                      .row_bytes = part->row_bytes,
                                      .count = in->begin[it->map->shape.ranks],
                                      .begin = in->pairs,
                                      .row = in->row};
    if (part->by_pair || MIMO_MUTATED("first-pair-only"))
        return MIMO_OK;
    return it->device->repeat_rows(&repeats, it->stream);
}

static mimo_status zero_padding(const moving *it, const mimo_dispatch_part *part, void *tile)
{
    const mimo_route_map *map = it->map;
    int64_t first = mimo_route_x(&map->shape, map->rank) * map->shape.held;
    for (int64_t e = 0; e < map->shape.held && !MIMO_MUTATED("padding-kept"); e++) {
        int64_t row = map->starts[first + e] + mimo_route_expert_rows(map, first + e);
        const mimo_rows padding = {tile, part->row_bytes, row, 1, 1, map->ends[e] - row, 1};
        if (padding.n_inner > 0 && part->row_bytes > 0)
            MIMO_TRY(it->device->zero_rows(&padding, it->stream));
    }
    return MIMO_OK;
}

static mimo_status place(mimo_op *op, const mimo_tile_pair *tiles)
{
    const moving it = moving_of(op);
    for (int i = 0; i < it.call->common.count; i++) {
        const mimo_dispatch_part *part = &it.call->parts[i];
        void *tile = tiles[i].dst.view.data;
        MIMO_TRY(place_blocks(&it, part, tile));
        MIMO_TRY(copy_to_other_pairs(&it, part, tile));
        MIMO_TRY(zero_padding(&it, part, tile));
    }
    return MIMO_OK;
}

/* --------------------------------------- combine ------------------------------------ */

static int64_t width_of(const mimo_dispatch_part *part)
{
    return part->row_bytes / (int64_t)mimo_dtype_size(part->dtype);
}

/* What a rank's tokens get from here: this rank's own where it would come back. */
static mimo_status add_block(const moving *it, const mimo_dispatch_part *part, const void *tile,
                             int64_t rank)
{
    const mimo_route_map *map = it->map;
    const mimo_dispatch_block block = mimo_dispatch_sent(map, true, part->by_pair, rank);
    const mimo_dispatch_block back = mimo_dispatch_received(map, true, part->by_pair, rank);
    char *to =
        rank == map->rank ? received_rows(it, part, back.first) : sent_rows(it, part, block.first);
    if (block.count == 0 || part->row_bytes == 0)
        return MIMO_OK;
    if (part->by_pair) {
        const mimo_row_map rows = rows_at(map->in.row + block.first, block.count, part->row_bytes);
        return it->device->gather_rows(to, tile, &rows, it->stream);
    }
    const mimo_row_sums sums = {&map->partial, block.first, block.count, width_of(part), to,
                                tile,          part->wire,  part->dtype};
    return it->device->add_rows(&sums, it->stream);
}

static mimo_status add_here(mimo_op *op, const mimo_tile_pair *tiles)
{
    const moving it = moving_of(op);
    for (int i = 0; i < it.call->common.count; i++)
        for (int64_t rank = 0; rank < it.map->shape.ranks; rank++)
            MIMO_TRY(add_block(&it, &it.call->parts[i], tiles[i].dst.view.data, rank));
    return MIMO_OK;
}

static mimo_status add_returned(mimo_op *op, const mimo_tile_pair *tiles)
{
    const moving it = moving_of(op);
    for (int i = 0; i < it.call->common.count; i++) {
        const mimo_dispatch_part *part = &it.call->parts[i];
        const mimo_sum_list *list = part->by_pair ? &it.map->pair_sums : &it.map->sums;
        const mimo_row_sums sums = {list,
                                    0,
                                    list->count,
                                    width_of(part),
                                    tiles[i].src.view.data,
                                    received_rows(&it, part, 0),
                                    part->dtype,
                                    part->wire};
        MIMO_TRY(it.device->add_rows(&sums, it.stream));
    }
    return MIMO_OK;
}

const mimo_mover_step mimo_dispatch_rows_steps[] = {pack, exchange, place, NULL};
const mimo_mover_step mimo_dispatch_combine_steps[] = {add_here, exchange, add_returned, NULL};
