/*
 * Operations: each checks locally, agrees with the other ranks, then runs its executor's steps one
 * tensor, or one chunk, after the other. Only the first operation of a bridge's queue moves, so
 * every rank starts the same communication in the same order however its progress calls fall.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bridge/bridge_types.h"
#include "comm/buffer_state.h"
#include "core/check.h"
#include "core/descriptor.h"
#include "core/hash.h"
#include "core/memory.h"

/* ------------------------------------ staging ------------------------------------- */

static mimo_staging *rooms_of(mimo_op *op)
{
    return op->bridge->comm->device->enqueues ? &op->bridge->staging : &op->staging;
}

static mimo_staging_key room_key(const mimo_op *op, mimo_staging_slot slot)
{
    return (mimo_staging_key){op->bridge->comm->device, op->stream, slot};
}

mimo_status mimo_op_stage(void **out, mimo_op *op, mimo_staging_slot slot, int64_t bytes)
{
    const mimo_staging_key key = room_key(op, slot);
    *out = NULL;
    return bytes > 0 ? mimo_staging_get(out, rooms_of(op), &key, bytes) : MIMO_OK;
}

bool mimo_op_has_stage(mimo_op *op, mimo_staging_slot slot, const void *room, int64_t bytes)
{
    int64_t there;
    const mimo_staging_key key = room_key(op, slot);
    return mimo_staging_find(&there, rooms_of(op), &key) == room && bytes <= there;
}

/* ------------------------------------- words -------------------------------------- */

static void append(char call[MIMO_CALL_TEXT], const char *format, va_list arguments)
{
    size_t used = strlen(call);
    vsnprintf(call + used, MIMO_CALL_TEXT - used, format, arguments);
}

void mimo_op_note(mimo_op *op, const char *format, ...)
{
    va_list arguments;
    if (!op->bridge->names_tensors)
        return;
    va_start(arguments, format);
    append(op->call, format, arguments);
    va_end(arguments);
}

void mimo_call_say(char call[MIMO_CALL_TEXT], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    append(call, format, arguments);
    va_end(arguments);
}

mimo_status mimo_bridge_say(const mimo_bridge *bridge, mimo_status status)
{
    const char *title = bridge->title;
    if (status == MIMO_OK || mimo_family_status(bridge->comm->family) != MIMO_OK ||
        strncmp(mimo_last_error(), title, strlen(title)) == 0)
        return status;
    return mimo_fail_prefix(status, "%s: ", title);
}

/* ------------------------------ the call as all see it ------------------------------ */

static void begin_words(char call[MIMO_CALL_TEXT], const mimo_op *op, int n)
{
    snprintf(call, MIMO_CALL_TEXT, "%s %s of %d", op->bridge->title,
             op->backward ? "backward" : "forward", n);
}

static void begin_signature(mimo_op *op, int n)
{
    op->head = mimo_hash_int(op->bridge->id, MIMO_CALL_BRIDGE_MOVE);
    op->head = mimo_hash_int(mimo_hash_int(op->head, op->backward), n);
    op->head = mimo_hash_int(op->head, op->chunks);
    op->signature = op->head;
}

uint64_t mimo_target_sign(uint64_t hash, const mimo_buffer *buffer, int64_t place)
{
    return mimo_hash_int(mimo_hash_int(hash, place), buffer ? (int64_t)buffer->serial : 0);
}

static uint64_t hash_tensors(const void *context, int64_t k)
{
    const mimo_op *op = context;
    uint64_t hash = op->head;
    for (int i = 0; i < k; i++) {
        int64_t place = -1;
        const mimo_buffer *buffer =
            op->executor->target ? op->executor->target(&place, op, i) : NULL;
        hash = mimo_target_sign(op->executor->sign(hash, &op->pairs[i]), buffer, place);
    }
    return hash;
}

