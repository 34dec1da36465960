/* The call of an operation as all ranks compare it: its words, its signature, its claim. (A claim
 * is what a rank brings to an agreement: comm/agreement.h.) */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bridge/bridge_types.h"
#include "comm/buffer_state.h"
#include "core/hash.h"

/* ------------------------------------- words -------------------------------------- */

void mimo_op_append(mimo_op *op, const char *format, ...)
{
    va_list arguments;
    size_t used = strlen(op->claim.words);
    if (!op->bridge->names_tensors)
        return;
    va_start(arguments, format);
    vsnprintf(op->claim.words + used, MIMO_CALL_TEXT - used, format, arguments);
    va_end(arguments);
}

static void begin_words(char call[MIMO_CALL_TEXT], const mimo_op *op, int n)
{
    snprintf(call, MIMO_CALL_TEXT, "%s %s of %d", op->bridge->title,
             op->call.backward ? "backward" : "forward", n);
}

/* The words of the operation's last call are kept where they are the same. To write them takes a
 * fifth of the time that the host spends on a call that only enqueues. */
void mimo_op_begin_words(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from, int n)
{
    const int64_t worded = 2 * (int64_t)n + op->call.backward;
    char first[64] = "", second[64] = "";
    if (!op->bridge->names_tensors && op->claim.words[0] && op->claim.worded == worded)
        return;
    op->claim.worded = worded;
    begin_words(op->claim.words, op, n);
    if (op->call.chunks > 1)
        mimo_op_append(op, " in %d chunks", op->call.chunks);
    if (to && from && n > 0 && op->bridge->names_tensors)
        mimo_op_append(op, ": %s from %s", mimo_tensor_text(&to[0], first, sizeof first),
                       mimo_tensor_text(&from[0], second, sizeof second));
}

/* ----------------------------------- signature ------------------------------------ */

void mimo_op_begin_signature(mimo_op *op, int n)
{
    op->claim.head = mimo_hash_int(op->bridge->id, MIMO_CALL_BRIDGE_MOVE);
    op->claim.head = mimo_hash_int(mimo_hash_int(op->claim.head, op->call.backward), n);
    op->claim.head = mimo_hash_int(op->claim.head, op->call.chunks);
    op->claim.signature = op->claim.head;
}

uint64_t mimo_target_sign(uint64_t hash, const mimo_buffer *buffer, int64_t offset)
{
    return mimo_hash_int(mimo_hash_int(hash, offset), buffer ? (int64_t)buffer->serial : 0);
}

static uint64_t hash_tensors(const void *context, int64_t k)
{
    const mimo_op *op = context;
    uint64_t hash = op->claim.head;
    for (int i = 0; i < k; i++) {
        int64_t offset = -1;
        const mimo_buffer *buffer =
            op->executor->target ? op->executor->target(&offset, op, i) : NULL;
        hash = mimo_target_sign(op->executor->sign(hash, &op->tensors.pairs[i]), buffer, offset);
    }
    return hash;
}

/* ------------------------------------- claim -------------------------------------- */

static void write_tensor(char call[MIMO_CALL_TEXT], const void *context, int64_t item)
{
    const mimo_op *op = context;
    const mimo_tile_pair *pair = &op->tensors.pairs[item];
    char to[MIMO_VIEW_TEXT], from[MIMO_VIEW_TEXT];
    int64_t offset = -1;
    int n = op->tensors.count - op->tensors.tagged;
    begin_words(call, op, n);
    if (op->call.chunks > 1)
        mimo_call_append(call, " in %d chunks", op->call.chunks);
    if (n > 1)
        mimo_call_append(call, ", tensor %" PRId64, item);
    mimo_tensor_text(op->call.backward ? &pair->src.view : &pair->dst.view, to, sizeof to);
    mimo_tensor_text(op->call.backward ? &pair->dst.view : &pair->src.view, from, sizeof from);
    mimo_call_append(call, ": %s from %s", to, from);
    const mimo_buffer *buffer =
        op->executor->target ? op->executor->target(&offset, op, (int)item) : NULL;
    if (buffer)
        mimo_call_append(call, " at byte %" PRId64 " of buffer %" PRIu64, offset, buffer->serial);
}

static mimo_call_items tensors_of(const mimo_op *op)
{
    int64_t count = op->claim.local == MIMO_OK ? op->tensors.count - op->tensors.tagged : 0;
    return (mimo_call_items){count, hash_tensors, write_tensor, op};
}

void mimo_op_keep_sentence(mimo_op *op)
{
    if (op->claim.local != MIMO_OK)
        snprintf(op->progress.sentence, sizeof op->progress.sentence, "%s", mimo_last_error());
}

/* Make its sentence the last error again: the agreement reads it there. */
static mimo_status recall_local(const mimo_op *op)
{
    return op->claim.local == MIMO_OK ? MIMO_OK
                                      : mimo_fail(op->claim.local, "%s", op->progress.sentence);
}

mimo_claim mimo_op_claim_of(const mimo_op *op)
{
    return (mimo_claim){.kind = op->claim.unsure ? MIMO_AGREE_CALL : MIMO_AGREE_DATA,
                        .local = recall_local(op),
                        .signature = op->claim.signature,
                        .call = op->claim.words,
                        .guess = op->claim.guess,
                        .items = tensors_of(op)};
}

/* Each bridge agrees on a communicator of its own. If one rank called bridge A and another bridge
 * B, each would wait for the other ranks of its own bridge. Over the parent the two calls meet, and
 * the ranks see that they differ. */
mimo_status mimo_bridge_compare_call(const mimo_bridge *bridge, const mimo_claim *claim)
{
    mimo_claim whole = *claim;
    whole.kind = MIMO_AGREE_ALWAYS;
    return mimo_agree_on(bridge->parent, &whole);
}
