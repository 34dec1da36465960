/*
 * The collective executor: gather, narrow and sum whole batches, as docs/concepts.md, "The
 * gather-narrow-sum method", says step by step. The routed executor is measured against it.
 *
 *   forward   all-gather along the batch (fan-in), narrow (fan-out) or copy; then, where a
 *             partition is attached, keep this rank's shard of the full sequences (narrowing and
 *             cutting are one pass)
 *   backward  where a partition is attached, its adjoint: join sp shards, put rows back into zeros;
 *             all_reduce SUM over dst cp, on a copy; then narrow, all-gather or copy
 *
 * The sum comes before the narrowing, as a cp group can hold different slots.
 */
#include <inttypes.h>

#include "bridge/bridge_op_types.h"
#include "bridge/collective/collective_types.h"
#include "core/checked.h"
#include "core/dtype_kind.h"
#include "core/hash.h"
#include "core/mutation.h"
#include "partition/shard/partition_rows.h"

static const mimo_device *device_of(const mimo_op *op)
{
    return op->mover->comm->device;
}

static const mimo_collective *own_of(const mimo_op *op)
{
    return mimo_collective_of(mimo_bridge_of(op));
}

/* The loop order that gives the longest runs at the receiving end. */
static bool along_samples(const mimo_tile *to)
{
    return to->row_b == 1;
}

/* Backward: the dst tile before the partition cut it, to be summed in place. It lies in staging;
 * where there is no partition and no sum it is the tile itself. */
static mimo_status full_tile(mimo_tile *out, mimo_op *op, const mimo_tile_pair *tiles)
{
    const mimo_tile *dst = &tiles->dst;
    void *area;
    *out = *dst;
    if (!own_of(op)->partition && !own_of(op)->cp_sum)
        return MIMO_OK;
    *out = mimo_tile_like(dst, NULL, tiles->seq);
    MIMO_TRY(mimo_op_get_staging(&area, op, MIMO_STAGING_FULL, mimo_tile_bytes(out)));
    out->view.data = area;
    return MIMO_OK;
}

/* All-gather along the batch: every member's whole tile into its slot of `to`. */
static mimo_status gather(mimo_op *op, const mimo_tile *to, const mimo_tile *from)
{
    bool inner = along_samples(to);
    mimo_comm *comm = own_of(op)->gather;
    const mimo_gather slots = {.to = mimo_tile_rows(to, 0, from->batch, inner),
                               .from = mimo_tile_rows(from, 0, from->batch, inner),
                               .step = from->batch * to->row_b,
                               .guarded = op->call.guarded};
    return comm->backend->allgather_start(&op->progress.request, comm, &slots, op->call.stream);
}

/* Keep this rank's slot of a larger batch, or all of an equal one. */
static mimo_status narrow(mimo_op *op, const mimo_tile *to, const mimo_tile *from)
{
    bool inner = along_samples(to);
    int64_t first = from->batch == to->batch ? 0 : mimo_bridge_of(op)->slot * to->batch;
    mimo_rows all = mimo_tile_rows(to, 0, to->batch, inner);
    mimo_rows slice = mimo_tile_rows(from, first, to->batch, inner);
    return device_of(op)->copy_rows(&all, &slice, op->call.stream);
}

/* Forward with a partition: staging for the members' tiles, one after the other. */
static mimo_status gathered_tiles(char **out, mimo_op *op, const mimo_tile_pair *tiles)
{
    void *area;
    int64_t members = own_of(op)->gather->size;
    MIMO_TRY(
        mimo_op_get_staging(&area, op, MIMO_STAGING_FULL, members * mimo_tile_bytes(&tiles->src)));
    *out = area;
    return MIMO_OK;
}

static mimo_status gather_tiles(mimo_op *op, const mimo_tile_pair *tiles)
{
    char *area;
    mimo_comm *comm = own_of(op)->gather;
    int64_t bytes = mimo_tile_bytes(&tiles->src);
    MIMO_TRY(gathered_tiles(&area, op, tiles));
    if (bytes == 0)
        return MIMO_OK;
    const mimo_gather slots = {.to = mimo_one_row(area, bytes),
                               .from = mimo_one_row(tiles->src.view.data, bytes),
                               .step = 1,
                               .guarded = op->call.guarded};
    return comm->backend->allgather_start(&op->progress.request, comm, &slots, op->call.stream);
}

