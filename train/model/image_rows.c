#include "train/model/image_rows.h"

#include "train/model/row_order.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/nn/ops/nn_ops.h"

static const nn_runtime *runtime_of(const image_rows *rows)
{
    return nn_runtime_or_host(rows->desc.runtime);
}

/* Rows of this rank's pictures. */
static int64_t count_rows(const image_rows *rows, const image_slot *slot)
{
    return rows->desc.batch->desc.tokens * slot->deal->count;
}

/* Rows of a micro-batch in the LLM's tile. */
static int64_t part_rows(const image_rows *rows)
{
    return rows->desc.own * rows->desc.batch->sentences;
}

static bool is_first(const image_rows *rows)
{
    return rows->desc.topology->stage == 0;
}

/* --------------------------------------------- life ------------------------------------------- */

static mimo_status reserve_slot(image_slot *slot, const image_rows *rows)
{
    const nn_runtime *runtime = rows->desc.runtime;
    bool half = rows->desc.dtype == MIMO_BF16;
    int64_t most = rows->desc.batch->desc.tokens * rows->desc.batch->pictures;
    int64_t hidden = rows->desc.hidden, src = most * hidden;
    int64_t dst = is_first(rows) ? rows->desc.batch->desc.group * part_rows(rows) * hidden : 0;
    TRY(nn_runtime_reserve(runtime, &slot->encoded, src, sizeof *slot->encoded));
    TRY(nn_runtime_reserve(runtime, &slot->src_tile, src, sizeof *slot->src_tile));
    TRY(nn_runtime_reserve(runtime, &slot->dst_tile, dst, sizeof *slot->dst_tile));
    TRY(nn_runtime_reserve(runtime, &slot->src_half, half ? src : 0, sizeof *slot->src_half));
    return nn_runtime_reserve(runtime, &slot->dst_half, half ? dst : 0, sizeof *slot->dst_half);
}

mimo_status image_rows_create(image_rows *out, const image_rows_desc *desc)
{
    out->desc = *desc;
    TRY(row_order_create(&out->parts, runtime_of(out)));
    TRY(row_order_set(out->parts, desc->batch->sentences, desc->own, runtime_of(out)));
    TRY(memory_reserve(&out->slots, desc->encoder->states, sizeof *out->slots));
    for (int64_t i = 0; i < desc->encoder->states; i++)
        TRY(reserve_slot(&out->slots[i], out));
    return MIMO_OK;
}

static void release_slot(image_slot *slot, const nn_runtime *runtime)
{
    nn_runtime_free(runtime, slot->encoded);
    nn_runtime_free(runtime, slot->src_tile);
    nn_runtime_free(runtime, slot->dst_tile);
    nn_runtime_free(runtime, slot->src_half);
    nn_runtime_free(runtime, slot->dst_half);
}

void image_rows_destroy(image_rows *rows)
{
    for (int64_t i = 0; rows->slots && i < rows->desc.encoder->states; i++)
        release_slot(&rows->slots[i], rows->desc.runtime);
    memory_release(rows->slots);
    mimo_alignment_destroy(rows->parts);
    *rows = (image_rows){0};
}

/* ------------------------------------------- the bridge --------------------------------------- */

/* Between a side's tile and the one that crosses the bridge, where that is in bf16. */
static mimo_status to_bridge(const image_rows *rows, uint16_t *half, const nn_real *tile,
                             int64_t count)
{
    const nn_runtime *runtime = runtime_of(rows);
    return rows->desc.dtype == MIMO_BF16
               ? runtime->ops->to_bf16(runtime, half, tile, count * rows->desc.hidden)
               : MIMO_OK;
}

static mimo_status from_bridge(const image_rows *rows, nn_real *tile, const uint16_t *half,
                               int64_t count)
{
    const nn_runtime *runtime = runtime_of(rows);
    return rows->desc.dtype == MIMO_BF16
               ? runtime->ops->from_bf16(runtime, tile, half, count * rows->desc.hidden)
               : MIMO_OK;
}

/* The tiles of both sides as the bridge sees them. Other stages than the first one consume nothing.
 */
static void view_tiles(const image_rows *rows, const image_slot *slot, int64_t src_rows,
                       mimo_tensor *src, mimo_tensor *dst)
{
    const micro_batch *batch = rows->desc.batch;
    bool half = rows->desc.dtype == MIMO_BF16;
    int64_t samples = is_first(rows) ? batch->desc.group * batch->sentences : 0;
    *src = mimo_tensor_2d(half ? (void *)slot->src_half : (void *)slot->src_tile, rows->desc.dtype,
                          "th", src_rows, rows->desc.hidden);
    *dst = mimo_tensor_3d(half ? (void *)slot->dst_half : (void *)slot->dst_tile, rows->desc.dtype,
                          "bsh", samples, rows->desc.own, rows->desc.hidden);
    if (samples == 0)
        dst->data = NULL;
    src->memory = dst->memory = runtime_of(rows)->memory;
}

