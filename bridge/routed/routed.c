/*
 * The routed executor. Only rows that somebody consumes move: each goes once, from one owner to
 * each consumer, straight from tensor to tensor. Forward is plan(src -> dst), backward is plan(dst
 * -> src). Without a partition the dst cp ranks hold contributions. Then class 0 arrives in the
 * destination and the other classes in staging; they are added in class order, which is the order
 * of ascending ranks.
 *
 *   routed_prepare      before the agreement: plans, messages and staging, for all tensors together
 *   move_rows           one exchange; rows that stay here are copied while it is in flight
 *   add_contributions   the classes, where there are several
 *   move_sums           the second exchange of a call in two phases
 *
 * An operation in chunks goes through the steps once for each chunk.
 */
#include <inttypes.h>

#include "bridge/routed/call_transport.h"
#include "bridge/routed/routed_call.h"
#include "core/checked.h"
#include "core/hash.h"
#include "core/memory.h"

/* ----------------------------------------- prepare ------------------------------------------ */

/* A rank without a role on a side has an empty tile there. */
static mimo_status check_role(const mimo_op *op, mimo_side side)
{
    char text[MIMO_VIEW_TEXT];
    mimo_cell cell;
    const mimo_bridge *bridge = mimo_bridge_of(op);
    const mimo_tile *tile = mimo_tile_of(&op->tensors.pairs[0], side);
    bool holds = mimo_layout_cell(&cell, bridge->sides->roles[side], bridge->rank);
    MIMO_CHECK(holds || tile->batch == 0, MIMO_ERR_SHAPE,
               "%s tile is %s, and this rank has no %s rows: it must have no samples",
               mimo_side_names[side], mimo_tensor_text(text, sizeof text, &tile->view),
               mimo_side_names[side]);
    return MIMO_OK;
}

static mimo_status prepare_split(mimo_op *op, const mimo_batch_split *split)
{
    op->claim.guess = split->hash;
    return mimo_routed_call_get(op, split);
}

/* Where all tiles are flat and no packing gives S, rows are split over the ranks, not samples. */
static bool counts_rows(const mimo_op *op)
{
    const mimo_layout_desc *layouts = mimo_bridge_of(op)->sides->layouts;
    bool flat = !mimo_rule_is_packed(layouts[MIMO_SRC].partition) &&
                !mimo_rule_is_packed(layouts[MIMO_DST].partition);
    flat = flat && !mimo_bridge_batch_of(op)->ragged; /* there the rows of each sample are known */
    for (int i = 0; flat && i < op->tensors.count; i++)
        flat = mimo_tile_is_flat(&op->tensors.pairs[i].src.view) &&
               mimo_tile_is_flat(&op->tensors.pairs[i].dst.view);
    return flat;
}

/* The caller gave the batch: the split is known, and all ranks know the same one. */
static mimo_status prepare_given(mimo_op *op)
{
    char text[MIMO_VIEW_TEXT];
    mimo_bridge_batch *own = mimo_bridge_batch_of(op);
    const mimo_batch_split *split;
    int64_t batch = mimo_bridge_of(op)->batch;
    MIMO_TRY(mimo_batch_splits_even(&split, &own->splits, batch));
    for (mimo_side side = MIMO_SRC; side <= MIMO_DST; side++) {
        if (mimo_bridge_batch_packs(own, side))
            continue; /* its rows were compared when it was read */
        const mimo_tile *tile = mimo_tile_of(&op->tensors.pairs[0], side);
        int64_t samples = mimo_batch_splits_samples(&own->splits, split, side);
        MIMO_CHECK(tile->batch == samples, MIMO_ERR_SHAPE,
                   "%s tile is %s, and of a batch of %" PRId64 " this rank holds %" PRId64
                   " samples",
                   mimo_side_names[side], mimo_tensor_text(text, sizeof text, &tile->view), batch,
                   samples);
    }
    return prepare_split(op, split);
}

/* Each rank gave the rows that it holds, and the update gathered them. */
static mimo_status prepare_given_rows(mimo_op *op)
{
    char text[MIMO_VIEW_TEXT];
    const mimo_bridge_batch *own = mimo_bridge_batch_of(op);
    for (mimo_side side = MIMO_SRC; side <= MIMO_DST; side++) {
        const mimo_tile *tile = mimo_tile_of(&op->tensors.pairs[0], side);
        int64_t rows = mimo_batch_splits_samples(&own->splits, own->rows, side);
        MIMO_CHECK(tile->batch == rows, MIMO_ERR_SHAPE,
                   "%s tile is %s, and this rank gave the update %" PRId64 " %s rows",
                   mimo_side_names[side], mimo_tensor_text(text, sizeof text, &tile->view), rows,
                   mimo_side_names[side]);
    }
    return prepare_split(op, own->rows);
}

