/* The tensors of a call as tiles of the routed executor. The full sequence length S belongs to the
 * call, and both tiles of a pair have rows of the same sequences. The number of samples is checked
 * later, against the batch split. */
#include <inttypes.h>

#include "bridge/routed/routed_types.h"
#include "core/checked.h"
#include "core/hash.h"

mimo_layout_desc mimo_routed_side_layout(const mimo_bridge *bridge, mimo_side side)
{
    return mimo_bridge_batch_now(bridge)->layouts[side];
}

/* T where a side is packed (thd); -1 where neither is. */
static int64_t packed_rows(const mimo_bridge_sides *own)
{
    for (int side = 0; side < 2; side++) {
        const mimo_partition_rule *rule = own->layouts[side].partition;
        if (mimo_rule_is_packed(rule))
            return mimo_rule_positions(rule);
    }
    return -1;
}

/* The first tile that has a sequence dimension; src comes before dst. */
static const mimo_tensor *find_shaped(mimo_side *side, const mimo_tensor *const tiles[2], int n)
{
    for (int i = 0; i < n; i++)
        for (int at = MIMO_SRC; at <= MIMO_DST; at++)
            if (!mimo_tile_is_flat(&tiles[at][i])) {
                *side = (mimo_side)at;
                return &tiles[at][i];
            }
    return NULL;
}

/* The full sequence length of a call: from the packing, or from the first view with a sequence
 * dimension. */
static mimo_status full_sequence(int64_t *out, const mimo_bridge_sides *own,
                                 const mimo_tensor *const tiles[2], int n)
{
    char from[MIMO_VIEW_TEXT], to[MIMO_VIEW_TEXT];
    mimo_side side = MIMO_SRC;
    *out = packed_rows(own);
    if (*out >= 0)
        return MIMO_OK;
    const mimo_tensor *shaped = find_shaped(&side, tiles, n);
    if (shaped)
        return mimo_mul(out, mimo_tensor_size(shaped, 's'), own->sequence_ranks[side]);
    MIMO_CHECK(own->sequence_ranks[MIMO_SRC] == 1 && own->sequence_ranks[MIMO_DST] == 1,
               MIMO_ERR_SHAPE,
               "src tile is %s and dst tile is %s: with a partition a tile of the call must be sbh "
               "or bsh, as flat tiles do not say where sequences end",
               mimo_tensor_text(from, sizeof from, &tiles[MIMO_SRC][0]),
               mimo_tensor_text(to, sizeof to, &tiles[MIMO_DST][0]));
    *out = 1;
    return MIMO_OK;
}

/* Checks the views first, as S is read from them. */
mimo_status mimo_routed_read_sequence(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from,
                                      int n)
{
    const mimo_tensor *const tiles[2] = {op->call.backward ? to : from,
                                         op->call.backward ? from : to};
    for (int i = 0; i < n; i++) {
        MIMO_TRY(mimo_tile_check_view(&tiles[MIMO_SRC][i], mimo_bridge_of(op)->memory, "src"));
        MIMO_TRY(mimo_tile_check_view(&tiles[MIMO_DST][i], mimo_bridge_of(op)->memory, "dst"));
    }
    if (mimo_bridge_batch_of(op)->ragged) /* there each dst tile has it, or none needs it */
        return MIMO_OK;
    return full_sequence(&mimo_routed_op_of(op)->seq, mimo_bridge_of(op)->sides, tiles, n);
}

/* A tile of another length than a rank's share: what is wrong may be that nothing has shares of
 * such a sequence. */
static mimo_status refuse_length(const mimo_bridge_sides *own, mimo_side side,
                                 const mimo_tensor *view, int64_t seq)
{
    char text[MIMO_VIEW_TEXT];
    mimo_layout_desc desc = own->layouts[side];
    mimo_layout *layout;
    desc.batch = 0;
    desc.seq = seq;
    if (mimo_layout_create(&layout, &desc) != MIMO_OK)
        return mimo_fail_prefix(MIMO_ERR_SHAPE, "%s tile is %s: ", mimo_side_names[side],
                                mimo_tensor_text(text, sizeof text, view));
    mimo_layout_destroy(layout);
    return mimo_fail(MIMO_ERR_SHAPE,
                     "%s tile is %s; sequences of %" PRId64 " positions need s = %" PRId64,
                     mimo_side_names[side], mimo_tensor_text(text, sizeof text, view), seq,
                     seq / own->sequence_ranks[side]);
}

