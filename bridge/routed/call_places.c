/* Where the rows of a prepared call lie: behind bases, which are the operation's staging and the
 * tiles of each tensor (move/prepared_call.h). */
#include "bridge/routed/call_places.h"
#include "bridge/routed/call_transport.h"
#include "core/check.h"
#include "core/mutation.h"

/* Take `copies` times `bytes` bytes of staging. */
static mimo_status take(mimo_place *out, mimo_prepared_call *call, int64_t copies, int64_t bytes)
{
    out->base = MIMO_BASE_STAGING;
    return mimo_prepared_call_stage(&out->offset, call, copies, bytes);
}

static mimo_place place_at(const mimo_prepared_call *call, mimo_endpoint end, int i,
                           const mimo_place *shards)
{
    if (end == MIMO_AT_SHARDS)
        return *shards;
    if (call->fixed)
        return (mimo_place){MIMO_BASE_ANYWHERE, call->keys[i].tiles[end]};
    return (mimo_place){mimo_base_of_tile(i, end == MIMO_AT_DST ? MIMO_DST : MIMO_SRC), 0};
}

/* Both ends of tensor i in each phase, and staging for the classes that are added to its target. */
static mimo_status set_tensor(const mimo_call_maker *maker, int i)
{
    mimo_routed_call *call = maker->call;
    mimo_place shards = {0, 0};
    if (call->phase_count > 1)
        MIMO_TRY(take(&shards, &call->common, 1, mimo_call_bytes(maker, MIMO_AT_SHARDS, i)));
    mimo_buffer *buffer = mimo_call_target(maker->op, i);
    for (int r = 0; r < call->phase_count; r++) {
        mimo_transfer *transfer = &call->phases[r].transfers[i];
        if (maker->ends[r].to != MIMO_AT_SHARDS)
            transfer->buffer = buffer;
        transfer->from = place_at(&call->common, maker->ends[r].from, i, &shards);
        if (r > 0 && MIMO_MUTATED("part-for-sum"))
            transfer->from = call->phases[0].transfers[i].classes;
        transfer->to = place_at(&call->common, maker->ends[r].to, i, &shards);
        MIMO_TRY(
            take(&transfer->classes, &call->common, call->phases[r].classes - 1, transfer->bytes));
    }
    return MIMO_OK;
}

mimo_status mimo_call_place(const mimo_call_maker *maker)
{
    for (int i = 0; i < maker->call->common.count; i++)
        MIMO_TRY(set_tensor(maker, i));
    return MIMO_OK;
}