/* On a measured bridge, by the rules of collective: dp divides the batch on both sides. Rows stay
 * inside a gather group, and where they go there does not depend on the batch. So a rank whose
 * tiles are such an even split can move without an agreement. */
static mimo_status prepare_measured(mimo_op *op)
{
    char from[MIMO_VIEW_TEXT], to[MIMO_VIEW_TEXT];
    const mimo_tile *src = &op->tensors.pairs[0].src, *dst = &op->tensors.pairs[0].dst;
    const mimo_bridge *bridge = mimo_bridge_of(op);
    int64_t src_dp = mimo_grid_dim_size(bridge->src, "dp"), batch, dst_batch;
    int64_t dst_dp = mimo_grid_dim_size(bridge->dst, "dp");
    const mimo_batch_split *split;
    MIMO_TRY(mimo_mul(&batch, src->batch, src_dp));
    MIMO_TRY(mimo_mul(&dst_batch, dst->batch, dst_dp));
    MIMO_CHECK(batch == dst_batch, MIMO_ERR_SHAPE,
               "src tile %s on dp=%" PRId64 " and dst tile %s on dp=%" PRId64
               " are no even cuts of one batch: a bridge whose executors were measured takes "
               "others only where its sizes say any_batch",
               mimo_tensor_text(from, sizeof from, &src->view), src_dp,
               mimo_tensor_text(to, sizeof to, &dst->view), dst_dp);
    MIMO_TRY(mimo_batch_splits_even(&split, &mimo_bridge_batch_of(op)->splits, batch));
    return prepare_split(op, split);
}

/* No rank sees from its own tiles how the batch is split. Counterexample: of 7 and 3 samples over
 * dp = 2, each rank sees what could be an even split. So the ranks compare their guesses first.
 * Where ranks may not agree, this rank alone fails: only an agreement would reach the others. */
static mimo_status require_agreement(mimo_op *op)
{
    bool removed;
    char call[MIMO_CALL_TEXT];
    const mimo_comm *comm = op->mover->comm;
    const mimo_device *device = comm->device;
    const char *remedy = counts_rows(op) ? "give the rows of every rank by mimo_bridge_update"
                                         : "give the batch by mimo_bridge_update or the descriptor";
    if (comm->size == 1)
        return MIMO_OK;
    MIMO_CHECK(!device->records || !device->records(op->call.stream), MIMO_ERR_STATE,
               "%s: ranks have to agree on how the batch is cut, and can't while a graph is "
               "captured: %s",
               mimo_op_text(call, op), remedy);
    /* MIMO_CHECK=calls would agree nevertheless, and hide what fails without it. */
    MIMO_TRY(mimo_agreement_removed(&removed, comm));
    MIMO_CHECK(!removed, MIMO_ERR_STATE,
               "%s: ranks have to agree on how the batch is cut, and MIMO_AGREE=0 forbids it: %s",
               mimo_op_text(call, op), remedy);
    op->claim.unsure = true;
    return MIMO_OK;
}

static mimo_status prepare_guess(mimo_op *op)
{
    const mimo_batch_split *split;
    const mimo_bridge *bridge = mimo_bridge_of(op);
    mimo_routed_op *own = mimo_routed_op_of(op);
    MIMO_TRY(require_agreement(op));
    if (!own->samples)
        MIMO_TRY(mimo_reserve(&own->samples, 2 * (1 + bridge->size), sizeof *own->samples));
    own->samples[MIMO_SRC] = op->tensors.pairs[0].src.batch;
    own->samples[MIMO_DST] = op->tensors.pairs[0].dst.batch;
    MIMO_TRY(mimo_batch_splits_guess(&split, &mimo_bridge_batch_of(op)->splits, own->samples));
    if (split)
        return prepare_split(op, split);
    mimo_bridge_op_of(op)->lacks_guess = true;
    op->claim.guess =
        mimo_hash_int(~MIMO_HASH_START, bridge->rank); /* unlike that of any other rank */
    return MIMO_OK;
}

