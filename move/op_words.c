/* The call of an operation in words, for sentences. */
#include <inttypes.h>
#include <stdio.h>

#include "comm/buffer_state.h"
#include "move/op_types.h"

void mimo_op_append(mimo_op *op, const char *format, ...)
{
    va_list arguments;
    if (!op->mover->names_tensors)
        return;
    va_start(arguments, format);
    mimo_call_append_list(op->claim.words, format, arguments);
    va_end(arguments);
}

static void begin_words(char call[MIMO_CALL_TEXT], const mimo_op *op, int n)
{
    const mimo_mover *mover = op->mover;
    snprintf(call, MIMO_CALL_TEXT, "%s %s%s of %d", mover->title,
             op->call.prepares ? "prepare of " : "", mover->hooks->pass[op->call.backward], n);
    mover->hooks->describe(call, op);
}

/* The words of the operation's last call are kept where they are the same. To write them takes a
 * fifth of the time that the host spends on a call that only enqueues. */
void mimo_op_begin_words(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from, int n)
{
    char first[64] = "", second[64] = "";
    bool names = op->mover->names_tensors;
    if (!names && op->claim.words[0] && op->claim.worded == op->claim.head)
        return;
    op->claim.worded = op->claim.head;
    begin_words(op->claim.words, op, n);
    if (op->call.chunks > 1)
        mimo_op_append(op, " in %d chunks", op->call.chunks);
    if (to && from && n > 0 && names)
        mimo_op_append(op, ": %s from %s", mimo_tensor_text(first, sizeof first, &to[0]),
                       mimo_tensor_text(second, sizeof second, &from[0]));
}

void mimo_op_write_tensor(char call[MIMO_CALL_TEXT], const void *context, int64_t tensor)
{
    const mimo_op *op = context;
    const mimo_tile_pair *pair = &op->tensors.pairs[tensor];
    char to[MIMO_VIEW_TEXT], from[MIMO_VIEW_TEXT];
    int64_t offset;
    begin_words(call, op, op->tensors.given);
    if (op->call.chunks > 1)
        mimo_call_append(call, " in %d chunks", op->call.chunks);
    if (op->tensors.given > 1)
        mimo_call_append(call, ", tensor %" PRId64, tensor);
    mimo_tensor_text(to, sizeof to, &mimo_tile_of(pair, mimo_op_to(op))->view);
    mimo_tensor_text(from, sizeof from, &mimo_tile_of(pair, mimo_op_from(op))->view);
    mimo_call_append(call, ": %s from %s", to, from);
    const mimo_buffer *buffer = op->mover->hooks->target(&offset, op, (int)tensor);
    if (buffer)
        mimo_call_append(call, " at byte %" PRId64 " of buffer %" PRIu64, offset, buffer->serial);
}
