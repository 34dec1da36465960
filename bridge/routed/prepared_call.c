/* Prepared calls are kept for operations with tensors like theirs: which one serves an operation,
 * and for how long it stays. */
#include <string.h>

#include "bridge/routed/prepared_call.h"
#include "bridge/routed/call_maker.h"
#include "bridge/routed/call_places.h"
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

static bool same_key(const mimo_prepared_call *call, const mimo_op *op, int i)
{
    const mimo_address_key wanted = mimo_call_key(op, i, call->fixed);
    return mimo_address_key_equals(&call->keys[i], &wanted);
}

/* What a kept call must serve. */
typedef struct wanted_call {
    const mimo_op *op;
    uint64_t split;
} wanted_call;

static bool same_call(const mimo_prepared_call *call, const mimo_op *op, uint64_t split)
{
    return call->backward == op->call.backward && call->guarded == op->call.guarded &&
           call->chunks == op->call.chunks && call->pushes == mimo_call_pushes(op) &&
           call->fifos == mimo_call_fifos(op) && call->split == split &&
           call->count == op->tensors.count;
}

static bool same_tensors(const mimo_prepared_call *call, const mimo_op *op)
{
    bool same = true;
    for (int i = 0; same && i < op->tensors.count; i++) {
        const mimo_tile_pair *a = &call->pairs[i], *b = &op->tensors.pairs[i];
        same = a->seq == b->seq && same_shape(&a->src, &b->src) && same_shape(&a->dst, &b->dst) &&
               same_key(call, op, i);
    }
    return same;
}

/* Whether a kept call does what the operation asks. */
static bool serves(const mimo_recent_entry *entry, const void *context)
{
    const wanted_call *wanted = context;
    const mimo_prepared_call *call = (const mimo_prepared_call *)entry;
    return !call->failed && same_call(call, wanted->op, wanted->split) &&
           same_tensors(call, wanted->op);
}

/* What must be the same on ranks that push to each other: the operation and the batch split. */
static uint64_t sign_call(const mimo_op *op)
{
    return mimo_hash_int(op->claim.signature, (int64_t)mimo_prepared_of(op)->split);
}

/* Have the operation's call move these tensors, through the staging of this operation. */
static mimo_status bind_call(const mimo_op *op, char *staging)
{
    mimo_prepared_call *call = mimo_prepared_of(op);
    mimo_call_set_bases(call, op, staging);
    for (int r = 0; r < call->phase_count; r++)
        MIMO_TRY(mimo_phase_bind(&call->phases[r], op->mover->comm, &call->bases,
                                 mimo_hash_int(sign_call(op), r)));
    return MIMO_OK;
}

/* ----------------------------------------- keeping ------------------------------------------ */

/* A capture can make no call, so one that it may need stays. */
static bool is_needed(const mimo_recent_entry *entry)
{
    const mimo_prepared_call *call = (const mimo_prepared_call *)entry;
    return call->recorded || call->asked;
}

static void release_entry(mimo_recent_entry *entry, void *bridge)
{
    mimo_call_destroy(bridge, (mimo_prepared_call *)entry);
}

static const mimo_recent_kind call_kind = {is_needed, release_entry};

mimo_status mimo_prepared_call_get(mimo_op *op, const mimo_batch_split *split)
{
    mimo_bridge_batch *batch = mimo_bridge_batch_of(op);
    mimo_routed_batch *own = mimo_routed_batch_of(batch);
    const wanted_call wanted = {op, split->hash};
    mimo_prepared_call **call = &mimo_routed_op_of(op)->prepared;
    void *staging;
    *call = (mimo_prepared_call *)mimo_recent_take(&own->prepared, serves, &wanted);
    if (!*call)
        MIMO_TRY(mimo_call_make(call, op, split));
    mimo_batch_splits_find(&batch->splits, split->hash)->users++;
    MIMO_TRY(mimo_op_get_staging(&staging, op, MIMO_STAGING_CONTRIBUTIONS, (*call)->staging_bytes));
    return bind_call(op, staging);
}

void mimo_prepared_call_put_back(mimo_op *op)
{
    mimo_bridge_batch *batch = mimo_bridge_batch_of(op);
    mimo_routed_batch *own = mimo_routed_batch_of(batch);
    mimo_prepared_call *call = mimo_prepared_of(op);
    mimo_routed_op_of(op)->prepared = NULL;
    if (!call)
        return;
    mimo_batch_splits_find(&batch->splits, call->split)->users--;
    call->failed = op->progress.status != MIMO_OK; /* it may have been in flight */
    if (call->failed && !call->recorded) {
        mimo_call_destroy(mimo_bridge_of(op), call);
        return;
    }
    call->asked = call->asked || op->call.prepares;
    mimo_recent_put(&own->prepared, &call->entry);
    mimo_recent_trim(&own->prepared, CALLS_KEPT, &call_kind, mimo_bridge_of(op));
}

void mimo_prepared_calls_release(mimo_bridge *bridge, mimo_recent *prepared)
{
    mimo_recent_clear(prepared, &call_kind, bridge);
}
