/*
 * The routed executor: only consumed rows move, once, from one owner to each consumer, straight
 * from tensor to tensor. Forward is plan(src -> dst), backward plan(dst -> src). Without a
 * partition the dst cp ranks hold contributions: class 0 arrives in its place, the others in
 * staging, and they are added in class order, which is that of ascending ranks.
 *
 *   prepare   before the agreement: plans, messages, staging, for all tensors together (a job)
 *   move      one exchange; rows that stay here are copied while it is in flight
 *   add       the classes, where there are several
 *   move      where contributions were gathered first: their sums
 *
 * An operation in chunks goes through the steps once for each.
 */
#include <inttypes.h>

#include "bridge/routed/routed_types.h"
#include "core/checked.h"
#include "core/hash.h"
#include "core/memory.h"

/* ----------------------------------------- prepare ------------------------------------------ */

/* A rank without a role on a side has an empty tile there. */
static mimo_status check_role(const mimo_op *op, mimo_side side)
{
    char text[MIMO_VIEW_TEXT];
    mimo_cell cell;
    const mimo_tile *tile = side == MIMO_SRC ? &op->pairs[0].src : &op->pairs[0].dst;
    bool holds = mimo_layout_cell(&cell, op->bridge->routed->roles[side], op->bridge->rank);
    MIMO_CHECK(holds || tile->batch == 0, MIMO_ERR_SHAPE,
               "%s tile is %s, and this rank has no %s rows: it must have no samples",
               mimo_side_names[side], mimo_tensor_text(&tile->view, text, sizeof text),
               mimo_side_names[side]);
    return MIMO_OK;
}

static mimo_status prepare_cut(mimo_op *op, const mimo_cut *cut)
{
    op->guess = cut->hash;
    return mimo_job_prepare(op, cut);
}

/* Where all tiles are flat and nothing tells S, their rows are dealt out, and not samples. */
static bool counts_rows(const mimo_op *op)
{
    const mimo_layout_desc *places = op->bridge->routed->places;
    bool flat = !mimo_rule_is_packed(places[MIMO_SRC].partition) &&
                !mimo_rule_is_packed(places[MIMO_DST].partition);
    for (int i = 0; flat && i < op->count; i++)
        flat =
            mimo_tile_is_flat(&op->pairs[i].src.view) && mimo_tile_is_flat(&op->pairs[i].dst.view);
    return flat;
}

/* By the batch that the caller told: nothing is guessed, and nothing needs to be found out. */
static mimo_status prepare_told(mimo_op *op)
{
    char text[MIMO_VIEW_TEXT];
    mimo_routed *own = op->bridge->routed;
    const mimo_tile_pair *pair = &op->pairs[0];
    const mimo_cut *cut;
    MIMO_TRY(mimo_cuts_even(&cut, &own->cuts, op->bridge->batch));
    for (int side = own->ragged ? MIMO_DST : MIMO_SRC; side <= MIMO_DST; side++) {
        const mimo_tile *tile = side == MIMO_SRC ? &pair->src : &pair->dst;
        int64_t samples = mimo_cuts_samples(&own->cuts, cut, (mimo_side)side);
        MIMO_CHECK(tile->batch == samples, MIMO_ERR_SHAPE,
                   "%s tile is %s, and of a batch of %" PRId64 " this rank holds %" PRId64
                   " samples",
                   mimo_side_names[side], mimo_tensor_text(&tile->view, text, sizeof text),
                   op->bridge->batch, samples);
    }
    return prepare_cut(op, cut);
}

/* On a measured bridge, by the rules of collective: dp divides the batch on either side. Its rows
 * stay inside a gather group, and their place there does not depend on the batch. So where one
 * rank's tiles are such a cut, it may move without asking the others. */
