#include "oracle_tiles.h"

#include <string.h>

#include "core/check.h"
#include "device/device.h"
#include "train/nn/ops/nn_ops.h"

/* ----------------------------------------- creation ----------------------------------------- */

static int64_t rows_of(const oracle_tiles *tiles, int side)
{
    return tiles->desc.tokens * tiles->desc.samples[side];
}

/* Rows of a micro-batch in the dst tile. */
static int64_t rows_of_part(const oracle_tiles *tiles)
{
    return rows_of(tiles, MIMO_DST) / tiles->desc.group;
}

/* Samples that a call moves on a side. */
static int64_t moved(const oracle_tiles *tiles, int side)
{
    return side == MIMO_DST && !tiles->desc.consumes ? 0 : tiles->desc.samples[side];
}

/* All parts of a call lie in one of two rooms. Those of a forward lie in another room than those of
 * the forward before. So what moves has other addresses from one micro-batch to the next. */
enum { ROOMS = 2, ALIGNED = 64 };

/* Elements of a room. */
static int64_t parts_of(const oracle_tiles *tiles)
{
    int64_t count = (rows_of(tiles, MIMO_SRC) + rows_of(tiles, MIMO_DST)) * tiles->desc.hidden;
    return (count + ALIGNED - 1) / ALIGNED * ALIGNED;
}

static mimo_status reserve_room(oracle_tiles *out, const oracle_topology *topology)
{
    int64_t count = ROOMS * parts_of(out);
    if (!topology->zero_copy)
        return nn_runtime_reserve(out->runtime, &out->room, count, sizeof *out->room);
    MIMO_TRY(mimo_buffer_create(&out->buffer, topology->ranks.world,
                                count * (int64_t)sizeof *out->room));
    out->room = mimo_buffer_data(out->buffer);
    return MIMO_OK;
}

/* One after the other, so at the same offset on all ranks where they hold equally many samples. */
static void place_parts(oracle_tiles *out)
{
    nn_real *at = out->room + out->turn * parts_of(out);
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < out->desc.tensors; i++) {
            out->part[side][i] = at;
            at += rows_of(out, side) * out->width[i];
        }
}

mimo_status oracle_tiles_create(oracle_tiles *out, const oracle_topology *topology,
                                const oracle_tiles_desc *desc)
{
    out->desc = *desc;
    out->bridge = topology->ranks.bridge;
    out->runtime = topology->runtime;
    out->sample_major = topology->sample_major;
    out->width[0] = desc->tensors == 1 ? desc->hidden : desc->hidden / 4;
    out->width[1] = desc->hidden - out->width[0];
    MIMO_TRY(reserve_room(out, topology));
    place_parts(out);
    for (int side = 0; side < 2; side++)
        if (desc->tensors == 1)
            out->tile[side] = out->part[side][0];
        else
            MIMO_TRY(nn_runtime_reserve(out->runtime, &out->tile[side],
                                        rows_of(out, side) * desc->hidden,
                                        sizeof *out->tile[side]));
    return MIMO_OK;
}

void oracle_tiles_destroy(oracle_tiles *tiles)
{
    for (int side = 0; side < 2; side++)
        if (tiles->desc.tensors > 1)
            nn_runtime_free(tiles->runtime, tiles->tile[side]);
    if (!tiles->buffer)
        nn_runtime_free(tiles->runtime, tiles->room);
    mimo_buffer_destroy(tiles->buffer);
    memset(tiles, 0, sizeof *tiles);
}

/* ------------------------------------------- moves ------------------------------------------- */

/* Rows [first, first + count) of a side. */
typedef struct row_range {
    mimo_side side;
    int64_t first, count;
} row_range;

static row_range all_rows(const oracle_tiles *tiles, mimo_side side)
{
    return (row_range){side, 0, tiles->desc.tokens * moved(tiles, side)};
}

