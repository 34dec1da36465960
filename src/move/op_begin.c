/* The beginning of an operation: this rank reads and checks the tensors, and gets the memory that
 * moving them takes. Where it agrees on the parent, that begins. Then it joins the queue. Nothing
 * here waits for another rank, except where calls are compared (MIMO_CHECK=calls), and on a device.
 */
#include <limits.h>

#include "move/op_types.h"
#include "core/check.h"
#include "core/descriptor.h"
#include "core/memory.h"

/* --------------------------------- spare operations --------------------------------- */

mimo_status mimo_op_create(mimo_op **out, mimo_mover *mover)
{
    MIMO_TRY(mover->hooks->op_create(out));
    (*out)->mover = mover;
    return MIMO_OK;
}

static mimo_status take_op(mimo_op **out, mimo_mover *mover)
{
    *out = mimo_free_list_take(&mover->spare, 0, 0);
    return *out ? MIMO_OK : mimo_op_create(out, mover);
}

/* Make the next operation along with this one. Without memory for it this one fails, and the
 * agreement tells all ranks. Made later, it would fail on this rank alone. */
static mimo_status make_next(mimo_mover *mover)
{
    mimo_op *op;
    if (mover->spare)
        return MIMO_OK;
    MIMO_TRY(mimo_op_create(&op, mover));
    mimo_free_list_put(&mover->spare, &op->item);
    return MIMO_OK;
}