/* A call of a slot. Chunk i of a forward has the samples of the group's i-th micro-batch, one
 * after the other. */
typedef struct place_call {
    mimo_tensor src, dst;
    mimo_move_desc move;
} place_call;

static void describe_call(place_call *out, const image_rows *rows, bool backward,
                          const image_slot *slot, int64_t src_rows)
{
    view_tiles(rows, slot, src_rows, &out->src, &out->dst);
    out->move = (mimo_move_desc)MIMO_MOVE_DESC_INIT;
    out->move.to = backward ? &out->src : &out->dst;
    out->move.from = backward ? &out->dst : &out->src;
    out->move.n = 1;
    out->move.chunks = backward ? 1 : (int)rows->desc.batch->desc.group;
    out->move.stream = stage_stream_of(rows->desc.streams, STREAM_BRIDGE);
}

static mimo_status start(mimo_op **out, const image_rows *rows, bool backward,
                         const place_call *call)
{
    mimo_bridge *bridge = rows->desc.topology->bridge;
    return backward ? mimo_bridge_backward_start_chunked(out, bridge, &call->move)
                    : mimo_bridge_forward_start_chunked(out, bridge, &call->move);
}

mimo_status image_rows_begin(mimo_op **out, image_rows *rows, bool backward, int64_t slot)
{
    const image_slot *own = &rows->slots[slot];
    place_call call;
    describe_call(&call, rows, backward, own, count_rows(rows, own));
    if (rows->desc.batch->desc.most_images > 0)
        TRY(mimo_bridge_select(rows->desc.topology->bridge, (int)own->group));
    return start(out, rows, backward, &call);
}

/* At the first message of two ranks their hosts wait for each other, and a kernel is loaded at its
 * first call. In the lists of two stages either could be for ever, so it happens here; what is
 * moved is of no use. */
static mimo_status prepare(image_rows *rows, int64_t pictures)
{
    for (int backward = 0; backward < 2; backward++) {
        place_call call;
        mimo_op *op = NULL;
        describe_call(&call, rows, backward, &rows->slots[0],
                      rows->desc.batch->desc.tokens * pictures);
        TRY(mimo_bridge_prepare(rows->desc.topology->bridge, backward, &call.move));
        if (!rows->warm)
            TRY(start(&op, rows, backward, &call));
        TRY(mimo_op_wait(&op));
    }
    rows->warm = true;
    return MIMO_OK;
}

/* Every sentence begins with its image rows, also that of a masked sample. All stages know that. */
static mimo_status list_spans(mimo_span **out, const micro_batch *batch)
{
    int64_t count = batch->desc.group * batch->sentences;
    TRY(memory_reserve(out, count, sizeof **out));
    for (int64_t i = 0; i < count; i++)
        (*out)[i] = (mimo_span){.sample = batch->desc.group * batch->first_sentence + i,
                                .length = batch->desc.tokens};
    return MIMO_OK;
}

mimo_status image_rows_connect(image_rows *rows)
{
    const micro_batch *batch = rows->desc.batch;
    const rank_topology *topology = rows->desc.topology;
    mimo_batch_desc desc = MIMO_BATCH_DESC_INIT;
    mimo_span *spans = NULL;
    mimo_status status = mimo_comm_agree(topology->world, list_spans(&spans, batch));
    desc.batch = batch->desc.group * batch->total;
    desc.ragged = true;
    desc.spans = spans;
    desc.span_count = batch->desc.group * batch->sentences;
    if (status == MIMO_OK)
        status = mimo_bridge_update(topology->bridge, &desc, 1);
    memory_release(spans);
    TRY(status);
    return rows->desc.streams->apart ? prepare(rows, batch->pictures) : MIMO_OK;
}

static mimo_status describe_deals(mimo_batch_desc **descs, mimo_batch_items **items,
                                  const picture_deal *deals, int64_t groups)
{
    TRY(memory_reserve(descs, groups, sizeof **descs));
    TRY(memory_reserve(items, groups, sizeof **items));
    for (int64_t g = 0; g < groups; g++)
        (*descs)[g] = picture_deal_batch(&(*items)[g], &deals[g]);
    return MIMO_OK;
}

static mimo_status prepare_groups(image_rows *rows, const picture_deal *deals, int64_t groups)
{
    for (int64_t g = 0; g < groups && rows->desc.streams->apart; g++) {
        TRY(mimo_bridge_select(rows->desc.topology->bridge, (int)g));
        TRY(prepare(rows, deals[g].count));
    }
    return MIMO_OK;
}

mimo_status image_rows_update(image_rows *rows, const picture_deal *deals, int64_t groups)
{
    mimo_bridge *bridge = rows->desc.topology->bridge;
    mimo_batch_desc *descs = NULL;
    mimo_batch_items *items = NULL;
    mimo_status status = describe_deals(&descs, &items, deals, groups);
    status = status == MIMO_OK ? mimo_bridge_update(bridge, descs, (int)groups)
                               : mimo_bridge_refuse_update(bridge, status);
    memory_release(items);
    memory_release(descs);
    return status == MIMO_OK ? prepare_groups(rows, deals, groups) : status;
}

