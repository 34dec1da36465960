/* The public calls of operations. */
#include <limits.h>

#include "bridge/bridge_types.h"
#include "comm/agreement.h"
#include "comm/calls.h"
#include "core/check.h"
#include "core/descriptor.h"
#include "device/profile.h"

MIMO_DEFINE_INIT(mimo_move_desc, MIMO_MOVE_DESC_INIT)

/* ------------------------------------ beginning ----------------------------------- */

static void queue(mimo_op *op)
{
    mimo_op **last = &op->bridge->queue;
    while (*last)
        last = &(*last)->next;
    *last = op;
}

/* Inside of a call. On a device an operation ends as soon as its work is enqueued. This includes
 * its agreement, where there is one. Otherwise the agreements of two bridges could end in one order
 * on one rank and in another order elsewhere, and their work would be enqueued in these orders. */
static mimo_status start(mimo_op **out, mimo_bridge *bridge, const mimo_op_request *request)
{
    MIMO_TRY(mimo_op_begin(out, bridge, request));
    bridge->unwaited++;
    if (bridge->compares_calls) {
        const mimo_claim claim = mimo_op_claim_of(*out);
        mimo_status compared = mimo_bridge_compare_call(bridge, &claim);
        if (compared != MIMO_OK) {
            mimo_op_end(*out, compared);
            return MIMO_OK;
        }
    }
    queue(*out);
    if (bridge->comm->device->enqueues)
        mimo_op_progress_to(*out, INT_MAX);
    else
        mimo_bridge_progress(bridge);
    return MIMO_OK;
}

static const char *pass_of(const mimo_op_request *request)
{
    return request->backward ? "backward" : "forward";
}

static mimo_status begin(mimo_op **out, mimo_bridge *bridge, const mimo_op_request *request)
{
    const char *pass = pass_of(request);
    MIMO_CHECK(out && bridge, MIMO_ERR_ARGUMENT, "bridge %s: %s is NULL", pass,
               out ? "bridge" : "out");
    MIMO_ENTER(bridge->comm, pass);
    return start(out, bridge, request);
}

static mimo_op_request whole(bool backward, const mimo_tensor *to, const mimo_tensor *from, int n,
                             mimo_stream stream)
{
    return (mimo_op_request){.backward = backward, .move = {0, to, from, n, 1, stream}};
}

/* A descriptor that can't be read is an error of this rank's checks: all ranks get it from the
 * agreement. */
static mimo_status begin_described(mimo_op **out, mimo_bridge *bridge, const mimo_op_request *asked,
                                   const mimo_move_desc *desc)
{
    mimo_op_request request = *asked;
    request.move = (mimo_move_desc)MIMO_MOVE_DESC_INIT;
    request.chunked = true;
    if (desc)
        request.read = mimo_read_descriptor(&request.move, sizeof request.move, desc, "move");
    else
        request.read = mimo_fail(MIMO_ERR_ARGUMENT, "%s: desc is NULL",
                                 request.prepares   ? "prepare"
                                 : request.backward ? "backward"
                                                    : "forward");
    return begin(out, bridge, &request);
}

mimo_status mimo_bridge_forward_start(mimo_op **out, mimo_bridge *bridge, const mimo_tensor *to,
                                      const mimo_tensor *from, int n, mimo_stream stream)
{
    MIMO_RANGE();
    const mimo_op_request request = whole(false, to, from, n, stream);
    return begin(out, bridge, &request);
}

mimo_status mimo_bridge_backward_start(mimo_op **out, mimo_bridge *bridge, const mimo_tensor *to,
                                       const mimo_tensor *from, int n, mimo_stream stream)
{
    MIMO_RANGE();
    const mimo_op_request request = whole(true, to, from, n, stream);
    return begin(out, bridge, &request);
}

mimo_status mimo_bridge_forward_start_chunked(mimo_op **out, mimo_bridge *bridge,
                                              const mimo_move_desc *desc)
{
    MIMO_RANGE();
    return begin_described(out, bridge, &(mimo_op_request){.backward = false}, desc);
}

mimo_status mimo_bridge_backward_start_chunked(mimo_op **out, mimo_bridge *bridge,
                                               const mimo_move_desc *desc)
{
    MIMO_RANGE();
    return begin_described(out, bridge, &(mimo_op_request){.backward = true}, desc);
}

static mimo_status outcome(const mimo_op *op)
{
    return op->progress.status == MIMO_OK
               ? MIMO_OK
               : mimo_fail(op->progress.status, "%s", op->progress.sentence);
}