/* With a partition, tiles are gathered into staging as they lie. Then the cut alone puts rows into
 * order, and moves only those that stay. */
static mimo_status bring_samples(mimo_op *op, const mimo_tile_pair *tiles)
{
    bool fan_in = mimo_bridge_of(op)->pairing.fan == MIMO_FAN_IN;
    if (own_of(op)->partition)
        return fan_in ? gather_tiles(op, tiles) : MIMO_OK;
    return fan_in ? gather(op, &tiles->dst, &tiles->src) : narrow(op, &tiles->dst, &tiles->src);
}

/* An sbh tile in which `samples` neighbours count as one sample with longer rows. */
static mimo_tile fold(const mimo_tile *tile, int64_t samples)
{
    mimo_tile folded = *tile;
    folded.batch /= samples;
    folded.row_s = folded.batch;
    folded.row_bytes *= samples;
    return folded;
}

/* dst's shard of samples [to, to + count) from samples [from, from + count) of the tile `src`. */
static mimo_status keep(mimo_op *op, const mimo_tile_pair *tiles, int64_t to, int64_t from,
                        int64_t count)
{
    const mimo_rows shard = mimo_tile_rows(&tiles->dst, to, count, false);
    const mimo_rows full = mimo_tile_rows(&tiles->src, from, count, false);
    return mimo_partition_keep_rows(own_of(op)->partition, &shard, &full, device_of(op),
                                    op->call.stream);
}

/* From the gathered tiles. If the positions of a sample are neighbours in memory ("bsh"), tiles one
 * after the other are one larger tile. Otherwise each tile is cut by itself. */
static mimo_status keep_gathered(mimo_op *op, mimo_tile_pair *tiles)
{
    char *area;
    int64_t samples = tiles->src.batch, bytes = mimo_tile_bytes(&tiles->src);
    MIMO_TRY(gathered_tiles(&area, op, tiles));
    tiles->src.view.data = area;
    if (tiles->src.row_s == 1) {
        tiles->src.row_b = tiles->src.seq;
        return keep(op, tiles, 0, 0, tiles->dst.batch);
    }
    for (int64_t first = 0; first < tiles->dst.batch; first += samples) {
        MIMO_TRY(keep(op, tiles, first, 0, samples));
        tiles->src.view.data = (char *)tiles->src.view.data + bytes;
    }
    return MIMO_OK;
}

static mimo_status keep_shard(mimo_op *op, const mimo_tile_pair *tiles)
{
    mimo_tile_pair pair = *tiles;
    const mimo_tile *src = &tiles->src, *dst = &tiles->dst;
    int64_t samples = src->batch < dst->batch ? src->batch : dst->batch;
    if (!own_of(op)->partition || samples == 0)
        return MIMO_OK;
    if (along_samples(src) && along_samples(dst)) {
        pair.src = fold(src, samples);
        pair.dst = fold(dst, samples);
        samples = 1;
    }
    if (mimo_bridge_of(op)->pairing.fan == MIMO_FAN_IN)
        return keep_gathered(op, &pair);
    int64_t first =
        pair.src.batch == pair.dst.batch ? 0 : mimo_bridge_of(op)->slot * pair.dst.batch;
    return keep(op, &pair, 0, first, pair.dst.batch);
}

/* The sequence as cp left it: this rank's rows, or under sp those of all tp ranks, in tp order. */
static mimo_status joined_tile(mimo_tile *out, mimo_op *op, const mimo_tile_pair *tiles)
{
    void *area;
    *out = tiles->dst;
    if (!own_of(op)->sp_join)
        return MIMO_OK;
    *out = mimo_tile_like(out, NULL, out->seq * own_of(op)->sp_join->size);
    MIMO_TRY(mimo_op_get_staging(&area, op, MIMO_STAGING_JOINED, mimo_tile_bytes(out)));
    out->view.data = area;
    return MIMO_OK;
}

