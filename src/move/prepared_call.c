/* Prepared calls: which one serves an operation, where its tensors lie, how long it stays. */
#include "move/prepared_call.h"

#include <limits.h>
#include <string.h>

#include "core/check.h"
#include "core/checked.h"
#include "core/memory.h"
#include "core/mutation.h"

/* ------------------------------------------ keys -------------------------------------------- */

static mimo_address_key key_of(const mimo_prepared_kind *kind, const mimo_op *op, int i, bool exact)
{
    static const mimo_address_key staged = {0, {MIMO_LEAST_ALIGNMENT, MIMO_LEAST_ALIGNMENT}};
    const mimo_buffer *buffer = kind->target(op, i);
    if (kind->staged && !buffer)
        return staged;
    return mimo_address_key_of(&op->tensors.pairs[i], mimo_op_to(op), buffer, exact);
}

static mimo_status set_keys(mimo_prepared_call *call, const mimo_op *op)
{
    MIMO_TRY(mimo_reserve(&call->keys, call->count, sizeof *call->keys));
    for (int i = 0; i < call->count; i++)
        call->keys[i] = key_of(call->kind, op, i, call->fixed);
    return MIMO_OK;
}

static bool same_keys(const mimo_prepared_call *call, const mimo_op *op)
{
    bool same = true;
    for (int i = 0; same && i < call->count; i++) {
        const mimo_address_key wanted = key_of(call->kind, op, i, call->fixed);
        same = mimo_address_key_equals(&call->keys[i], &wanted);
    }
    return same;
}

/* ------------------------------------------ bases ------------------------------------------- */

/* Where no tile is a base, other tensors change nothing: requests stay as they are. */
static bool has_tiles(const mimo_prepared_call *call)
{
    return call->bases.count > MIMO_BASE_TILES && !call->fixed;
}

static bool needs_tiles(const mimo_prepared_call *call)
{
    bool needs = !call->kind->staged;
    for (int i = 0; !needs && i < call->count; i++)
        needs = call->keys[i].buffer != 0;
    return needs;
}

static void set_alignments(const mimo_prepared_call *call)
{
    int64_t *alignments = call->bases.alignments;
    alignments[MIMO_BASE_STAGING] = MIMO_MOST_ALIGNMENT;
    if (call->fixed)
        alignments[MIMO_BASE_ANYWHERE] = MIMO_MOST_ALIGNMENT;
    for (int i = 0; i < call->count && has_tiles(call); i++)
        memcpy(&alignments[mimo_base_of_tile(i, MIMO_SRC)], call->keys[i].tiles,
               sizeof call->keys[i].tiles);
}

static mimo_status place_tensors(mimo_prepared_call *call, const mimo_op *op)
{
    mimo_bases *bases = &call->bases;
    int most = op->mover->comm->backend->most_bases;
    MIMO_CHECK(call->count <= (INT_MAX - MIMO_BASE_TILES) / 2, MIMO_ERR_OVERFLOW,
               "%d tensors in one call", call->count);
    int tiles = 2 * call->count;
    call->fixed = most > 0 && !call->kind->staged && MIMO_BASE_TILES + tiles > most;
    MIMO_TRY(set_keys(call, op));
    bases->count = MIMO_BASE_TILES + (call->fixed ? 1 : needs_tiles(call) ? tiles : 0);
    MIMO_TRY(mimo_reserve(&bases->alignments, bases->count, sizeof *bases->alignments));
    MIMO_TRY(mimo_reserve(&bases->at, bases->count, sizeof *bases->at));
    set_alignments(call);
    return MIMO_OK;
}

static void set_bases(const mimo_prepared_call *call, const mimo_op *op, char *staging)
{
    char **at = call->bases.at;
    const int tiles = has_tiles(call) ? call->count : 0;
    at[MIMO_BASE_STAGING] = staging;
    for (int i = 0; i < tiles; i++) {
        const mimo_tile_pair *pair = &op->tensors.pairs[i];
        if (at[mimo_base_of_tile(i, MIMO_SRC)] && MIMO_MUTATED("last-addresses"))
            continue;
        at[mimo_base_of_tile(i, MIMO_SRC)] = pair->src.view.data;
        at[mimo_base_of_tile(i, MIMO_DST)] = pair->dst.view.data;
    }
}