static void say_tensor(char call[MIMO_CALL_TEXT], const void *context, int64_t part)
{
    const mimo_op *op = context;
    const mimo_tile_pair *pair = &op->pairs[part];
    char to[MIMO_VIEW_TEXT], from[MIMO_VIEW_TEXT];
    int64_t place = -1;
    int n = op->count - op->tagged;
    begin_words(call, op, n);
    if (op->chunks > 1)
        mimo_call_say(call, " in %d chunks", op->chunks);
    if (n > 1)
        mimo_call_say(call, ", tensor %" PRId64, part);
    mimo_tensor_text(op->backward ? &pair->src.view : &pair->dst.view, to, sizeof to);
    mimo_tensor_text(op->backward ? &pair->dst.view : &pair->src.view, from, sizeof from);
    mimo_call_say(call, ": %s from %s", to, from);
    const mimo_buffer *buffer =
        op->executor->target ? op->executor->target(&place, op, (int)part) : NULL;
    if (buffer)
        mimo_call_say(call, " at byte %" PRId64 " of buffer %" PRIu64, place, buffer->serial);
}

static mimo_call_items tensors_of(const mimo_op *op)
{
    int64_t count = op->local == MIMO_OK ? op->count - op->tagged : 0;
    return (mimo_call_items){count, hash_tensors, say_tensor, op};
}

/* ----------------------------------- beginning ------------------------------------ */

static mimo_status take_op(mimo_op **out, mimo_bridge *bridge)
{
    if (!bridge->spare)
        return mimo_reserve(out, 1, sizeof **out);
    *out = bridge->spare;
    bridge->spare = (*out)->next;
    return MIMO_OK;
}

/* The next operation is made along with this one: without memory for it this one fails, which the
 * agreement carries to all ranks, where the next would fail on this rank alone. */
static mimo_status make_next(mimo_bridge *bridge)
{
    return bridge->spare ? MIMO_OK : mimo_reserve(&bridge->spare, 1, sizeof *bridge->spare);
}

/* Nothing that is written is read as well, or written twice. */
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
    const mimo_tile_pair *a = &op->pairs[0];
    for (int i = 1; i < op->count; i++) {
        const mimo_tile_pair *b = &op->pairs[i];
        MIMO_CHECK(a->seq == b->seq && a->src.batch == b->src.batch && a->dst.batch == b->dst.batch,
                   MIMO_ERR_SHAPE,
                   "tensor %d, src tile %s, is cut otherwise than tensor 0, src tile %s: one call "
                   "moves tensors of the same samples and positions",
                   i, mimo_tensor_text(&b->src.view, other, sizeof other),
                   mimo_tensor_text(&a->src.view, first, sizeof first));
    }
    return MIMO_OK;
}

/* What a measured bridge takes must not depend on who was faster: both executors read. */
static mimo_status read_pair(mimo_op *op, int i, const mimo_tensor *src, const mimo_tensor *dst)
{
    mimo_tile_pair unused;
    const mimo_executor_table *other =
        op->executor == &mimo_routed_executor ? &mimo_collective_executor : &mimo_routed_executor;
    if (op->bridge->measured[op->backward])
        MIMO_TRY(other->read(&unused, op, src, dst));
    return op->executor->read(&op->pairs[i], op, src, dst);
}

static mimo_status check_tensors(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from, int n)
{
    const mimo_bridge *bridge = op->bridge;
    MIMO_CHECK(n > 0, MIMO_ERR_ARGUMENT, "%s: %d tensors", op->call, n);
    MIMO_CHECK(op->chunks > 0, MIMO_ERR_ARGUMENT, "%s: %d chunks", op->call, op->chunks);
    MIMO_CHECK(to && from, MIMO_ERR_ARGUMENT, "%s: %s is NULL", op->call, to ? "from" : "to");
    int64_t pairs = n + (int64_t)bridge->check_samples;
    if (pairs > op->capacity) {
        MIMO_TRY(mimo_regrow(&op->pairs, op->capacity, pairs, sizeof *op->pairs));
        op->capacity = pairs;
    }
    const mimo_executor_table *surveyor =
        bridge->measured[op->backward] ? &mimo_routed_executor : op->executor;
    if (surveyor->survey)
        MIMO_TRY(surveyor->survey(op, to, from, n));
    for (int i = 0; i < n; i++) {
        const mimo_tensor *src = op->backward ? &to[i] : &from[i];
        const mimo_tensor *dst = op->backward ? &from[i] : &to[i];
        MIMO_TRY(read_pair(op, i, src, dst));
        op->signature = op->executor->sign(op->signature, &op->pairs[i]);
    }
    MIMO_TRY(check_apart(to, from, n));
    if (bridge->src_tp && !op->hashes)
        MIMO_TRY(mimo_reserve(&op->hashes, 1 + (int64_t)bridge->src_tp->size, sizeof *op->hashes));
    op->count = n;
    if (op->executor->at_once || bridge->measured[op->backward])
        MIMO_TRY(check_alike(op));
    MIMO_TRY(mimo_op_reserve_events(op));
    if (bridge->check_samples)
        MIMO_TRY(mimo_samples_prepare(op));
    return op->executor->prepare(op);
}

