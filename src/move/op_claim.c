/* What this rank brings to the agreement of all ranks on an operation (a claim: comm/agreement.h):
 * its signature, its status, its words. */
#include <stdio.h>

#include "comm/buffer_state.h"
#include "core/hash.h"
#include "core/letters.h"
#include "move/op_types.h"

/* ----------------------------------- signature ------------------------------------ */

void mimo_op_begin_signature(mimo_op *op)
{
    op->claim.head = mimo_hash_int(op->mover->id, op->call.kind);
    op->claim.head = mimo_hash_int(mimo_hash_int(op->claim.head, op->call.backward), op->call.n);
    op->claim.head = mimo_hash_int(op->claim.head, op->call.chunks);
    op->claim.head = mimo_hash_int(op->claim.head, op->call.prepares);
    op->claim.head = op->mover->hooks->sign_call(op->claim.head, op);
    op->claim.signature = op->claim.head;
}

uint64_t mimo_target_sign(uint64_t hash, const mimo_buffer *buffer, int64_t offset)
{
    return mimo_hash_int(mimo_hash_int(hash, offset), buffer ? (int64_t)buffer->serial : 0);
}

static uint64_t hash_tensors(const void *context, int64_t k)
{
    const mimo_op *op = context;
    const mimo_mover_hooks *hooks = op->mover->hooks;
    uint64_t hash = op->claim.head;
    for (int i = 0; i < k; i++) {
        int64_t offset;
        const mimo_buffer *buffer = hooks->target(&offset, op, i);
        hash = mimo_target_sign(hooks->sign(hash, op, i), buffer, offset);
    }
    return hash;
}

/* ------------------------------------- claim -------------------------------------- */

static mimo_call_items tensors_of(const mimo_op *op)
{
    int64_t count = op->claim.local == MIMO_OK ? op->call.n : 0;
    return (mimo_call_items){count, hash_tensors, mimo_op_describe, op};
}

void mimo_op_keep_local(mimo_op *op, mimo_status local)
{
    op->claim.local = mimo_mover_prefix_error(op->mover, local);
    if (local != MIMO_OK)
        mimo_copy_text(op->progress.sentence, sizeof op->progress.sentence, mimo_last_error());
}

/* Make its sentence the last error again: the agreement reads it there. */
static mimo_status recall_local(const mimo_op *op)
{
    return op->claim.local == MIMO_OK ? MIMO_OK
                                      : mimo_fail(op->claim.local, "%s", op->progress.sentence);
}

/* A prepare creates something, and its host waits anyway. */
static mimo_agree_kind kind_of(const mimo_op *op)
{
    if (op->call.prepares)
        return MIMO_AGREE_CREATE;
    return op->claim.unsure ? MIMO_AGREE_CALL : MIMO_AGREE_DATA;
}

mimo_claim mimo_op_claim_of(const mimo_op *op)
{
    return (mimo_claim){.kind = kind_of(op),
                        .local = recall_local(op),
                        .signature = op->claim.signature,
                        .guess = op->claim.guess,
                        .items = tensors_of(op)};
}

/* Each object agrees on a communicator of its own. If one rank called bridge A and another bridge
 * B, each would wait for the other ranks of its own bridge. Over the parent the two calls meet, and
 * the ranks see that they differ. */
mimo_status mimo_mover_compare_call(const mimo_mover *mover, const mimo_claim *claim)
{
    char call[MIMO_CALL_TEXT];
    mimo_claim whole = *claim;
    if (!whole.call) {
        whole.items.describe(call, whole.items.context, -1);
        whole.call = call;
    }
    whole.kind = MIMO_AGREE_ALWAYS;
    return mimo_agree_on(mover->parent, &whole);
}
