/* The beginning of an operation: this rank reads and checks the tensors, and gets the memory that
 * moving them takes. Nothing here waits for another rank. */
#include <inttypes.h>

#include "bridge/bridge_types.h"
#include "bridge/verify/verify.h"
#include "core/check.h"
#include "core/memory.h"

/* --------------------------------- spare operations --------------------------------- */

static mimo_status take_op(mimo_op **out, mimo_bridge *bridge)
{
    *out = mimo_free_list_take(&bridge->spare, 0, 0);
    return *out ? MIMO_OK : mimo_reserve(out, 1, sizeof **out);
}

/* Make the next operation along with this one. Without memory for it this one fails, and the
 * agreement tells all ranks. Made later, it would fail on this rank alone. */
static mimo_status make_next(mimo_bridge *bridge)
{
    return bridge->spare ? MIMO_OK : mimo_reserve(&bridge->spare, 1, sizeof(mimo_op));
}

/* -------------------------------------- checks -------------------------------------- */

/* No memory is both written and read, or written twice. */
static mimo_status check_apart(const mimo_tensor *to, const mimo_tensor *from, int n)
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++)
            MIMO_TRY(mimo_tile_check_apart(&from[j], &to[i]));
        for (int j = 0; j < i; j++)
            MIMO_TRY(mimo_tile_check_apart(&to[j], &to[i]));
    }
    return MIMO_OK;
}

/* Tensors that the routed executor moves at once have the same samples and positions: tensor i has
 * those of tensor 0. */
static mimo_status check_alike(const mimo_tile_pair *first, const mimo_tile_pair *pair, int i)
{
    char text[MIMO_VIEW_TEXT], other[MIMO_VIEW_TEXT];
    MIMO_CHECK(
        first->seq == pair->seq && first->src.batch == pair->src.batch &&
            first->dst.batch == pair->dst.batch,
        MIMO_ERR_SHAPE,
        "tensor %d, src tile %s, is cut otherwise than tensor 0, src tile %s: one call moves "
        "tensors of the same samples and positions",
        i, mimo_tensor_text(other, sizeof other, &pair->src.view),
        mimo_tensor_text(text, sizeof text, &first->src.view));
    return MIMO_OK;
}

/* What a measured bridge accepts must not depend on which executor was faster: so both look at the
 * tensors. */
static mimo_status read_sequence(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from, int n)
{
    const mimo_executor_table *other = mimo_executor_other(op->executor);
    if (op->executor->read_sequence)
        MIMO_TRY(op->executor->read_sequence(op, to, from, n));
    if (op->bridge->measured[op->call.backward] && other->read_sequence)
        MIMO_TRY(other->read_sequence(op, to, from, n));
    return MIMO_OK;
}

/* Read tensor i. Where routed moves it, or was measured, it must be like tensor 0 in routed's
 * reading (*first). Collective reads each tensor by itself, and one that is flat on both sides as
 * rows. */
static mimo_status read_pair(mimo_op *op, int i, const mimo_tensor *const sides[2],
                             mimo_tile_pair *first)
{
    mimo_tile_pair *own = &op->tensors.pairs[i], other;
    const mimo_executor_table *second = mimo_executor_other(op->executor);
    bool measured = op->bridge->measured[op->call.backward];
    if (measured)
        MIMO_TRY(second->read(&other, op, sides[MIMO_SRC], sides[MIMO_DST]));
    MIMO_TRY(op->executor->read(own, op, sides[MIMO_SRC], sides[MIMO_DST]));
    const mimo_tile_pair *routed = op->executor->at_once ? own : (measured ? &other : NULL);
    if (!routed)
        return MIMO_OK;
    if (i == 0)
        *first = *routed;
    return check_alike(first, routed, i);
}

static mimo_status reserve_pairs(mimo_op *op, int64_t pairs)
{
    if (pairs <= op->tensors.capacity)
        return MIMO_OK;
    MIMO_TRY(
        mimo_regrow(&op->tensors.pairs, op->tensors.capacity, pairs, sizeof *op->tensors.pairs));
    op->tensors.capacity = pairs;
    return MIMO_OK;
}