mimo_status mimo_prepared_call_stage(int64_t *offset, mimo_prepared_call *call, int64_t copies,
                                     int64_t bytes)
{
    int64_t all, end;
    MIMO_TRY(mimo_mul(&all, copies, bytes));
    MIMO_TRY(mimo_add(&end, call->staging_bytes, all));
    MIMO_TRY(mimo_add(&end, end, MIMO_STAGING_ALIGNMENT - 1));
    *offset = call->staging_bytes;
    call->staging_bytes = end / MIMO_STAGING_ALIGNMENT * MIMO_STAGING_ALIGNMENT;
    return MIMO_OK;
}

/* --------------------------------------- making one ----------------------------------------- */

static void destroy(mimo_prepared_call *call, mimo_comm *comm)
{
    call->kind->empty(call, comm);
    mimo_release(call->keys);
    mimo_release(call->bases.at);
    mimo_release(call->bases.alignments);
    mimo_release(call);
}

static mimo_status make(mimo_prepared_call **out, const mimo_prepared_kind *kind, mimo_op *op,
                        const void *wanted)
{
    mimo_prepared_call *call;
    MIMO_TRY(mimo_reserve(&call, 1, kind->bytes));
    call->kind = kind;
    call->backward = op->call.backward;
    call->count = op->tensors.count;
    mimo_status status = place_tensors(call, op);
    if (status == MIMO_OK)
        status = kind->fill(call, op, wanted);
    if (status == MIMO_OK)
        *out = call;
    else
        destroy(call, op->mover->comm);
    return status;
}

/* ----------------------------------------- serving ------------------------------------------ */

/* What a kept call must serve. */
typedef struct wanted_call {
    const mimo_op *op;
    const void *wanted;
} wanted_call;

static bool serves(const mimo_recent_entry *entry, const void *context)
{
    const wanted_call *it = context;
    const mimo_prepared_call *call = (const mimo_prepared_call *)entry;
    return !call->failed && call->backward == it->op->call.backward &&
           call->count == it->op->tensors.count && call->kind->serves(call, it->op, it->wanted) &&
           same_keys(call, it->op);
}

mimo_status mimo_prepared_call_get(mimo_prepared_call **out, mimo_recent *idle,
                                   const mimo_prepared_kind *kind, mimo_op *op, const void *wanted)
{
    const wanted_call it = {op, wanted};
    *out = (mimo_prepared_call *)mimo_recent_take(idle, serves, &it);
    return *out ? MIMO_OK : make(out, kind, op, wanted);
}

mimo_status mimo_prepared_call_bind(mimo_prepared_call *call, mimo_op *op)
{
    void *staging;
    MIMO_TRY(mimo_op_get_staging(&staging, op, MIMO_STAGING_CONTRIBUTIONS, call->staging_bytes));
    set_bases(call, op, staging);
    return call->kind->bind(call, op);
}

/* ----------------------------------------- keeping ------------------------------------------ */

/* A capture can make no call, so one that it may need stays. */
static bool is_needed(const mimo_recent_entry *entry)
{
    const mimo_prepared_call *call = (const mimo_prepared_call *)entry;
    return call->recorded || call->asked;
}

static void release_entry(mimo_recent_entry *entry, void *comm)
{
    destroy((mimo_prepared_call *)entry, comm);
}

static const mimo_recent_kind recent_kind = {is_needed, release_entry};

void mimo_prepared_call_put_back(mimo_prepared_call *call, mimo_recent *idle, const mimo_op *op)
{
    mimo_comm *comm = op->mover->comm;
    call->failed = op->progress.status != MIMO_OK; /* it may have been in flight */
    if (call->failed && !call->recorded) {
        destroy(call, comm);
        return;
    }
    call->asked = call->asked || op->call.prepares;
    mimo_recent_put(idle, &call->entry);
    mimo_recent_trim(idle, call->kind->kept, &recent_kind, comm);
}

void mimo_prepared_calls_release(mimo_recent *idle, mimo_comm *comm)
{
    mimo_recent_clear(idle, &recent_kind, comm);
}
