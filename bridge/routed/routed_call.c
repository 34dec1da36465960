/* Which prepared call serves an operation of the routed executor: one of this split, for tensors of
 * these shapes, whose rows travel the same way. */
#include <string.h>

#include "bridge/routed/routed_call.h"
#include "bridge/routed/call_maker.h"
#include "bridge/routed/call_transport.h"
#include "core/check.h"
#include "core/hash.h"

enum { CALLS_KEPT = 128 }; /* 64 shapes, forward and backward */

/* ----------------------------------------- serving ------------------------------------------ */

static bool same_shape(const mimo_tile *a, const mimo_tile *b)
{
    return a->view.dtype == b->view.dtype && strcmp(a->view.letters, b->view.letters) == 0 &&
           a->batch == b->batch && a->seq == b->seq && a->row_bytes == b->row_bytes;
}

static bool same_tensors(const mimo_routed_call *call, const mimo_op *op)
{
    bool same = true;
    for (int i = 0; same && i < op->tensors.count; i++) {
        const mimo_tile_pair *a = &call->pairs[i], *b = &op->tensors.pairs[i];
        same = a->seq == b->seq && same_shape(&a->src, &b->src) && same_shape(&a->dst, &b->dst);
    }
    return same;
}

static bool serves(const mimo_prepared_call *kept, const mimo_op *op, const void *wanted)
{
    const mimo_batch_split *split = wanted;
    const mimo_routed_call *call = (const mimo_routed_call *)kept;
    return call->guarded == op->call.guarded && call->chunks == op->call.chunks &&
           call->pushes == mimo_call_pushes(op) && call->fifos == mimo_call_fifos(op) &&
           call->split == split->hash && same_tensors(call, op);
}

/* ----------------------------------------- binding ------------------------------------------ */

/* What must be the same on ranks that push to each other: the operation and the batch split. */
static uint64_t sign_call(const mimo_op *op)
{
    return mimo_hash_int(op->claim.signature, (int64_t)mimo_routed_call_of(op)->split);
}

static mimo_status bind(mimo_prepared_call *kept, const mimo_op *op)
{
    mimo_routed_call *call = (mimo_routed_call *)kept;
    for (int r = 0; r < call->phase_count; r++)
        MIMO_TRY(mimo_phase_bind(&call->phases[r], op->mover->comm, &kept->bases,
                                 mimo_hash_int(sign_call(op), r)));
    return MIMO_OK;
}

/* ---------------------------------------- operations ---------------------------------------- */

static const mimo_prepared_kind kind = {.bytes = sizeof(mimo_routed_call),
                                        .kept = CALLS_KEPT,
                                        .target = mimo_call_target,
                                        .serves = serves,
                                        .fill = mimo_call_fill,
                                        .empty = mimo_call_empty,
                                        .bind = bind};

mimo_status mimo_routed_call_get(mimo_op *op, const mimo_batch_split *split)
{
    mimo_prepared_call *call;
    mimo_bridge_batch *batch = mimo_bridge_batch_of(op);
    mimo_recent *idle = &mimo_routed_batch_of(batch)->prepared;
    MIMO_TRY(mimo_prepared_call_get(&call, idle, &kind, op, split));
    mimo_routed_op_of(op)->prepared = (mimo_routed_call *)call;
    mimo_batch_splits_find(&batch->splits, split->hash)->users++;
    return mimo_prepared_call_bind(call, op);
}

void mimo_routed_call_put_back(mimo_op *op)
{
    mimo_bridge_batch *batch = mimo_bridge_batch_of(op);
    mimo_routed_call *call = mimo_routed_call_of(op);
    mimo_routed_op_of(op)->prepared = NULL;
    if (!call)
        return;
    mimo_batch_splits_find(&batch->splits, call->split)->users--;
    mimo_prepared_call_put_back(&call->common, &mimo_routed_batch_of(batch)->prepared, op);
}