static mimo_status join_sp(mimo_op *op, const mimo_tile_pair *tiles)
{
    mimo_tile joined;
    mimo_comm *comm = own_of(op)->sp_join;
    const mimo_tile *dst = &tiles->dst;
    if (!comm)
        return MIMO_OK;
    MIMO_TRY(joined_tile(&joined, op, tiles));
    bool inner = along_samples(dst);
    mimo_tile part = joined; /* rank 0's rows: the first of every sample */
    part.seq = dst->seq;
    const mimo_gather parts = {.to = mimo_tile_rows(&part, 0, dst->batch, inner),
                               .from = mimo_tile_rows(dst, 0, dst->batch, inner),
                               .step = dst->seq * joined.row_s,
                               .guarded = op->call.guarded};
    return comm->backend->allgather_start(&op->progress.request, comm, &parts, op->call.stream);
}

/* The full-sequence gradient of this rank. A copy, as it is summed in place. */
static mimo_status spread(mimo_op *op, const mimo_tile_pair *tiles)
{
    mimo_tile full, joined;
    MIMO_TRY(full_tile(&full, op, tiles));
    MIMO_TRY(joined_tile(&joined, op, tiles));
    if (own_of(op)->partition) /* sp is undone already, so what is left is the cp map alone */
        return mimo_partition_adjoint(own_of(op)->partition, MIMO_LABELS, &full.view, &joined.view,
                                      NULL, op->call.stream);
    if (full.view.data == joined.view.data)
        return MIMO_OK;
    return device_of(op)->copy(full.view.data, joined.view.data, mimo_tile_bytes(&full),
                               op->call.stream);
}

/* In staging, which is no tensor of the caller's: so it needs no guard. Of a partition's gradients,
 * which are zero-padded (docs/concepts.md), each element has one term. */
static mimo_status sum_over_cp(mimo_op *op, const mimo_tile_pair *tiles)
{
    mimo_tile full;
    int64_t elements;
    mimo_comm *comm = own_of(op)->cp_sum;
    if (!comm)
        return MIMO_OK;
    MIMO_TRY(full_tile(&full, op, tiles));
    MIMO_TRY(mimo_tensor_extent(&elements, NULL, &full.view));
    const mimo_reduction sum = {.data = full.view.data,
                                .count = elements,
                                .dtype = full.view.dtype,
                                .op = MIMO_SUM,
                                .single_term = own_of(op)->partition != NULL};
    if (MIMO_MUTATED("cp-mean"))
        MIMO_TRY(
            device_of(op)->scale(sum.data, elements, sum.dtype, 1.0 / comm->size, op->call.stream));
    return comm->backend->allreduce_start(&op->progress.request, comm, &sum, op->call.stream);
}

static mimo_status return_samples(mimo_op *op, const mimo_tile_pair *tiles)
{
    mimo_tile full;
    MIMO_TRY(full_tile(&full, op, tiles));
    if (mimo_bridge_of(op)->pairing.fan == MIMO_FAN_OUT)
        return gather(op, &tiles->src, &full);
    return narrow(op, &tiles->src, &full);
}

static mimo_status read(mimo_tile_pair *out, const mimo_op *op, const mimo_tensor *src,
                        const mimo_tensor *dst)
{
    char text[MIMO_VIEW_TEXT], call[MIMO_CALL_TEXT];
    MIMO_TRY(mimo_tile_pair_of(out, &own_of(op)->rules, src, dst));
    int64_t batch = mimo_bridge_of(op)->batch,
            dp = mimo_grid_dim_size(mimo_bridge_of(op)->src, "dp");
    bool rows = mimo_tile_is_flat(src) && mimo_tile_is_flat(dst); /* then no batch describes them */
    MIMO_CHECK(batch < 0 || rows || out->src.batch == batch / dp, MIMO_ERR_SHAPE,
               "src tile is %s, and of a batch of %" PRId64 " this rank holds %" PRId64 " samples",
               mimo_tensor_text(text, sizeof text, src), batch, batch / dp);
    MIMO_CHECK(!op->call.backward || own_of(op)->cp == 1 || mimo_dtype_can_add(src->dtype),
               MIMO_ERR_UNSUPPORTED, "%s: %s can be moved, not summed over cp = %" PRId64,
               mimo_op_text(call, op), mimo_dtype_name(src->dtype), own_of(op)->cp);
    return op->call.backward && own_of(op)->cp > 1 ? mimo_tile_check_addresses(src, dst) : MIMO_OK;
}

