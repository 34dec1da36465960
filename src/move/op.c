/* The public calls of operations. */
#include <limits.h>

#include "comm/calls.h"
#include "core/check.h"
#include "core/descriptor.h"
#include "device/profile.h"
#include "move/op_types.h"

MIMO_DEFINE_INIT(mimo_move_desc, MIMO_MOVE_DESC_INIT)

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
    MIMO_ENTER(op->mover->comm, "mimo_op_test");
    mimo_mover_progress(op->mover);
    if (op->progress.state != MIMO_OP_ENDED && mimo_op_check(op) != MIMO_OK)
        mimo_mover_progress(op->mover); /* ends it */
    *done = op->progress.state == MIMO_OP_ENDED;
    return *done ? outcome(op) : MIMO_OK;
}

mimo_status mimo_op_wait_chunk(mimo_op *op, int chunk, mimo_stream stream)
{
    MIMO_RANGE();
    MIMO_CHECK(op, MIMO_ERR_ARGUMENT, "mimo_op_wait_chunk: op is NULL");
    MIMO_ENTER(op->mover->comm, "mimo_op_wait_chunk");
    char call[MIMO_CALL_TEXT];
    MIMO_CHECK(op->call.chunked, MIMO_ERR_STATE, "%s was not begun in chunks",
               mimo_op_text(call, op));
    MIMO_CHECK(chunk >= 0 && chunk < op->call.chunks, MIMO_ERR_ARGUMENT,
               "%s: there is no chunk %d of %d", mimo_op_text(call, op), chunk, op->call.chunks);
    mimo_op_progress_to(op, chunk + 1);
    MIMO_TRY(outcome(op));
    return mimo_op_wait_event(op, chunk, stream);
}

mimo_status mimo_op_finish(mimo_op **handle)
{
    mimo_op *op = *handle;
    mimo_mover *mover = op->mover;
    mimo_op_progress_to(op, INT_MAX);
    if (mover->hooks->waited)
        mover->hooks->waited(op);
    mimo_free_list_put(&mover->spare, &op->item);
    *handle = NULL;
    mimo_status status = outcome(op);
    mover->unwaited--;
    if (mover->idle && mover->unwaited == 0)
        mover->idle(mover->owner);
    return status;
}

mimo_status mimo_op_wait(mimo_op **handle)
{
    MIMO_RANGE();
    MIMO_CHECK(handle, MIMO_ERR_ARGUMENT, "mimo_op_wait: NULL");
    if (!*handle)
        return MIMO_OK;
    MIMO_ENTER((*handle)->mover->parent, "mimo_op_wait");
    return mimo_op_finish(handle);
}