static mimo_status prepare_measured(mimo_op *op)
{
    char from[MIMO_VIEW_TEXT], to[MIMO_VIEW_TEXT];
    const mimo_tile *src = &op->pairs[0].src, *dst = &op->pairs[0].dst;
    int64_t src_dp = mimo_grid_dim_size(op->bridge->src, "dp"), batch, dst_batch;
    int64_t dst_dp = mimo_grid_dim_size(op->bridge->dst, "dp");
    const mimo_cut *cut;
    MIMO_TRY(mimo_mul(&batch, src->batch, src_dp));
    MIMO_TRY(mimo_mul(&dst_batch, dst->batch, dst_dp));
    MIMO_CHECK(batch == dst_batch, MIMO_ERR_SHAPE,
               "src tile %s on dp=%" PRId64 " and dst tile %s on dp=%" PRId64
               " are no even cuts of one batch: a bridge whose executors were measured takes "
               "others only where its sizes say any_batch",
               mimo_tensor_text(&src->view, from, sizeof from), src_dp,
               mimo_tensor_text(&dst->view, to, sizeof to), dst_dp);
    MIMO_TRY(mimo_cuts_even(&cut, &op->bridge->routed->cuts, batch));
    return prepare_cut(op, cut);
}

/* No rank sees from its own tiles how the batch is cut: [7,3] over dp=2 looks even to either rank.
 * So the ranks compare their guesses first. */
static mimo_status expect_agreement(mimo_op *op)
{
    bool wanted;
    const mimo_comm *comm = op->bridge->comm;
    const mimo_device *device = comm->device;
    const char *cure = counts_rows(op) ? "give one of the tiles as sbh or bsh, and the batch by "
                                         "mimo_bridge_update"
                                       : "tell the batch by mimo_bridge_update or the descriptor";
    op->unsure = comm->size > 1;
    if (!op->unsure)
        return MIMO_OK;
    MIMO_CHECK(!device->records || !device->records(op->stream), MIMO_ERR_STATE,
               "%s: ranks have to agree on how the batch is cut, and can't while a graph is "
               "captured: %s",
               op->call, cure);
    MIMO_TRY(mimo_agreement_wanted(&wanted, comm, MIMO_AGREE_CALL));
    MIMO_CHECK(wanted, MIMO_ERR_STATE,
               "%s: ranks have to agree on how the batch is cut, and MIMO_AGREE=0 forbids it: %s",
               op->call, cure);
    return MIMO_OK;
}

static mimo_status prepare_guess(mimo_op *op)
{
    const mimo_cut *cut;
    mimo_bridge *bridge = op->bridge;
    MIMO_TRY(expect_agreement(op));
    if (!op->sizes)
        MIMO_TRY(mimo_reserve(&op->sizes, 2 * (1 + bridge->size), sizeof *op->sizes));
    op->sizes[MIMO_SRC] = op->pairs[0].src.batch;
    op->sizes[MIMO_DST] = op->pairs[0].dst.batch;
    MIMO_TRY(mimo_cuts_guess(&cut, &bridge->routed->cuts, op->sizes));
    if (cut)
        return prepare_cut(op, cut);
    op->guess = mimo_hash_int(~MIMO_HASH_START, bridge->rank); /* like no other's */
    return MIMO_OK;
}

static const mimo_buffer *routed_target(int64_t *place, const mimo_op *op, int i)
{
    const mimo_tile *tile = op->backward ? &op->pairs[i].src : &op->pairs[i].dst;
    const mimo_buffer *buffer = mimo_job_buffer(op, tile);
    *place = buffer ? (char *)tile->view.data - (char *)mimo_buffer_data(buffer) : -1;
    return buffer;
}

/* Ranks find each other's destinations by where their own lie, so these places are part of what all
 * call alike. */
static mimo_status sign_targets(mimo_op *op)
{
    char text[MIMO_VIEW_TEXT];
    mimo_executor way = op->bridge->way[op->backward];
    for (int i = 0; i < op->count - op->tagged; i++) {
        int64_t place;
        const mimo_tile *tile = op->backward ? &op->pairs[i].src : &op->pairs[i].dst;
        const mimo_buffer *buffer = routed_target(&place, op, i);
        MIMO_CHECK(buffer || way != MIMO_EXECUTOR_ZERO_COPY, MIMO_ERR_ARGUMENT,
                   "zero-copy: tensor %d, %s, is to be written at %p, and that is in no buffer of "
                   "the communicator that the bridge was made from",
                   i, mimo_tensor_text(&tile->view, text, sizeof text), tile->view.data);
        op->signature = mimo_target_sign(op->signature, buffer, place);
        if (buffer && i == 0)
            mimo_op_note(op, " at byte %" PRId64 " of buffer %" PRIu64, place, buffer->serial);
        else if (buffer)
            mimo_op_note(op, ", tensor %d at %" PRId64 " of %" PRIu64, i, place, buffer->serial);
    }
    return MIMO_OK;
}