mimo_status mimo_op_test(bool *done, mimo_op *op)
{
    MIMO_RANGE();
    MIMO_CHECK(op && done, MIMO_ERR_ARGUMENT, "mimo_op_test: %s is NULL", op ? "done" : "op");
    MIMO_ENTER(op->bridge->comm, "mimo_op_test");
    mimo_bridge_progress(op->bridge);
    if (op->progress.state != MIMO_OP_ENDED && mimo_waiter_check(&op->progress.waiter) != MIMO_OK)
        mimo_bridge_progress(op->bridge); /* ends it */
    *done = op->progress.state == MIMO_OP_ENDED;
    return *done ? outcome(op) : MIMO_OK;
}

mimo_status mimo_op_wait_chunk(mimo_op *op, int chunk, mimo_stream stream)
{
    MIMO_RANGE();
    MIMO_CHECK(op, MIMO_ERR_ARGUMENT, "mimo_op_wait_chunk: op is NULL");
    MIMO_ENTER(op->bridge->comm, "mimo_op_wait_chunk");
    MIMO_CHECK(op->call.chunked, MIMO_ERR_STATE, "%s was not begun in chunks", op->claim.words);
    MIMO_CHECK(chunk >= 0 && chunk < op->call.chunks, MIMO_ERR_ARGUMENT,
               "%s: there is no chunk %d of %d", op->claim.words, chunk, op->call.chunks);
    mimo_op_progress_to(op, chunk + 1);
    MIMO_TRY(outcome(op));
    return mimo_op_wait_event(op, chunk, stream);
}

/* Inside of a call of the bridge's parent, which outlives the bridge. */
static mimo_status finish(mimo_op **handle)
{
    mimo_op *op = *handle;
    mimo_op_progress_to(op, INT_MAX);
    mimo_bridge *bridge = op->bridge;
    mimo_free_list_put(&bridge->spare, &op->item);
    *handle = NULL;
    mimo_status status = outcome(op);
    bridge->unwaited--;
    if (bridge->destroyed && bridge->unwaited == 0)
        mimo_bridge_destroy(bridge);
    return status;
}

mimo_status mimo_op_wait(mimo_op **handle)
{
    MIMO_RANGE();
    MIMO_CHECK(handle, MIMO_ERR_ARGUMENT, "mimo_op_wait: NULL");
    if (!*handle)
        return MIMO_OK;
    MIMO_ENTER((*handle)->bridge->parent, "mimo_op_wait");
    return finish(handle);
}

mimo_status mimo_bridge_prepare(mimo_bridge *bridge, bool backward, const mimo_move_desc *move)
{
    mimo_op *op;
    const mimo_op_request request = {.backward = backward, .prepares = true};
    MIMO_RANGE();
    MIMO_CHECK(bridge, MIMO_ERR_ARGUMENT, "bridge prepare: bridge is NULL");
    MIMO_ENTER(bridge->comm, "bridge prepare");
    MIMO_TRY(begin_described(&op, bridge, &request, move));
    mimo_op_progress_to(op, INT_MAX);
    mimo_status finished = MIMO_OK;
    if (op->progress.status == MIMO_OK && bridge->comm->device->enqueues)
        finished = mimo_comm_synchronize(bridge->comm, op->call.stream);
    mimo_op_release_substitutes(op);
    mimo_status status = mimo_op_wait(&op);
    return status == MIMO_OK ? finished : status;
}

/* One call from the start to the end: no other thread gets in between, and no operation is left. */
static mimo_status move_whole(mimo_bridge *bridge, const mimo_op_request *request)
{
    mimo_op *op;
    const char *pass = pass_of(request);
    MIMO_CHECK(bridge, MIMO_ERR_ARGUMENT, "bridge %s: bridge is NULL", pass);
    MIMO_ENTER(bridge->parent, pass);
    MIMO_TRY(start(&op, bridge, request));
    return finish(&op);
}

static mimo_status refusal(mimo_status local)
{
    MIMO_CHECK(local != MIMO_OK, MIMO_ERR_ARGUMENT, "bridge refuse: MIMO_OK is no error");
    return mimo_checked_status(local, "bridge refuse");
}

mimo_status mimo_bridge_refuse(mimo_bridge *bridge, bool backward, bool prepare, mimo_status local)
{
    MIMO_RANGE();
    mimo_op_request request = whole(backward, NULL, NULL, 0, NULL);
    request.prepares = prepare;
    request.read = refusal(local);
    return move_whole(bridge, &request);
}

mimo_status mimo_bridge_forward(mimo_bridge *bridge, const mimo_tensor *to, const mimo_tensor *from,
                                int n, mimo_stream stream)
{
    MIMO_RANGE();
    const mimo_op_request request = whole(false, to, from, n, stream);
    return move_whole(bridge, &request);
}

mimo_status mimo_bridge_backward(mimo_bridge *bridge, const mimo_tensor *to,
                                 const mimo_tensor *from, int n, mimo_stream stream)
{
    MIMO_RANGE();
    const mimo_op_request request = whole(true, to, from, n, stream);
    return move_whole(bridge, &request);
}