/* The call in words. Those of the operation's last call are kept where they are the same: to write
 * them is a fifth of what the host does for a call that only enqueues. */
static void name_call(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from, int n)
{
    const int64_t named = 2 * (int64_t)n + op->backward;
    char first[64] = "", second[64] = "";
    if (!op->bridge->names_tensors && op->call[0] && op->named == named)
        return;
    op->named = named;
    begin_words(op->call, op, n);
    if (op->chunks > 1)
        mimo_op_note(op, " in %d chunks", op->chunks);
    if (to && from && n > 0 && op->bridge->names_tensors)
        mimo_op_note(op, ": %s from %s", mimo_tensor_text(&to[0], first, sizeof first),
                     mimo_tensor_text(&from[0], second, sizeof second));
}

/* What the caller asked for. */
typedef struct asked {
    bool backward, chunked;
    mimo_move_desc move;
    mimo_status read; /* whether it could be read; else mimo_last_error() */
} asked;

static mimo_status start(mimo_op **out, mimo_bridge *bridge, const asked *call)
{
    mimo_op *op;
    const mimo_move_desc *move = &call->move;
    MIMO_CHECK(out && bridge, MIMO_ERR_ARGUMENT, "bridge %s: %s is NULL",
               call->backward ? "backward" : "forward", out ? "bridge" : "out");
    MIMO_TRY(take_op(&op, bridge));
    op->bridge = bridge;
    op->next = NULL;
    op->backward = call->backward;
    op->guarded = mimo_is_guarding(bridge->comm);
    op->executor = mimo_bridge_executor_of(bridge, call->backward);
    op->stream = move->stream;
    op->chunked = call->chunked;
    op->chunks = move->chunks;
    op->count = op->turn = op->step = 0;
    op->status = MIMO_OK;
    op->guess = 0;
    op->unsure = false;
    op->tagged = false;
    op->clock = (mimo_wait_clock){0, 0, 0};
    op->state = MIMO_OP_QUEUED;
    name_call(op, move->to, move->from, move->n);
    begin_signature(op, move->n);
    op->local = call->read;
    if (op->local == MIMO_OK)
        op->local = mimo_comm_check(bridge->comm);
    if (op->local == MIMO_OK)
        op->local = make_next(bridge);
    if (op->local == MIMO_OK)
        op->local = check_tensors(op, move->to, move->from, move->n);
    (void)mimo_bridge_say(bridge, op->local);
    if (op->local != MIMO_OK)
        snprintf(op->sentence, sizeof op->sentence, "%s", mimo_last_error());
    *out = op;
    return MIMO_OK;
}

static void queue(mimo_op *op)
{
    mimo_op **last = &op->bridge->queue;
    while (*last)
        last = &(*last)->next;
    *last = op;
}

/* ------------------------------------ progress ------------------------------------ */

static void end_op(mimo_op *op, mimo_status status)
{
    op->torn = op->torn || (op->request && status != MIMO_OK);
    op->bridge->comm->backend->release(op->request);
    op->request = NULL;
    op->status = status;
    if (status != MIMO_OK)
        snprintf(op->sentence, sizeof op->sentence, "%s", mimo_last_error());
    op->state = MIMO_OP_ENDED;
    if (op->executor->finish)
        op->executor->finish(op);
}