static uint64_t hash_view(uint64_t hash, const mimo_tensor *view)
{
    int ndim = mimo_tensor_ndim(view); /* what lies behind the letters is ignored */
    hash = mimo_hash_int(mimo_hash_bytes(hash, view->letters, (size_t)ndim), view->dtype);
    return mimo_hash_bytes(hash, view->shape, (size_t)ndim * sizeof view->shape[0]);
}

/* In this geometry local shapes are the same everywhere. */
static uint64_t sign(uint64_t hash, const mimo_tile_pair *tiles)
{
    return hash_view(hash_view(hash, &tiles->src.view), &tiles->dst.view);
}

/* Memory for a guarded step in which each rank of `comm` holds a tile like this. NULL: no step. */
static mimo_status guard(const mimo_op *op, mimo_comm *comm, const mimo_tile *tile)
{
    return comm ? mimo_guard_prepare(comm, op->call.guarded, comm->size, mimo_tile_bytes(tile))
                : MIMO_OK;
}

static mimo_status prepare_forward(mimo_op *op, const mimo_tile_pair *tiles)
{
    char *gathered;
    if (mimo_bridge_of(op)->pairing.fan != MIMO_FAN_IN)
        return MIMO_OK;
    if (own_of(op)->partition)
        MIMO_TRY(gathered_tiles(&gathered, op, tiles));
    return guard(op, own_of(op)->gather, &tiles->src);
}

static mimo_status prepare_backward(mimo_op *op, const mimo_tile_pair *tiles)
{
    mimo_tile full, joined;
    MIMO_TRY(full_tile(&full, op, tiles));
    MIMO_TRY(joined_tile(&joined, op, tiles));
    MIMO_TRY(guard(op, own_of(op)->sp_join, &tiles->dst));
    return mimo_bridge_of(op)->pairing.fan == MIMO_FAN_OUT ? guard(op, own_of(op)->gather, &full)
                                                           : MIMO_OK;
}

/* Get all the staging that the steps will ask for. */
static mimo_status prepare(mimo_op *op)
{
    for (int i = 0; i < op->tensors.count; i++)
        MIMO_TRY(
            (op->call.backward ? prepare_backward : prepare_forward)(op, &op->tensors.pairs[i]));
    return MIMO_OK;
}

static mimo_status samples(const mimo_bridge *bridge, mimo_side side, int64_t batch, int64_t *first,
                           int64_t *count)
{
    return mimo_pairing_samples(first, count, side == MIMO_SRC ? bridge->src : bridge->dst,
                                bridge->rank, batch);
}

static mimo_status op_layout(mimo_layout_desc *out, const mimo_op *op, mimo_side side)
{
    *out = mimo_collective_side_layout(mimo_bridge_of(op), side);
    return mimo_mul(&out->batch, op->tensors.pairs[0].src.batch,
                    mimo_grid_dim_size(mimo_bridge_of(op)->src, "dp"));
}

static const mimo_mover_step forward_steps[] = {bring_samples, keep_shard, NULL};
static const mimo_mover_step backward_steps[] = {join_sp, spread, sum_over_cp, return_samples,
                                                 NULL};

const mimo_executor_table mimo_collective_executor = {
    .name = "collective",
    .whole_sequences = true,
    .create = mimo_collective_create,
    .connect = mimo_collective_connect,
    .disconnect = mimo_collective_disconnect,
    .destroy = mimo_collective_destroy,
    .side_layout = mimo_collective_side_layout,
    .op_layout = op_layout,
    .read = read,
    .sign = sign,
    .prepare = prepare,
    .samples = samples,
    .staging = mimo_collective_staging,
    .forward = forward_steps,
    .backward = backward_steps,
};
