/*
 * Where the rows of a prepared call lie: behind bases, which are the operation's staging and the
 * tiles of each tensor. So a call serves tensors at any addresses. Their keys say how the bases are
 * aligned, because that decides in which words a device moves rows.
 */
#include <limits.h>
#include <string.h>

#include "bridge/routed/call_places.h"
#include "bridge/routed/call_transport.h"
#include "core/checked.h"
#include "core/memory.h"
#include "core/mutation.h"

/* Take `copies` times `bytes` bytes of staging, behind the *used bytes that are taken. */
static mimo_status take(mimo_place *out, int64_t *used, int64_t copies, int64_t bytes)
{
    int64_t all, end;
    MIMO_TRY(mimo_mul(&all, copies, bytes));
    MIMO_TRY(mimo_add(&end, *used, all));
    MIMO_TRY(mimo_add(&end, end, MIMO_STAGING_ALIGNMENT - 1));
    *out = (mimo_place){MIMO_BASE_STAGING, *used};
    *used = end / MIMO_STAGING_ALIGNMENT * MIMO_STAGING_ALIGNMENT;
    return MIMO_OK;
}

static mimo_place place_at(const mimo_prepared_call *call, mimo_endpoint end, int i,
                           const mimo_place *shards)
{
    if (end == MIMO_AT_SHARDS)
        return *shards;
    if (call->fixed)
        return (mimo_place){MIMO_BASE_ANYWHERE, call->keys[i].tiles[end]};
    return (mimo_place){MIMO_BASE_TILES + 2 * i + (end == MIMO_AT_DST), 0};
}

/* Both ends of tensor i in each phase, and staging for the classes that are added to its target. */
static mimo_status set_tensor(const mimo_call_maker *maker, int i)
{
    mimo_prepared_call *call = maker->call;
    mimo_place shards = {0, 0};
    if (call->phase_count > 1)
        MIMO_TRY(take(&shards, &call->staging_bytes, 1, mimo_call_bytes(maker, MIMO_AT_SHARDS, i)));
    mimo_buffer *buffer = mimo_call_target(maker->op, i);
    for (int r = 0; r < call->phase_count; r++) {
        mimo_transfer *transfer = &call->phases[r].transfers[i];
        if (maker->ends[r].to != MIMO_AT_SHARDS)
            transfer->buffer = buffer;
        transfer->from = place_at(call, maker->ends[r].from, i, &shards);
        if (r > 0 && MIMO_MUTATED("part-for-sum"))
            transfer->from = call->phases[0].transfers[i].classes;
        transfer->to = place_at(call, maker->ends[r].to, i, &shards);
        MIMO_TRY(take(&transfer->classes, &call->staging_bytes, call->phases[r].classes - 1,
                      transfer->bytes));
    }
    return MIMO_OK;
}

static void set_keys(const mimo_call_maker *maker)
{
    mimo_prepared_call *call = maker->call;
    int64_t *alignments = call->bases.alignments;
    alignments[MIMO_BASE_STAGING] = MIMO_MOST_ALIGNMENT;
    if (call->fixed)
        alignments[MIMO_BASE_ANYWHERE] = MIMO_MOST_ALIGNMENT;
    for (int i = 0; i < call->count; i++) {
        call->keys[i] = mimo_call_key(maker->op, i, call->fixed);
        if (!call->fixed)
            memcpy(&alignments[MIMO_BASE_TILES + 2 * i], call->keys[i].tiles,
                   sizeof call->keys[i].tiles);
    }
}

mimo_status mimo_call_place(const mimo_call_maker *maker)
{
    mimo_prepared_call *call = maker->call;
    MIMO_TRY(mimo_reserve(&call->keys, call->count, sizeof *call->keys));
    set_keys(maker);
    for (int i = 0; i < call->count; i++)
        MIMO_TRY(set_tensor(maker, i));
    return MIMO_OK;
}

mimo_status mimo_call_reserve_bases(mimo_prepared_call *call, const mimo_comm_backend *backend)
{
    int most = backend->most_bases;
    MIMO_CHECK(call->count <= (INT_MAX - MIMO_BASE_TILES) / 2, MIMO_ERR_OVERFLOW,
               "%d tensors in one call", call->count);
    call->bases.count = MIMO_BASE_TILES + 2 * call->count;
    call->fixed = most > 0 && call->bases.count > most;
    if (call->fixed)
        call->bases.count = MIMO_BASE_ANYWHERE + 1;
    MIMO_TRY(
        mimo_reserve(&call->bases.alignments, call->bases.count, sizeof *call->bases.alignments));
    return mimo_reserve(&call->bases.at, call->bases.count, sizeof(char *));
}

void mimo_call_set_bases(const mimo_prepared_call *call, const mimo_op *op, char *staging)
{
    call->bases.at[MIMO_BASE_STAGING] = staging;
    for (int i = 0; i < call->count && !call->fixed; i++) {
        if (call->bases.at[MIMO_BASE_TILES + 2 * i] && MIMO_MUTATED("last-addresses"))
            continue;
        call->bases.at[MIMO_BASE_TILES + 2 * i] = op->tensors.pairs[i].src.view.data;
        call->bases.at[MIMO_BASE_TILES + 2 * i + 1] = op->tensors.pairs[i].dst.view.data;
    }
}