static void agree_on(mimo_op *op, mimo_status outcome, const char *check, int state)
{
    char call[MIMO_CALL_TEXT];
    snprintf(call, sizeof call, "%s %s", op->bridge->title, check);
    const mimo_claim claim = {
        .kind = MIMO_AGREE_ALWAYS, .local = outcome, .signature = op->signature, .call = call};
    mimo_agreement_begin(&op->agreement, op->bridge->comm, &claim);
    op->state = state;
}

/* All has moved: that is the end, or the samples check's turn. */
static void moved(mimo_op *op)
{
    if (op->bridge->check_samples)
        agree_on(op, mimo_samples_outcome(op), "samples check", MIMO_OP_TRACED);
    else
        end_op(op, MIMO_OK);
}

static mimo_status end_turn(mimo_op *op)
{
    op->turn++;
    op->step = 0;
    return mimo_op_record_turn(op);
}

/* Run steps until one leaves a request, or the last turn of them is through. */
static void run_steps(mimo_op *op)
{
    const mimo_executor_table *executor = op->executor;
    const mimo_step *steps = op->backward ? executor->backward : executor->forward;
    int turns = executor->at_once ? op->chunks : op->count;
    while (!op->request) {
        if (op->turn == turns) {
            moved(op);
            return;
        }
        const mimo_tile_pair *tiles = &op->pairs[executor->at_once ? 0 : op->turn];
        bool empty = !executor->at_once && mimo_tile_bytes(&tiles->src) == 0;
        bool over = empty || !steps[op->step];
        mimo_status status = over ? end_turn(op) : steps[op->step++](op, tiles);
        if (status != MIMO_OK) {
            end_op(op, mimo_bridge_say(op->bridge, status));
            return;
        }
    }
}

/* True once the request in flight, if any, is over. */
static bool request_over(mimo_op *op)
{
    const mimo_comm_backend *backend = op->bridge->comm->backend;
    bool done = op->request == NULL;
    mimo_status status = done ? MIMO_OK : mimo_test(op->bridge->comm, op->request, &done);
    if (status != MIMO_OK) {
        end_op(op, status);
        return true;
    }
    if (done) {
        backend->release(op->request);
        op->request = NULL;
    }
    return done;
}

/* Its sentence becomes the last error again, which an agreement reads. */
static mimo_status recall_local(const mimo_op *op)
{
    return op->local == MIMO_OK ? MIMO_OK : mimo_fail(op->local, "%s", op->sentence);
}

static mimo_claim claim_of(const mimo_op *op)
{
    return (mimo_claim){.kind = op->unsure ? MIMO_AGREE_CALL : MIMO_AGREE_DATA,
                        .local = recall_local(op),
                        .signature = op->signature,
                        .call = op->call,
                        .guess = op->guess,
                        .items = tensors_of(op)};
}

static void begin_agreement(mimo_op *op)
{
    const mimo_claim claim = claim_of(op);
    mimo_agreement_begin(&op->agreement, op->bridge->comm, &claim);
    op->state = MIMO_OP_AGREEING;
}

/* Enter a state that begins with a step of its own. */
static void enter(mimo_op *op, int state, mimo_status (*first)(mimo_op *op))
{
    op->state = state;
    mimo_status status = first(op);
    if (status != MIMO_OK)
        end_op(op, mimo_bridge_say(op->bridge, status));
}

static void agreed(mimo_op *op)
{
    const mimo_bridge *bridge = op->bridge;
    bool first = op->state == MIMO_OP_AGREEING;
    bool ready = op->agreement.same_guess && (op->job || !op->executor->ask);
    if (op->agreement.result != MIMO_OK || op->state == MIMO_OP_TRACED)
        end_op(op, op->agreement.result);
    else if (first && !ready)
        enter(op, MIMO_OP_ASKING, op->executor->ask);
    else if (first && bridge->check_replicas && !op->backward)
        enter(op, MIMO_OP_COMPARING, mimo_replicas_start);
    else
        op->state = MIMO_OP_MOVING;
}