void mimo_op_destroy(mimo_op *op)
{
    mimo_staging_release(&op->memory.staging);
    mimo_op_release_events(op);
    mimo_release(op->tensors.pairs);
    op->mover->hooks->op_destroy(op);
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

mimo_status mimo_op_reserve_pairs(mimo_op *op, int64_t pairs)
{
    if (pairs <= op->tensors.capacity)
        return MIMO_OK;
    MIMO_TRY(
        mimo_regrow(&op->tensors.pairs, op->tensors.capacity, pairs, sizeof *op->tensors.pairs));
    op->tensors.capacity = pairs;
    return MIMO_OK;
}

static mimo_status read_tensors(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from, int n)
{
    const mimo_mover_hooks *hooks = op->mover->hooks;
    MIMO_TRY(hooks->read(op, to, from, n));
    for (int i = 0; i < n; i++)
        op->claim.signature = hooks->sign(op->claim.signature, op, i);
    MIMO_TRY(check_apart(to, from, n));
    op->tensors.count = n;
    return MIMO_OK;
}

/* Check the call and prepare it. */
static mimo_status check_tensors(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from, int n)
{
    char call[MIMO_CALL_TEXT];
    const mimo_device *device = op->mover->comm->device;
    bool recorded = op->call.prepares && device->records && device->records(op->call.stream);
    MIMO_CHECK(!recorded, MIMO_ERR_STATE, "%s: its stream is being captured; prepare comes before",
               mimo_op_text(call, op));
    MIMO_CHECK(n > 0, MIMO_ERR_ARGUMENT, "%s: %d tensors", mimo_op_text(call, op), n);
    MIMO_CHECK(op->call.chunks > 0, MIMO_ERR_ARGUMENT, "%s: %d chunks", mimo_op_text(call, op),
               op->call.chunks);
    MIMO_CHECK(to && from, MIMO_ERR_ARGUMENT, "%s: %s is NULL", mimo_op_text(call, op),
               to ? "from" : "to");
    MIMO_TRY(read_tensors(op, to, from, n));
    MIMO_TRY(mimo_op_reserve_events(op));
    return op->mover->hooks->prepare(op);
}

/* ------------------------------------- beginning ------------------------------------ */

/* What an operation that was used before is set back to. */
static void reset(mimo_op *op, const mimo_op_request *request)
{
    const mimo_move_desc *move = &request->move;
    op->next = NULL;
    op->call = (mimo_op_call){.backward = request->backward,
                              .guarded = mimo_is_guarding(op->mover->comm),
                              .chunked = request->chunked,
                              .prepares = request->prepares,
                              .kind = request->instead ? request->instead : MIMO_CALL_MOVE,
                              .n = move->n,
                              .chunks = move->chunks,
                              .stream = move->stream,
                              .subject = request->subject,
                              .micro_batch = -1,
                              .named = move->to && move->from && move->n > 0};
    if (op->call.named) {
        op->call.to = move->to[0];
        op->call.from = move->from[0];
    }
    op->tensors.count = 0;
    op->claim.guess = 0;
    op->claim.unsure = false;
    op->progress.state = MIMO_OP_QUEUED;
    op->progress.part = MIMO_OP_BEFORE;
    op->progress.item = op->progress.step = 0;
    op->progress.status = MIMO_OK;
    op->progress.waiter = (mimo_waiter){.comm = op->mover->comm};
    op->mover->hooks->begin(op);
}

static int64_t bytes_of(const mimo_op *op)
{
    int64_t bytes = 0;
    for (int i = 0; i < op->tensors.count; i++)
        bytes += mimo_tile_bytes(mimo_tile_of(&op->tensors.pairs[i], mimo_op_from(op)));
    return bytes;
}

static void describe_record(mimo_op *op)
{
    const mimo_mover *mover = op->mover;
    op->record.comm = NULL;
    op->record.of = mover->comm;
    op->record.verb =
        op->call.kind == MIMO_CALL_MOVE ? mover->hooks->pass[op->call.backward] : "set";
    op->record.micro_batch = op->call.micro_batch;
    op->record.chunks = op->call.chunks;
    op->record.bytes = bytes_of(op);
}

/* An operation with this rank's checks done, in no queue yet. Errors of the checks are in
 * claim.local. */
static mimo_status make_op(mimo_op **out, mimo_mover *mover, const mimo_op_request *request)
{
    mimo_op *op;
    const mimo_move_desc *move = &request->move;
    MIMO_TRY(take_op(&op, mover));
    reset(op, request);
    mimo_op_begin_signature(op);
    op->claim.local = request->read;
    if (op->claim.local == MIMO_OK)
        op->claim.local = mimo_comm_check(mover->comm);
    if (op->claim.local == MIMO_OK)
        op->claim.local = make_next(mover);
    if (op->claim.local == MIMO_OK && op->call.kind == MIMO_CALL_MOVE)
        op->claim.local = check_tensors(op, move->to, move->from, move->n);
    mimo_op_keep_local(op, op->claim.local);
    describe_record(op);
    *out = op;
    return MIMO_OK;
}

static void queue(mimo_op *op)
{
    mimo_op **last = &op->mover->queue;
    while (*last)
        last = &(*last)->next;
    *last = op;
}

/* On a device an operation ends as soon as its work is enqueued. This includes its agreement, where
 * there is one. Otherwise the agreements of two objects could end in one order on one rank and in
 * another order elsewhere, and their work would be enqueued in these orders. */
mimo_status mimo_mover_begin(mimo_op **out, mimo_mover *mover, const mimo_op_request *request)
{
    MIMO_TRY(make_op(out, mover, request));
    mover->unwaited++;
    if (mover->compares_calls) {
        const mimo_claim claim = mimo_op_claim_of(*out);
        mimo_status compared = mimo_mover_compare_call(mover, &claim);
        if (compared != MIMO_OK) {
            mimo_op_end(*out, compared);
            return MIMO_OK;
        }
    }
    if (mover->hooks->on_parent)
        mimo_op_agree_on_parent(*out);
    queue(*out);
    if (mover->comm->device->enqueues)
        mimo_op_progress_to(*out, INT_MAX);
    else
        mimo_mover_progress(mover);
    return MIMO_OK;
}

mimo_status mimo_mover_begin_described(mimo_op **out, mimo_mover *mover,
                                       const mimo_op_request *asked, const mimo_move_desc *desc)
{
    mimo_op_request request = *asked;
    request.move = (mimo_move_desc)MIMO_MOVE_DESC_INIT;
    request.chunked = true;
    if (desc)
        request.read = mimo_read_descriptor(&request.move, sizeof request.move, desc, "move");
    else
        request.read =
            mimo_fail(MIMO_ERR_ARGUMENT, "%s: desc is NULL",
                      request.prepares ? "prepare" : mover->hooks->pass[request.backward]);
    return mimo_mover_begin(out, mover, &request);
}