/* Copy columns between a tile and its parts, in quarters of a row. */
static mimo_status copy_parts(const oracle_tiles *tiles, row_range rows, bool to_parts)
{
    int64_t first = 0, quarter = tiles->desc.hidden / 4, count = rows.count;
    int64_t bytes = quarter * (int64_t)sizeof(nn_real);
    for (int i = 0; i < tiles->desc.tensors && tiles->desc.tensors > 1; i++) {
        int64_t quarters = tiles->width[i] / quarter;
        nn_real *tile = tiles->tile[rows.side] + rows.first * tiles->desc.hidden;
        nn_real *own = tiles->part[rows.side][i] + rows.first * tiles->width[i];
        const mimo_rows whole = {tile, bytes, first, count, 4, quarters, 1};
        const mimo_rows part = {own, bytes, 0, count, quarters, quarters, 1};
        MIMO_TRY(tiles->runtime->device->copy_rows(
            to_parts ? &part : &whole, to_parts ? &whole : &part, tiles->runtime->stream));
        first += quarters;
    }
    return MIMO_OK;
}

static void view_parts(const oracle_tiles *tiles, mimo_side side, mimo_tensor *views)
{
    bool major = side == MIMO_DST && tiles->sample_major;
    int64_t tokens = tiles->desc.tokens, samples = moved(tiles, side);
    for (int i = 0; i < tiles->desc.tensors; i++) {
        nn_real *part = tiles->part[side][i];
        int64_t width = tiles->width[i];
        views[i] = major ? mimo_tensor_3d(part, NN_DTYPE, "bsh", samples, tokens, width)
                         : mimo_tensor_3d(part, NN_DTYPE, "sbh", tokens, samples, width);
        views[i].memory = tiles->runtime->memory;
    }
}

mimo_status oracle_tiles_start(mimo_op **op, oracle_tiles *tiles, bool backward)
{
    mimo_tensor from[ORACLE_TENSORS], to[ORACLE_TENSORS];
    const mimo_side source = backward ? MIMO_DST : MIMO_SRC;
    const mimo_side target = backward ? MIMO_SRC : MIMO_DST;
    mimo_stream stream = tiles->runtime->stream;
    int n = tiles->desc.tensors;
    *op = NULL;
    if (!backward && n > 1) { /* otherwise the tile itself is the only part */
        tiles->turn = (tiles->turn + 1) % ROOMS;
        place_parts(tiles);
    }
    view_parts(tiles, source, from);
    view_parts(tiles, target, to);
    MIMO_TRY(copy_parts(tiles, all_rows(tiles, source), true));
    if (stream)
        return (backward ? mimo_bridge_backward : mimo_bridge_forward)(tiles->bridge, to, from, n,
                                                                       stream);
    mimo_move_desc move = MIMO_MOVE_DESC_INIT;
    move.to = to;
    move.from = from;
    move.n = n;
    if (backward)
        return mimo_bridge_backward_start_chunked(op, tiles->bridge, &move);
    move.chunks = (int)tiles->desc.group;
    return mimo_bridge_forward_start_chunked(op, tiles->bridge, &move);
}

mimo_status oracle_tiles_take(const oracle_tiles *tiles, int64_t i)
{
    int64_t rows = rows_of_part(tiles);
    return copy_parts(tiles, (row_range){MIMO_DST, i * rows, rows}, false);
}

nn_real *oracle_tiles_part(const oracle_tiles *tiles, int64_t i)
{
    return tiles->tile[MIMO_DST] + i * rows_of_part(tiles) * tiles->desc.hidden;
}

mimo_status oracle_tiles_give_none(const oracle_tiles *tiles, int64_t i)
{
    int64_t count = (tiles->desc.group - i) * rows_of_part(tiles) * tiles->desc.hidden;
    return nn_runtime_zero(tiles->runtime, oracle_tiles_part(tiles, i),
                           count * (int64_t)sizeof(nn_real));
}

mimo_status oracle_tiles_take_back(const oracle_tiles *tiles)
{
    MIMO_TRY(copy_parts(tiles, all_rows(tiles, MIMO_SRC), false));
    return nn_plain_zeros(tiles->runtime, tiles->tile[MIMO_SRC],
                          rows_of(tiles, MIMO_SRC) * tiles->desc.hidden);
}