/* What was found out makes the guess certain; whether all could prepare by it is agreed again. */
static void asked_around(mimo_op *op)
{
    op->local = mimo_bridge_say(op->bridge, op->executor->learn(op));
    if (op->local != MIMO_OK)
        snprintf(op->sentence, sizeof op->sentence, "%s", mimo_last_error());
    begin_agreement(op);
}

static void compared(mimo_op *op)
{
    agree_on(op, mimo_replicas_outcome(op), "replica check", MIMO_OP_COMPARED);
}

/* Move the operation as far as it goes without blocking. */
static void progress(mimo_op *op)
{
    while (op->state != MIMO_OP_ENDED) {
        switch (op->state) {
        case MIMO_OP_QUEUED:
            begin_agreement(op);
            break;
        case MIMO_OP_AGREEING:
        case MIMO_OP_COMPARED:
        case MIMO_OP_TRACED:
            if (!mimo_agreement_test(&op->agreement))
                return;
            agreed(op);
            break;
        case MIMO_OP_ASKING:
            if (!request_over(op))
                return;
            if (op->state != MIMO_OP_ENDED)
                asked_around(op);
            break;
        case MIMO_OP_COMPARING:
            if (!request_over(op))
                return;
            if (op->state != MIMO_OP_ENDED)
                compared(op);
            break;
        default:
            if (!request_over(op))
                return;
            if (op->state != MIMO_OP_ENDED)
                run_steps(op);
            break;
        }
    }
}

void mimo_bridge_progress(mimo_bridge *bridge)
{
    while (bridge->queue) {
        progress(bridge->queue);
        if (bridge->queue->state != MIMO_OP_ENDED)
            return;
        bridge->queue = bridge->queue->next;
    }
}

/* ------------------------------------- public ------------------------------------- */

/* Until the operation has ended, or so many of its chunks are here. */
static void move_on(mimo_op *op, int chunks)
{
    for (;;) {
        mimo_bridge_progress(op->bridge);
        if (op->state == MIMO_OP_ENDED || mimo_op_chunks_here(op) >= chunks)
            return;
        mimo_comm_progress(op->bridge->parent);
        (void)mimo_poll_termination(op->bridge->comm, &op->clock, op->call); /* progress ends it */
    }
}

static void finish(mimo_op *op)
{
    move_on(op, INT_MAX);
}

void mimo_bridge_finish(mimo_bridge *bridge)
{
    while (bridge->queue)
        finish(bridge->queue);
}

/* The agreements of a bridge never meet those of another one, nor of what else the ranks call on
 * the parent: where one of them has left out a call, each would wait for its own. */
mimo_status mimo_bridge_compare_call(const mimo_bridge *bridge, const mimo_claim *claim)
{
    mimo_claim whole = *claim;
    whole.kind = MIMO_AGREE_ALWAYS;
    return mimo_agree_on(bridge->parent, &whole);
}

/* On a device an operation ends as soon as its work is enqueued. Where agreements come first
 * (MIMO_CHECK=calls), they are waited for here: those of two bridges may end in another order on
 * another rank, and so would their work be enqueued. */
static mimo_status begin(mimo_op **out, mimo_bridge *bridge, const asked *call)
{
    MIMO_TRY(start(out, bridge, call));
    bridge->unwaited++;
    if (bridge->compares_calls) {
        const mimo_claim claim = claim_of(*out);
        mimo_status compared = mimo_bridge_compare_call(bridge, &claim);
        if (compared != MIMO_OK) {
            end_op(*out, compared);
            return MIMO_OK;
        }
    }
    queue(*out);
    if (bridge->comm->device->enqueues)
        finish(*out);
    else
        mimo_bridge_progress(bridge);
    return MIMO_OK;
}

static mimo_status begin_whole(mimo_op **out, mimo_bridge *bridge, bool backward,
                               const mimo_move_desc *move)
{
    const asked call = {.backward = backward, .move = *move};
    return begin(out, bridge, &call);
}

/* What can't be read fails on this rank like everything else: with the others. */
static mimo_status begin_chunked(mimo_op **out, mimo_bridge *bridge, bool backward,
                                 const mimo_move_desc *desc)
{
    asked call = {.backward = backward, .chunked = true, .move = MIMO_MOVE_DESC_INIT};
    if (desc)
        call.read = mimo_read_descriptor(&call.move, sizeof call.move, desc, "move");
    else
        call.read =
            mimo_fail(MIMO_ERR_ARGUMENT, "%s: desc is NULL", backward ? "backward" : "forward");
    return begin(out, bridge, &call);
}

