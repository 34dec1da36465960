/* The progress of operations: each agrees with the other ranks, then goes through its steps. Only
 * the first operation of a mover's queue moves. So all ranks begin the same communication in the
 * same order, whenever they call. */
#include <limits.h>
#include <stdio.h>

#include "core/check.h"
#include "core/letters.h"
#include "move/op_types.h"

/* ------------------------------------- in flight ------------------------------------ */

void mimo_op_end(mimo_op *op, mimo_status status)
{
    if (op->progress.request && status != MIMO_OK)
        mimo_staging_abandon(&op->memory.staging); /* the request may still write there */
    op->mover->comm->backend->release(op->progress.request);
    op->progress.request = NULL;
    op->mover->comm->calls += op->progress.state == MIMO_OP_MOVING;
    mimo_record_count(op->mover->comm);
    mimo_record_op_ended(&op->record, status);
    op->progress.status = status;
    if (status != MIMO_OK)
        mimo_copy_text(op->progress.sentence, sizeof op->progress.sentence, mimo_last_error());
    op->progress.state = MIMO_OP_ENDED;
    op->mover->hooks->finish(op);
}

static void agree(mimo_op *op, mimo_comm *comm, const mimo_claim *claim)
{
    mimo_claim own = *claim;
    own.record = &op->record;
    mimo_agreement_begin(&op->claim.agreement, comm, &own);
    op->progress.agreeing = true;
}

void mimo_op_agree_on_parent(mimo_op *op)
{
    const mimo_claim claim = mimo_op_claim_of(op);
    agree(op, op->mover->parent, &claim);
}

void mimo_op_agree(mimo_op *op)
{
    const mimo_claim claim = mimo_op_claim_of(op);
    agree(op, op->mover->comm, &claim);
}

void mimo_op_agree_on(mimo_op *op, mimo_status outcome, const char *check)
{
    char call[MIMO_CALL_TEXT];
    snprintf(call, sizeof call, "%s %s", op->mover->title, check);
    const mimo_claim claim = {.kind = MIMO_AGREE_ALWAYS,
                              .local = outcome,
                              .signature = op->claim.signature,
                              .call = call};
    agree(op, op->mover->comm, &claim);
}

static mimo_status test_request(bool *over, mimo_op *op)
{
    MIMO_TRY(mimo_test(op->mover->comm, op->progress.request, over));
    if (*over) {
        op->mover->comm->backend->release(op->progress.request);
        op->progress.request = NULL;
    }
    return MIMO_OK;
}

static mimo_status test_agreement(bool *over, mimo_op *op)
{
    *over = mimo_agreement_test(&op->claim.agreement);
    if (!*over)
        return MIMO_OK;
    op->progress.agreeing = false;
    return op->claim.agreement.result;
}

/* True once what is in flight, if anything, is over. */
static bool flight_over(mimo_op *op)
{
    bool over = true;
    mimo_status status = MIMO_OK;
    if (op->progress.request)
        status = test_request(&over, op);
    else if (op->progress.agreeing)
        status = test_agreement(&over, op);
    if (status != MIMO_OK)
        mimo_op_end(op, status);
    return over || status != MIMO_OK;
}

/* --------------------------------------- steps -------------------------------------- */

/* Go through the next step; at the end of the list, on to the next item or part. */
static mimo_status advance_step(mimo_op *op)
{
    mimo_op_progress *at = &op->progress;
    bool items = at->part == MIMO_OP_ITEMS, tensors = items && !op->steps.by_chunk;
    if (items && at->item == (tensors ? op->tensors.count : op->call.chunks)) {
        at->part++;
        return MIMO_OK;
    }
    const mimo_tile_pair *tiles = tensors ? &op->tensors.pairs[at->item] : op->tensors.pairs;
    mimo_mover_step step = op->steps.part[at->part][at->step];
    if (step && !(tensors && mimo_tile_bytes(&tiles->src) == 0)) {
        at->step++;
        return step(op, tiles);
    }
    at->step = 0;
    if (!items) {
        at->part++;
        return MIMO_OK;
    }
    at->item++;
    return mimo_op_record_item(op);
}

/* Run steps until one leaves something in flight, or all are done. */
static void run_steps(mimo_op *op)
{
    mimo_status status = MIMO_OK;
    while (status == MIMO_OK && !op->progress.request && !op->progress.agreeing) {
        if (op->progress.part == MIMO_OP_PARTS) {
            mimo_op_end(op, MIMO_OK);
            return;
        }
        status = advance_step(op);
    }
    if (status != MIMO_OK)
        mimo_op_end(op, mimo_mover_prefix_error(op->mover, status));
}

/* ------------------------------------ operations ------------------------------------ */

/* By these numbers, notices of waits tell an operation from the agreement of the next one. A call
 * that some ranks did not make counts on none. */
static void begin_to_move(mimo_op *op)
{
    mimo_record_op_moves(&op->record, op->mover->comm);
    op->mover->comm->calls++;
    mimo_record_count(op->mover->comm);
    op->progress.state = MIMO_OP_MOVING;
}

/* Move on by one state, or by what is in flight. False where that would block. */
static bool advance(mimo_op *op)
{
    if (op->progress.state == MIMO_OP_QUEUED) {
        if (!op->mover->hooks->on_parent)
            mimo_op_agree(op);
        op->progress.state = MIMO_OP_AGREEING;
        return true;
    }
    if (!flight_over(op))
        return false;
    if (op->progress.state == MIMO_OP_AGREEING)
        begin_to_move(op);
    else if (op->progress.state == MIMO_OP_MOVING)
        run_steps(op);
    return true;
}

/* Move the operation as far as it goes without blocking. */
static void progress(mimo_op *op)
{
    while (op->progress.state != MIMO_OP_ENDED)
        if (!advance(op))
            return;
}

void mimo_mover_progress(mimo_mover *mover)
{
    if (mover->progressing)
        return;
    mover->progressing = true;
    while (mover->queue) {
        progress(mover->queue);
        if (mover->queue->progress.state != MIMO_OP_ENDED)
            break;
        mover->queue = mover->queue->next;
    }
    mover->progressing = false;
}

/* The words of the call, from now on, where the waiter will read them. */
static void name_call(mimo_op *op)
{
    if (!op->progress.waiter.call)
        op->progress.waiter.call = mimo_op_text(op->claim.words, op);
}

/* What the first operation of the queue waits for; the one before may be gone. */
static void note_request(mimo_op *op)
{
    const mimo_op *first = op->mover->queue;
    op->progress.waiter.request = first ? first->progress.request : NULL;
}

mimo_status mimo_op_check(mimo_op *op)
{
    name_call(op);
    note_request(op);
    return mimo_waiter_check(&op->progress.waiter);
}

void mimo_op_progress_to(mimo_op *op, int chunks)
{
    for (;;) {
        mimo_mover_progress(op->mover);
        if (op->progress.state == MIMO_OP_ENDED || mimo_op_chunks_here(op) >= chunks)
            break;
        note_request(op);
        if (mimo_waiter_is_due(&op->progress.waiter))
            name_call(op);
        (void)mimo_waiter_step(&op->progress.waiter, op->mover->parent); /* progress ends it */
    }
    mimo_record_wait_over(&op->progress.waiter);
}

void mimo_mover_finish(mimo_mover *mover)
{
    while (mover->queue)
        mimo_op_progress_to(mover->queue, INT_MAX);
}