static const mimo_buffer *routed_target(int64_t *offset, const mimo_op *op, int i)
{
    const mimo_tile *tile = mimo_tile_of(&op->tensors.pairs[i], mimo_op_to(op));
    const mimo_buffer *buffer = mimo_call_target(op, i);
    *offset = buffer ? (char *)tile->view.data - (char *)mimo_buffer_data(buffer) : -1;
    return buffer;
}

/* A rank finds the destinations of its peers by the offsets of its own. So the buffers and offsets
 * must be the same on all ranks. */
static mimo_status sign_targets(mimo_op *op)
{
    char text[MIMO_VIEW_TEXT];
    mimo_transport transport = mimo_bridge_of(op)->executor[op->call.backward].transport;
    for (int i = 0; i < op->call.n; i++) {
        int64_t offset;
        const mimo_tile *tile = mimo_tile_of(&op->tensors.pairs[i], mimo_op_to(op));
        const mimo_buffer *buffer = routed_target(&offset, op, i);
        MIMO_CHECK(buffer || transport != MIMO_TRANSPORT_ZERO_COPY, MIMO_ERR_ARGUMENT,
                   "zero-copy: tensor %d, %s, is to be written at %p, and that is in no buffer of "
                   "the communicator that the bridge was made from",
                   i, mimo_tensor_text(text, sizeof text, &tile->view), tile->view.data);
        if (transport == MIMO_TRANSPORT_ZERO_COPY)
            mimo_mover_look_at_reach(op->mover, buffer);
        op->claim.signature = mimo_target_sign(op->claim.signature, buffer, offset);
    }
    return MIMO_OK;
}

static mimo_status routed_prepare(mimo_op *op)
{
    const mimo_bridge *bridge = mimo_bridge_of(op);
    MIMO_TRY(sign_targets(op));
    MIMO_TRY(check_role(op, MIMO_SRC));
    MIMO_TRY(check_role(op, MIMO_DST));
    bool rows = counts_rows(op);
    if (rows && mimo_bridge_batch_of(op)->rows)
        return prepare_given_rows(op);
    if (!rows && bridge->batch >= 0)
        return prepare_given(op);
    return bridge->measured[op->call.backward] ? prepare_measured(op) : prepare_guess(op);
}

/* The samples of all ranks. */
static mimo_status routed_resolve_start(mimo_op *op)
{
    mimo_comm *comm = op->mover->comm;
    int64_t *samples = mimo_routed_op_of(op)->samples;
    return comm->backend->host_allgather_start(&op->progress.request, comm, samples + 2, samples,
                                               2 * (int)sizeof *samples);
}

static mimo_status routed_resolve_finish(mimo_op *op)
{
    const mimo_batch_split *split;
    mimo_routed_call_put_back(op);
    MIMO_TRY(mimo_batch_splits_resolve(&split, &mimo_bridge_batch_of(op)->splits,
                                       mimo_routed_op_of(op)->samples + 2, mimo_bridge_of(op)->size,
                                       counts_rows(op) ? "rows" : "samples"));
    return prepare_split(op, split);
}

static mimo_status routed_samples(const mimo_bridge *bridge, mimo_side side, int64_t batch,
                                  int64_t *first, int64_t *count)
{
    mimo_cell cell;
    mimo_layout layout = *bridge->sides->roles[side];
    mimo_range samples = {0, 0};
    const mimo_bridge_batch *now = mimo_bridge_batch_now(bridge);
    bool given = batch == -1 && now->rows;
    MIMO_CHECK(batch >= 0 || given, MIMO_ERR_SHAPE, "samples: a batch of %" PRId64 "%s", batch,
               batch == -1 ? ", and the ranks gave no rows" : "");
    MIMO_CHECK(now->layouts[side].ragged != MIMO_RAGGED_ITEMS, MIMO_ERR_SHAPE,
               "samples: %s tiles hold items, which are of any samples", mimo_side_names[side]);
    layout.batch = batch;
    if (given)
        samples = mimo_batch_splits_range(&now->splits, now->rows, side);
    else if (mimo_layout_cell(&cell, &layout, bridge->rank))
        samples = mimo_layout_samples(&layout, cell.dp);
    *first = samples.first;
    *count = samples.count;
    return MIMO_OK;
}