mimo_status mimo_bridge_forward_start(mimo_op **out, mimo_bridge *bridge, const mimo_tensor *to,
                                      const mimo_tensor *from, int n, mimo_stream stream)
{
    return begin_whole(out, bridge, false, &(mimo_move_desc){0, to, from, n, 1, stream});
}

mimo_status mimo_bridge_backward_start(mimo_op **out, mimo_bridge *bridge, const mimo_tensor *to,
                                       const mimo_tensor *from, int n, mimo_stream stream)
{
    return begin_whole(out, bridge, true, &(mimo_move_desc){0, to, from, n, 1, stream});
}

mimo_status mimo_bridge_forward_start_chunked(mimo_op **out, mimo_bridge *bridge,
                                              const mimo_move_desc *desc)
{
    return begin_chunked(out, bridge, false, desc);
}

mimo_status mimo_bridge_backward_start_chunked(mimo_op **out, mimo_bridge *bridge,
                                               const mimo_move_desc *desc)
{
    return begin_chunked(out, bridge, true, desc);
}

static mimo_status outcome(const mimo_op *op)
{
    return op->status == MIMO_OK ? MIMO_OK : mimo_fail(op->status, "%s", op->sentence);
}

mimo_status mimo_op_test(mimo_op *op, bool *done)
{
    MIMO_CHECK(op && done, MIMO_ERR_ARGUMENT, "mimo_op_test: %s is NULL", op ? "done" : "op");
    mimo_bridge_progress(op->bridge);
    if (op->state != MIMO_OP_ENDED &&
        mimo_check_termination(op->bridge->comm, &op->clock, op->call) != MIMO_OK)
        mimo_bridge_progress(op->bridge); /* ends it */
    *done = op->state == MIMO_OP_ENDED;
    return *done ? outcome(op) : MIMO_OK;
}

mimo_status mimo_op_wait_chunk(mimo_op *op, int chunk, mimo_stream stream)
{
    MIMO_CHECK(op, MIMO_ERR_ARGUMENT, "mimo_op_wait_chunk: op is NULL");
    MIMO_CHECK(op->chunked, MIMO_ERR_STATE, "%s was not begun in chunks", op->call);
    MIMO_CHECK(chunk >= 0 && chunk < op->chunks, MIMO_ERR_ARGUMENT,
               "%s: there is no chunk %d of %d", op->call, chunk, op->chunks);
    move_on(op, chunk + 1);
    MIMO_TRY(outcome(op));
    return mimo_op_wait_event(op, chunk, stream);
}

mimo_status mimo_op_wait(mimo_op **handle)
{
    MIMO_CHECK(handle, MIMO_ERR_ARGUMENT, "mimo_op_wait: NULL");
    mimo_op *op = *handle;
    if (!op)
        return MIMO_OK;
    finish(op);
    mimo_bridge *bridge = op->bridge;
    op->next = bridge->spare;
    bridge->spare = op;
    *handle = NULL;
    mimo_status status = outcome(op);
    bridge->unwaited--;
    if (bridge->destroyed && bridge->unwaited == 0)
        mimo_bridge_destroy(bridge);
    return status;
}

mimo_status mimo_bridge_forward(mimo_bridge *bridge, const mimo_tensor *to, const mimo_tensor *from,
                                int n, mimo_stream stream)
{
    mimo_op *op;
    MIMO_TRY(mimo_bridge_forward_start(&op, bridge, to, from, n, stream));
    return mimo_op_wait(&op);
}

mimo_status mimo_bridge_backward(mimo_bridge *bridge, const mimo_tensor *to,
                                 const mimo_tensor *from, int n, mimo_stream stream)
{
    mimo_op *op;
    MIMO_TRY(mimo_bridge_backward_start(&op, bridge, to, from, n, stream));
    return mimo_op_wait(&op);
}