static mimo_status read_pairs(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from, int n)
{
    mimo_tile_pair first;
    MIMO_TRY(read_sequence(op, to, from, n));
    for (int i = 0; i < n; i++) {
        const mimo_tensor *src = op->call.backward ? &to[i] : &from[i];
        const mimo_tensor *dst = op->call.backward ? &from[i] : &to[i];
        MIMO_TRY(read_pair(op, i, (const mimo_tensor *const[]){src, dst}, &first));
        op->claim.signature = op->executor->sign(op->claim.signature, &op->tensors.pairs[i]);
    }
    MIMO_TRY(check_apart(to, from, n));
    op->tensors.count = n;
    return MIMO_OK;
}

static mimo_status reserve_hashes(mimo_op *op)
{
    const mimo_comm *copies = op->bridge->copies;
    if (!copies || op->memory.hashes)
        return MIMO_OK;
    return mimo_reserve(&op->memory.hashes, 1 + (int64_t)copies->size, sizeof *op->memory.hashes);
}

/* Check the call and prepare it. */
static mimo_status check_tensors(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from, int n)
{
    const mimo_bridge *bridge = op->bridge;
    const mimo_device *device = bridge->comm->device;
    bool recorded = op->call.prepares && device->records && device->records(op->call.stream);
    MIMO_CHECK(!recorded, MIMO_ERR_STATE, "%s: its stream is being captured; prepare comes before",
               op->claim.words);
    MIMO_CHECK(n > 0, MIMO_ERR_ARGUMENT, "%s: %d tensors", op->claim.words, n);
    MIMO_CHECK(op->call.chunks > 0, MIMO_ERR_ARGUMENT, "%s: %d chunks", op->claim.words,
               op->call.chunks);
    MIMO_CHECK(to && from, MIMO_ERR_ARGUMENT, "%s: %s is NULL", op->claim.words,
               to ? "from" : "to");
    MIMO_TRY(reserve_pairs(op, n + (int64_t)bridge->check_samples));
    MIMO_TRY(read_pairs(op, to, from, n));
    MIMO_TRY(reserve_hashes(op));
    MIMO_TRY(mimo_op_reserve_events(op));
    if (bridge->check_samples)
        MIMO_TRY(mimo_origins_prepare(op));
    MIMO_TRY(op->executor->prepare(op));
    return op->call.prepares && !op->executor->connect_steps ? mimo_op_take_substitutes(op)
                                                             : MIMO_OK;
}

/* ------------------------------------- beginning ------------------------------------ */

/* What an operation that was used before is set back to. */
static void reset(mimo_op *op, mimo_bridge *bridge, const mimo_op_request *request)
{
    const mimo_move_desc *move = &request->move;
    op->bridge = bridge;
    op->executor = mimo_bridge_executor_of(bridge, request->backward);
    op->next = NULL;
    op->call = (mimo_op_call){.backward = request->backward,
                              .guarded = mimo_is_guarding(bridge->comm),
                              .chunked = request->chunked,
                              .prepares = request->prepares,
                              .chunks = move->chunks,
                              .batch = bridge->selected,
                              .stream = move->stream};
    op->tensors.count = op->progress.item = op->progress.step = 0;
    op->tensors.tagged = false;
    op->claim.guess = 0;
    op->claim.unsure = false;
    op->progress.state = MIMO_OP_QUEUED;
    op->progress.status = MIMO_OK;
    op->progress.waiter = (mimo_waiter){.comm = bridge->comm, .call = op->claim.words};
}

mimo_status mimo_op_begin(mimo_op **out, mimo_bridge *bridge, const mimo_op_request *request)
{
    mimo_op *op;
    const mimo_move_desc *move = &request->move;
    MIMO_TRY(take_op(&op, bridge));
    reset(op, bridge, request);
    mimo_op_begin_words(op, move->to, move->from, move->n);
    mimo_op_begin_signature(op, move->n);
    op->claim.local = request->read;
    if (op->claim.local == MIMO_OK)
        op->claim.local = mimo_comm_check(bridge->comm);
    if (op->claim.local == MIMO_OK)
        op->claim.local = make_next(bridge);
    if (op->claim.local == MIMO_OK)
        op->claim.local = check_tensors(op, move->to, move->from, move->n);
    (void)mimo_bridge_prefix_error(bridge, op->claim.local);
    mimo_op_keep_sentence(op);
    *out = op;
    return MIMO_OK;
}

void mimo_op_destroy(mimo_op *op)
{
    mimo_staging_release(&op->memory.staging);
    mimo_op_release_events(op);
    mimo_release(op->memory.hashes);
    mimo_release(op->memory.samples);
    mimo_release(op->tensors.pairs);
    mimo_release(op);
}
