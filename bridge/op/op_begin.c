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

/* Tensors that the routed executor moves at once have the same samples and positions. */
static mimo_status check_alike(const mimo_op *op)
{
    char first[MIMO_VIEW_TEXT], other[MIMO_VIEW_TEXT];
    const mimo_tile_pair *a = &op->tensors.pairs[0];
    for (int i = 1; i < op->tensors.count; i++) {
        const mimo_tile_pair *b = &op->tensors.pairs[i];
        MIMO_CHECK(a->seq == b->seq && a->src.batch == b->src.batch && a->dst.batch == b->dst.batch,
                   MIMO_ERR_SHAPE,
                   "tensor %d, src tile %s, is cut otherwise than tensor 0, src tile %s: one call "
                   "moves tensors of the same samples and positions",
                   i, mimo_tensor_text(other, sizeof other, &b->src.view),
                   mimo_tensor_text(first, sizeof first, &a->src.view));
    }
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

static mimo_status read_pair(mimo_op *op, int i, const mimo_tensor *src, const mimo_tensor *dst)
{
    mimo_tile_pair unused;
    if (op->bridge->measured[op->call.backward])
        MIMO_TRY(mimo_executor_other(op->executor)->read(&unused, op, src, dst));
    return op->executor->read(&op->tensors.pairs[i], op, src, dst);
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
    MIMO_TRY(read_sequence(op, to, from, n));
    for (int i = 0; i < n; i++) {
        const mimo_tensor *src = op->call.backward ? &to[i] : &from[i];
        const mimo_tensor *dst = op->call.backward ? &from[i] : &to[i];
        MIMO_TRY(read_pair(op, i, src, dst));
        op->claim.signature = op->executor->sign(op->claim.signature, &op->tensors.pairs[i]);
    }
    MIMO_TRY(check_apart(to, from, n));
    op->tensors.count = n;
    bool alike = op->executor->at_once || op->bridge->measured[op->call.backward];
    return alike ? check_alike(op) : MIMO_OK;
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