static mimo_status routed_op_layout(mimo_layout_desc *out, const mimo_op *op, mimo_side side)
{
    const mimo_batch_split *split =
        mimo_batch_splits_find(&mimo_bridge_batch_of(op)->splits, mimo_routed_call_of(op)->split);
    *out = mimo_bridge_batch_of(op)->layouts[side];
    out->batch = split->batch;
    out->samples = split->samples[side];
    return MIMO_OK;
}

static void routed_batch_release(mimo_bridge *bridge, void *own)
{
    mimo_routed_batch *batch = own;
    mimo_prepared_calls_release(&batch->prepared, bridge->mover.comm);
    mimo_plan_cache_destroy(batch->plans);
}

static void routed_op_release(void *own)
{
    mimo_release(((mimo_routed_op *)own)->samples);
}

/* ------------------------------------------ steps ------------------------------------------- */

/* What a phase does for the chunk that moves now; NULL where the call has fewer phases. */
static const mimo_phase_chunk *chunk_of(const mimo_op *op, int phase)
{
    const mimo_routed_call *call = mimo_routed_call_of(op);
    return phase < call->phase_count ? &call->phases[phase].chunks[op->progress.item] : NULL;
}

/* A graph that records this call will replay it. */
static void note_recording(const mimo_op *op)
{
    const mimo_device *device = op->mover->comm->device;
    if (!device->records || !device->records(op->call.stream))
        return;
    mimo_routed_call_of(op)->common.recorded = true;
}

static mimo_status move_phase(mimo_op *op, int phase)
{
    const mimo_phase_chunk *chunk = chunk_of(op, phase);
    return chunk ? mimo_phase_move(&op->progress.request, chunk, op->mover->comm, op->call.stream)
                 : MIMO_OK;
}

static mimo_status move_rows(mimo_op *op, const mimo_tile_pair *tiles)
{
    (void)tiles;
    note_recording(op);
    mimo_batch_splits_touch(&mimo_bridge_batch_of(op)->splits, mimo_routed_call_of(op)->split);
    return move_phase(op, 0);
}

static mimo_status add_contributions(mimo_op *op, const mimo_tile_pair *tiles)
{
    (void)tiles;
    return mimo_phase_add(chunk_of(op, 0), op->mover->comm, &mimo_routed_call_of(op)->common.bases,
                          op->call.stream);
}

static mimo_status move_sums(mimo_op *op, const mimo_tile_pair *tiles)
{
    (void)tiles;
    return move_phase(op, 1);
}

/* A prepare: what the steps below would take for the first time. */
static mimo_status connect_phases(mimo_op *op, const mimo_tile_pair *tiles)
{
    (void)tiles;
    for (int phase = 0; phase < mimo_routed_call_of(op)->phase_count; phase++)
        MIMO_TRY(mimo_phase_connect(chunk_of(op, phase), op->mover->comm, op->call.stream));
    return MIMO_OK;
}

static const mimo_mover_step connect_steps[] = {connect_phases, NULL};
static const mimo_mover_step forward_steps[] = {move_rows, NULL};
static const mimo_mover_step backward_steps[] = {move_rows, add_contributions, move_sums, NULL};

const mimo_executor_table mimo_routed_executor = {
    .name = "routed",
    .transports = MIMO_TRANSPORT_BIT(MIMO_TRANSPORT_P2P) |
                  MIMO_TRANSPORT_BIT(MIMO_TRANSPORT_ZERO_COPY) |
                  MIMO_TRANSPORT_BIT(MIMO_TRANSPORT_STAGED),
    .tensors_alike = true,
    .create = mimo_routed_create,
    .connect = mimo_routed_connect,
    .destroy = mimo_routed_destroy,
    .takes_batches = true,
    .batch_bytes = sizeof(mimo_routed_batch),
    .batch_release = routed_batch_release,
    .op_bytes = sizeof(mimo_routed_op),
    .op_release = routed_op_release,
    .side_layout = mimo_routed_side_layout,
    .op_layout = routed_op_layout,
    .samples = routed_samples,
    .staging = mimo_routed_staging,
    .read_sequence = mimo_routed_read_sequence,
    .read = mimo_routed_read,
    .sign = mimo_routed_sign,
    .target = routed_target,
    .prepare = routed_prepare,
    .resolve_start = routed_resolve_start,
    .resolve_finish = routed_resolve_finish,
    .forward = forward_steps,
    .backward = backward_steps,
    .connect_steps = connect_steps,
    .by_chunk = true,
    .finish = mimo_routed_call_put_back,
};