static mimo_status routed_prepare(mimo_op *op)
{
    MIMO_TRY(sign_targets(op));
    MIMO_TRY(check_role(op, MIMO_SRC));
    MIMO_TRY(check_role(op, MIMO_DST));
    if (op->bridge->batch >= 0 && !counts_rows(op))
        return prepare_told(op);
    return op->bridge->measured[op->backward] ? prepare_measured(op) : prepare_guess(op);
}

/* The samples of all ranks. */
static mimo_status routed_ask(mimo_op *op)
{
    mimo_comm *comm = op->bridge->comm;
    return comm->backend->host_allgather_start(&op->request, comm, op->sizes + 2, op->sizes,
                                               2 * (int)sizeof *op->sizes);
}

static mimo_status routed_learn(mimo_op *op)
{
    const mimo_cut *cut;
    mimo_bridge *bridge = op->bridge;
    mimo_job_put_back(op);
    MIMO_TRY(mimo_cuts_learn(&cut, &bridge->routed->cuts, op->sizes + 2, bridge->size));
    return prepare_cut(op, cut);
}

static mimo_status routed_samples(const mimo_bridge *bridge, mimo_side side, int64_t batch,
                                  int64_t *first, int64_t *count)
{
    mimo_cell cell;
    mimo_layout layout = *bridge->routed->roles[side];
    mimo_range samples = {0, 0};
    MIMO_CHECK(batch >= 0, MIMO_ERR_SHAPE, "samples: a batch of %" PRId64, batch);
    layout.batch = batch;
    if (mimo_layout_cell(&cell, &layout, bridge->rank))
        samples = mimo_layout_samples(&layout, cell.dp);
    *first = samples.first;
    *count = samples.count;
    return MIMO_OK;
}

static mimo_status routed_cut(mimo_layout_desc *out, const mimo_op *op, mimo_side side)
{
    const mimo_cut *cut = mimo_cuts_find(&op->bridge->routed->cuts, op->job->cut);
    *out = mimo_routed_side(op->bridge, side);
    out->batch = cut->batch;
    out->samples = cut->samples[side];
    return MIMO_OK;
}

/* ------------------------------------------ steps ------------------------------------------- */

/* Each round is two steps; a job can have fewer rounds than the list. */
static const mimo_round_part *part_of(const mimo_op *op)
{
    int r = (op->step - 1) / 2; /* op->step is the next step */
    return r < op->job->rounds ? &op->job->round[r].parts[op->turn] : NULL;
}

static mimo_status move(mimo_op *op, const mimo_tile_pair *tiles)
{
    const mimo_round_part *part = part_of(op);
    const mimo_device *device = op->bridge->comm->device;
    (void)tiles;
    if (!part)
        return MIMO_OK;
    if (device->records && device->records(op->stream)) {
        op->job->recorded = true;
        op->job->stream = op->stream;
    }
    mimo_cuts_used(&op->bridge->routed->cuts, op->job->cut);
    return mimo_round_move(&op->request, part, op->bridge->comm, op->stream);
}

static mimo_status add(mimo_op *op, const mimo_tile_pair *tiles)
{
    const mimo_round_part *part = part_of(op);
    (void)tiles;
    return part ? mimo_round_add(part, op->bridge->comm, op->stream) : MIMO_OK;
}

static const mimo_step forward_steps[] = {move, NULL};
static const mimo_step backward_steps[] = {move, add, move, NULL};

const mimo_executor_table mimo_routed_executor = {
    .create = mimo_routed_create,
    .connect = mimo_routed_connect,
    .destroy = mimo_routed_destroy,
    .side = mimo_routed_side,
    .cut = routed_cut,
    .survey = mimo_routed_survey,
    .read = mimo_routed_read,
    .sign = mimo_routed_sign,
    .target = routed_target,
    .prepare = routed_prepare,
    .ask = routed_ask,
    .learn = routed_learn,
    .samples = routed_samples,
    .forward = forward_steps,
    .backward = backward_steps,
    .at_once = true,
    .finish = mimo_job_put_back,
};