/* -------------------------------------------- both ends --------------------------------------- */

/* Rows in both orders, and no text between them. */
typedef struct order_views {
    mimo_tensor by_position, by_sample, text;
} order_views;

static order_views view_orders(const image_rows *rows, nn_real *by_position, nn_real *by_sample,
                               int64_t samples, int64_t positions)
{
    int64_t hidden = rows->desc.hidden;
    order_views views;
    views.by_position = mimo_tensor_3d(by_position, NN_DTYPE, "sbh", positions, samples, hidden);
    views.by_sample = mimo_tensor_3d(by_sample, NN_DTYPE, "bsh", samples, positions, hidden);
    views.text = mimo_tensor_2d(NULL, NN_DTYPE, "th", 0, hidden);
    views.by_position.memory = views.by_sample.memory = views.text.memory =
        runtime_of(rows)->memory;
    return views;
}

static order_views encoder_orders(const image_rows *rows, const image_slot *slot)
{
    const micro_batch *batch = rows->desc.batch;
    return view_orders(rows, slot->encoded, slot->src_tile, slot->deal->count, batch->desc.tokens);
}

mimo_status image_rows_encode(image_rows *rows, int64_t slot, const picture_deal *deal,
                              int64_t group, encoder_piece at)
{
    image_slot *own = &rows->slots[slot];
    own->deal = deal;
    own->group = group;
    order_views order = encoder_orders(rows, own);
    TRY(encoder_forward_piece(rows->desc.encoder, slot, own->encoded, deal->patches, deal->count,
                              at));
    if (deal->count == 0 || at.piece < at.of)
        return MIMO_OK;
    TRY(mimo_alignment_merge(deal->order, &order.by_sample, &order.by_position, &order.text,
                             runtime_of(rows)->stream));
    return to_bridge(rows, own->src_half, own->src_tile, count_rows(rows, own));
}

/* The gradients that the bridge brought, in the encoder's order. */
static mimo_status take_gradients(image_rows *rows, image_slot *own)
{
    order_views order = encoder_orders(rows, own);
    int64_t count = count_rows(rows, own);
    TRY(from_bridge(rows, own->src_tile, own->src_half, count));
    TRY(nn_plain_zeros(runtime_of(rows), own->src_tile, count * rows->desc.hidden));
    return mimo_alignment_split(own->deal->order, &order.by_position, &order.text, &order.by_sample,
                                runtime_of(rows)->stream);
}

mimo_status image_rows_encode_backward(image_rows *rows, int64_t slot, encoder_piece at)
{
    image_slot *own = &rows->slots[slot];
    if (count_rows(rows, own) == 0)
        return MIMO_OK;
    if (at.piece == at.of)
        TRY(take_gradients(rows, own));
    return encoder_backward_piece(rows->desc.encoder, slot, own->encoded, at);
}

static order_views part_orders(const image_rows *rows, nn_real *tile, nn_real *part)
{
    return view_orders(rows, tile, part, rows->desc.batch->sentences, rows->desc.own);
}

mimo_status image_rows_take(const image_rows *rows, int64_t slot, int64_t i, nn_real *tile)
{
    const image_slot *own = &rows->slots[slot];
    int64_t count = part_rows(rows), first = i * count * rows->desc.hidden;
    order_views order = part_orders(rows, tile, own->dst_tile + first);
    TRY(from_bridge(rows, own->dst_tile + first, own->dst_half + first, count));
    return mimo_alignment_merge(rows->parts, &order.by_position, &order.by_sample, &order.text,
                                runtime_of(rows)->stream);
}

mimo_status image_rows_give(const image_rows *rows, int64_t slot, int64_t i, nn_real *tile)
{
    const image_slot *own = &rows->slots[slot];
    int64_t count = part_rows(rows), first = i * count * rows->desc.hidden;
    order_views order = part_orders(rows, tile, own->dst_tile + first);
    TRY(mimo_alignment_split(rows->parts, &order.by_sample, &order.text, &order.by_position,
                             runtime_of(rows)->stream));
    return to_bridge(rows, own->dst_half + first, own->dst_tile + first, count);
}

mimo_status image_rows_give_none(const image_rows *rows, int64_t slot, int64_t i)
{
    const image_slot *own = &rows->slots[slot];
    int64_t each = part_rows(rows) * rows->desc.hidden;
    int64_t first = i * each, count = (rows->desc.batch->desc.group - i) * each;
    if (count <= 0)
        return MIMO_OK;
    TRY(nn_runtime_zero(runtime_of(rows), own->dst_tile + first,
                        count * (int64_t)sizeof *own->dst_tile));
    return to_bridge(rows, own->dst_half + first, own->dst_tile + first, count / rows->desc.hidden);
}