static mimo_status read_side(mimo_tile *out, const mimo_bridge_sides *own, mimo_side side,
                             const mimo_tensor *view, int64_t seq)
{
    char text[MIMO_VIEW_TEXT];
    int64_t local = seq / own->sequence_ranks[side];
    MIMO_CHECK(seq % own->sequence_ranks[side] == 0, MIMO_ERR_SHAPE,
               "%s tile %s: %" PRId64 " ranks can't share a sequence of %" PRId64 " positions",
               mimo_side_names[side], mimo_tensor_text(text, sizeof text, view),
               own->sequence_ranks[side], seq);
    if (mimo_tile_is_flat(view))
        MIMO_CHECK((local > 0 ? view->shape[0] % local : view->shape[0]) == 0, MIMO_ERR_SHAPE,
                   "%s tile %s is not a whole number of samples of %" PRId64 " positions",
                   mimo_side_names[side], mimo_tensor_text(text, sizeof text, view), local);
    else if (mimo_tensor_size(view, 's') != local)
        return refuse_length(own, side, view, seq);
    return mimo_tile_read(out, view, local);
}

/* A tile with the rows of a modality, one after the other. */
static mimo_status read_packed(mimo_tile *out, const mimo_bridge_batch *batch, mimo_side side,
                               const mimo_tensor *view)
{
    char text[MIMO_VIEW_TEXT];
    bool items = batch->layouts[side].ragged == MIMO_RAGGED_ITEMS;
    MIMO_CHECK(view->shape[0] == batch->tile_rows[side], MIMO_ERR_SHAPE,
               "%s tile is %s; the %s of this rank's %s have %" PRId64 " rows",
               mimo_side_names[side], mimo_tensor_text(text, sizeof text, view),
               items ? "items" : "spans", items ? "lane" : "samples", batch->tile_rows[side]);
    return mimo_tile_read(out, view, 1);
}

/* The src tile has the rows of a modality, one after the other. The dst tile has S, or rows of the
 * modality as well. */
static mimo_status read_ragged(mimo_tile_pair *out, const mimo_op *op, const mimo_tensor *src,
                               const mimo_tensor *dst)
{
    char from[MIMO_VIEW_TEXT], to[MIMO_VIEW_TEXT];
    const mimo_bridge_sides *own = mimo_bridge_of(op)->sides;
    const mimo_bridge_batch *batch = mimo_bridge_batch_of(op);
    bool packs = mimo_bridge_batch_packs(batch, MIMO_DST);
    MIMO_CHECK(mimo_tile_is_flat(src) && mimo_tile_is_flat(dst) == packs, MIMO_ERR_SHAPE,
               "src tile is %s and dst tile is %s: of %s batch they are th or bh%s",
               mimo_tensor_text(from, sizeof from, src), mimo_tensor_text(to, sizeof to, dst),
               packs ? "this ragged" : "a ragged", packs ? "" : ", and sbh or bsh");
    MIMO_TRY(read_packed(&out->src, batch, MIMO_SRC, src));
    out->seq = batch->flat_seq;
    if (packs)
        return read_packed(&out->dst, batch, MIMO_DST, dst);
    MIMO_TRY(mimo_mul(&out->seq, mimo_tensor_size(dst, 's'), own->sequence_ranks[MIMO_DST]));
    return read_side(&out->dst, own, MIMO_DST, dst, out->seq);
}

static mimo_status read_even(mimo_tile_pair *out, const mimo_op *op, const mimo_tensor *src,
                             const mimo_tensor *dst)
{
    const mimo_bridge_sides *own = mimo_bridge_of(op)->sides;
    out->seq = mimo_routed_op_of(op)->seq;
    MIMO_TRY(read_side(&out->src, own, MIMO_SRC, src, out->seq));
    return read_side(&out->dst, own, MIMO_DST, dst, out->seq);
}

mimo_status mimo_routed_read(mimo_tile_pair *out, const mimo_op *op, const mimo_tensor *src,
                             const mimo_tensor *dst)
{
    char from[MIMO_VIEW_TEXT], to[MIMO_VIEW_TEXT];
    mimo_tile_pair pair;
    MIMO_CHECK(src->dtype == dst->dtype && mimo_tensor_size(src, 'h') == mimo_tensor_size(dst, 'h'),
               MIMO_ERR_SHAPE, "src tile is %s and dst tile is %s: dtype and h must agree",
               mimo_tensor_text(from, sizeof from, src), mimo_tensor_text(to, sizeof to, dst));
    if (mimo_bridge_batch_of(op)->ragged)
        MIMO_TRY(read_ragged(&pair, op, src, dst));
    else
        MIMO_TRY(read_even(&pair, op, src, dst));
    *out = pair;
    return MIMO_OK;
}

/* Letters, dtype and row size are the same everywhere; samples need not be. */
uint64_t mimo_routed_sign(uint64_t hash, const mimo_tile_pair *tiles)
{
    const mimo_tensor *src = &tiles->src.view, *dst = &tiles->dst.view;
    hash = mimo_hash_bytes(hash, src->letters, (size_t)mimo_tensor_ndim(src));
    hash = mimo_hash_bytes(hash, dst->letters, (size_t)mimo_tensor_ndim(dst));
    hash = mimo_hash_int(mimo_hash_int(hash, src->dtype), tiles->src.row_bytes);
    return mimo_hash_int(hash, tiles->seq);
}
