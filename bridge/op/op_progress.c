/* The progress of operations: each agrees with the other ranks, then runs its executor's steps, one
 * tensor after the other or one chunk after the other. Only the first operation of a bridge's queue
 * moves. So all ranks begin the same communication in the same order, whenever they call. */
#include <limits.h>
#include <stdio.h>

#include "bridge/bridge_types.h"
#include "bridge/verify/verify.h"
#include "core/check.h"

void mimo_op_end(mimo_op *op, mimo_status status)
{
    if (op->progress.request && status != MIMO_OK)
        mimo_staging_abandon(&op->memory.staging); /* the request may still write there */
    op->bridge->comm->backend->release(op->progress.request);
    op->progress.request = NULL;
    op->progress.status = status;
    if (status != MIMO_OK)
        snprintf(op->progress.sentence, sizeof op->progress.sentence, "%s", mimo_last_error());
    op->progress.state = MIMO_OP_ENDED;
    if (op->executor->finish)
        op->executor->finish(op);
}

static void agree_on(mimo_op *op, mimo_status outcome, const char *check, mimo_op_state state)
{
    char call[MIMO_CALL_TEXT];
    snprintf(call, sizeof call, "%s %s", op->bridge->title, check);
    const mimo_claim claim = {.kind = MIMO_AGREE_ALWAYS,
                              .local = outcome,
                              .signature = op->claim.signature,
                              .call = call};
    mimo_agreement_begin(&op->claim.agreement, op->bridge->comm, &claim);
    op->progress.state = state;
}

/* All has moved. This is the end, unless the samples check follows. */
static void on_moved(mimo_op *op)
{
    if (op->bridge->check_samples && !op->call.prepares)
        agree_on(op, mimo_origins_outcome(op), "samples check", MIMO_OP_AGREEING_ORIGINS);
    else
        mimo_op_end(op, MIMO_OK);
}

static mimo_status end_item(mimo_op *op)
{
    op->progress.item++;
    op->progress.step = 0;
    return mimo_op_record_item(op);
}

static const mimo_step *steps_of(const mimo_op *op)
{
    if (op->call.prepares && op->executor->connect_steps)
        return op->executor->connect_steps;
    return op->call.backward ? op->executor->backward : op->executor->forward;
}

/* Run steps until one leaves a request, or the last item has moved. */
static void run_steps(mimo_op *op)
{
    const mimo_executor_table *executor = op->executor;
    const mimo_step *steps = steps_of(op);
    int items = executor->at_once ? op->call.chunks : op->tensors.count;
    while (!op->progress.request) {
        if (op->progress.item == items) {
            on_moved(op);
            return;
        }
        const mimo_tile_pair *tiles = &op->tensors.pairs[executor->at_once ? 0 : op->progress.item];
        bool empty = !executor->at_once && mimo_tile_bytes(&tiles->src) == 0;
        bool over = empty || !steps[op->progress.step];
        mimo_status status = over ? end_item(op) : steps[op->progress.step++](op, tiles);
        if (status != MIMO_OK) {
            mimo_op_end(op, mimo_bridge_prefix_error(op->bridge, status));
            return;
        }
    }
}

/* True once the request in flight, if any, is over. */
static bool request_over(mimo_op *op)
{
    const mimo_comm_backend *backend = op->bridge->comm->backend;
    bool done = op->progress.request == NULL;
    mimo_status status = done ? MIMO_OK : mimo_test(op->bridge->comm, op->progress.request, &done);
    if (status != MIMO_OK) {
        mimo_op_end(op, status);
        return true;
    }
    if (done) {
        backend->release(op->progress.request);
        op->progress.request = NULL;
    }
    return done;
}

static void begin_agreement(mimo_op *op)
{
    const mimo_claim claim = mimo_op_claim_of(op);
    mimo_agreement_begin(&op->claim.agreement, op->bridge->comm, &claim);
    op->progress.state = MIMO_OP_AGREEING;
}

/* Enter a state, which begins with `first`. */
static void enter(mimo_op *op, mimo_op_state state, mimo_status (*first)(mimo_op *op))
{
    op->progress.state = state;
    mimo_status status = first(op);
    if (status != MIMO_OK)
        mimo_op_end(op, mimo_bridge_prefix_error(op->bridge, status));
}

static void on_agreed(mimo_op *op)
{
    const mimo_bridge *bridge = op->bridge;
    bool first = op->progress.state == MIMO_OP_AGREEING;
    bool ready = op->claim.agreement.same_guess && (op->prepared || !op->executor->resolve_start);
    if (op->claim.agreement.result != MIMO_OK || op->progress.state == MIMO_OP_AGREEING_ORIGINS)
        mimo_op_end(op, op->claim.agreement.result);
    else if (first && !ready)
        enter(op, MIMO_OP_RESOLVING, op->executor->resolve_start);
    else if (first && bridge->replicated && !op->call.backward && !op->call.prepares)
        enter(op, MIMO_OP_HASHING_REPLICAS, mimo_replicas_start);
    else
        op->progress.state = MIMO_OP_MOVING;
}

/* The guess is certain now. Whether all ranks could prepare by it takes another agreement. */
static void on_resolved(mimo_op *op)
{
    op->claim.local = mimo_bridge_prefix_error(op->bridge, op->executor->resolve_finish(op));
    mimo_op_keep_sentence(op);
    begin_agreement(op);
}

static void on_compared(mimo_op *op)
{
    agree_on(op, mimo_replicas_outcome(op), "replica check", MIMO_OP_AGREEING_REPLICAS);
}

/* What follows a request, by the state that waited for it. */
static void (*const on_request_over[])(mimo_op *op) = {
    [MIMO_OP_RESOLVING] = on_resolved,
    [MIMO_OP_HASHING_REPLICAS] = on_compared,
    [MIMO_OP_MOVING] = run_steps,
};

/* Move on by one state. False where that would block. */
static bool advance(mimo_op *op)
{
    switch (op->progress.state) {
    case MIMO_OP_QUEUED:
        begin_agreement(op);
        return true;
    case MIMO_OP_AGREEING:
    case MIMO_OP_AGREEING_REPLICAS:
    case MIMO_OP_AGREEING_ORIGINS:
        if (!mimo_agreement_test(&op->claim.agreement))
            return false;
        on_agreed(op);
        return true;
    default:
        if (!request_over(op))
            return false;
        if (op->progress.state != MIMO_OP_ENDED)
            on_request_over[op->progress.state](op);
        return true;
    }
}

/* Move the operation as far as it goes without blocking. */
static void progress(mimo_op *op)
{
    while (op->progress.state != MIMO_OP_ENDED)
        if (!advance(op))
            return;
}

void mimo_bridge_progress(mimo_bridge *bridge)
{
    while (bridge->queue) {
        progress(bridge->queue);
        if (bridge->queue->progress.state != MIMO_OP_ENDED)
            return;
        bridge->queue = bridge->queue->next;
    }
}

void mimo_op_progress_to(mimo_op *op, int chunks)
{
    for (;;) {
        mimo_bridge_progress(op->bridge);
        if (op->progress.state == MIMO_OP_ENDED || mimo_op_chunks_here(op) >= chunks)
            return;
        op->progress.waiter.request = op->bridge->queue->progress.request;
        (void)mimo_waiter_step(&op->progress.waiter, op->bridge->parent); /* progress ends it */
    }
}

void mimo_bridge_finish(mimo_bridge *bridge)
{
    while (bridge->queue)
        mimo_op_progress_to(bridge->queue, INT_MAX);
}
