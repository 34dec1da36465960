/* The call of an operation in words. Sentences and agreements ask for them where something is
 * wrong: a call that is right writes none. */
#include <inttypes.h>
#include <stdio.h>

#include "comm/buffer_state.h"
#include "move/op_types.h"

static void begin_words(char call[MIMO_CALL_TEXT], const mimo_op *op)
{
    const mimo_mover *mover = op->mover;
    if (op->call.kind != MIMO_CALL_MOVE) {
        snprintf(call, MIMO_CALL_TEXT, "%s", mover->title);
        mover->hooks->describe(call, op);
        return;
    }
    snprintf(call, MIMO_CALL_TEXT, "%s %s%s of %d", mover->title,
             op->call.prepares ? "prepare of " : "", mover->hooks->pass[op->call.backward],
             op->call.n);
    mover->hooks->describe(call, op);
    if (op->call.chunks > 1)
        mimo_call_append(call, " in %d chunks", op->call.chunks);
}

static void append_views(char call[MIMO_CALL_TEXT], const mimo_tensor *to, const mimo_tensor *from)
{
    char first[MIMO_VIEW_TEXT], second[MIMO_VIEW_TEXT];
    mimo_call_append(call, ": %s from %s", mimo_tensor_text(first, sizeof first, to),
                     mimo_tensor_text(second, sizeof second, from));
}

static void append_target(char call[MIMO_CALL_TEXT], const mimo_op *op, int tensor)
{
    int64_t offset;
    const mimo_buffer *buffer = op->mover->hooks->target(&offset, op, tensor);
    if (buffer)
        mimo_call_append(call, " at byte %" PRId64 " of buffer %" PRIu64, offset, buffer->serial);
}

const char *mimo_op_text(char call[MIMO_CALL_TEXT], const mimo_op *op)
{
    begin_words(call, op);
    if (op->call.named)
        append_views(call, &op->call.to, &op->call.from);
    if (op->tensors.count > 0)
        append_target(call, op, 0);
    return call;
}

void mimo_op_describe(char call[MIMO_CALL_TEXT], const void *context, int64_t tensor)
{
    const mimo_op *op = context;
    if (tensor < 0) {
        (void)mimo_op_text(call, op);
        return;
    }
    const mimo_tile_pair *pair = &op->tensors.pairs[tensor];
    begin_words(call, op);
    if (op->call.n > 1)
        mimo_call_append(call, ", tensor %" PRId64, tensor);
    append_views(call, &mimo_tile_of(pair, mimo_op_to(op))->view,
                 &mimo_tile_of(pair, mimo_op_from(op))->view);
    append_target(call, op, (int)tensor);
}
