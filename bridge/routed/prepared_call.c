/*
 * Prepared calls: an operation made ready for its tensors, in one phase or two.
 *
 * Rows are placed behind bases: the operation's staging, and the tiles of each tensor. So a call
 * serves tensors at any addresses. The alignment of a tile is part of what it serves, because it
 * decides in which words a device moves rows.
 *
 * One phase moves rows from where they are to where they are read. Where the dst cp ranks hold
 * contributions and many src ranks read the sum, one phase would send all contributions to each of
 * these. Then there are two: the first brings the contributions of each row to one rank, as if a
 * partition cut the dst tiles; the second moves the sums from there.
 */
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "bridge/routed/routed_types.h"
#include "core/checked.h"
#include "core/dtype_kind.h"
#include "core/hash.h"
#include "core/memory.h"
#include "core/mutation.h"

enum { CALLS_KEPT = 128 }; /* 64 shapes, forward and backward */

/* The numbers of the bases. The src tile of tensor i is TILES + 2 i, its dst tile the next one. In
 * a fixed call ANYWHERE is NULL, so that what lies behind it is an address. */
enum { STAGING, TILES, ANYWHERE = TILES };

/* ------------------------------------------ phases ------------------------------------------ */

/* A call in making. */
typedef struct call_maker {
    mimo_op *op;
    const mimo_batch_split *split;
    mimo_prepared_call *call;
    mimo_route routes[MIMO_PHASES]; /* of each phase */
} call_maker;

/* The tile of an endpoint. Shards look like the dst tile that they are cut from. */
static const mimo_tile *tile_at(const mimo_prepared_call *call, mimo_endpoint end, int i)
{
    return end == MIMO_AT_SRC ? &call->pairs[i].src : &call->pairs[i].dst;
}

static int64_t bytes_at(const call_maker *maker, mimo_endpoint end, int i)
{
    return mimo_routed_bytes_at(mimo_routed_of(mimo_bridge_of(maker->op)), end,
                                tile_at(maker->call, end, i));
}

static mimo_status get_plan(mimo_transfer *transfer, const call_maker *maker,
                            const mimo_route *route, int i)
{
    const mimo_batch_split *split = maker->split;
    const int64_t *src = split->samples[MIMO_SRC], *dst = split->samples[MIMO_DST];
    const mimo_plan_key key = {.route = *route,
                               .order = {mimo_tile_order(tile_at(maker->call, route->from, i)),
                                         mimo_tile_order(tile_at(maker->call, route->to, i))},
                               .batch = split->batch,
                               .seq = maker->call->pairs[i].seq,
                               .split = split->hash,
                               .samples = {src, dst, dst}};
    return mimo_plan_cache_get(&transfer->plan, mimo_routed_batch_of(maker->op)->plans, &key);
}

/*
 * Whether two phases of a backward are possible, and move less than one.
 *
 * Claim: yes, where src dp < (cp - 1) * dst dp.
 * Why: let b = B / dp be the samples of a rank on a side. The busiest rank receives, in samples,
 *
 *     one phase     b_src * (cp - 1)
 *     two phases    (b_src + b_dst) * (cp - 1) / cp
 *
 * Where src dp < dst dp, a rank holds b_dst of the b_src samples that it reads, so it receives
 * b_src - b_dst samples more in one phase, and (b_src - b_dst) / cp more in two. Either way two
 * phases move less where b_dst < (cp - 1) * b_src, which is the claim.
 */
bool mimo_routed_two_phases(const mimo_bridge *bridge, const mimo_routed_batch *batch, int64_t seq)
{
    const mimo_routed *own = mimo_routed_of(bridge);
    int64_t src_dp = mimo_grid_dim_size(bridge->src, "dp");
    int64_t dst_dp = mimo_grid_dim_size(bridge->dst, "dp");
    bool possible = !batch->ragged && own->shards > 1 && seq % (2 * own->shards) == 0;
    return possible && src_dp < (own->shards - 1) * dst_dp;
}

static void set_routes(call_maker *maker)
{
    const mimo_op *op = maker->op;
    maker->call->phase_count = 1;
    maker->routes[0] = (mimo_route){(mimo_endpoint)mimo_op_from(op), (mimo_endpoint)mimo_op_to(op)};
    if (op->call.backward && mimo_routed_two_phases(mimo_bridge_of(op), mimo_routed_batch_of(op),
                                                    op->tensors.pairs[0].seq)) {
        maker->call->phase_count = 2;
        maker->routes[0].to = MIMO_AT_SHARDS;
        maker->routes[1] = (mimo_route){MIMO_AT_SHARDS, MIMO_AT_SRC};
    }
}

static mimo_status plan_phase(const call_maker *maker, int r)
{
    char call[MIMO_CALL_TEXT];
    mimo_phase *phase = &maker->call->phases[r];
    int count = maker->call->count;
    MIMO_TRY(mimo_reserve(&phase->transfers, count, sizeof *phase->transfers));
    phase->count = count;
    phase->chunk_count = maker->call->chunks;
    phase->guarded = maker->call->guarded;
    for (int i = 0; i < count; i++) {
        const mimo_tile *to = tile_at(maker->call, maker->routes[r].to, i);
        mimo_transfer *transfer = &phase->transfers[i];
        MIMO_TRY(get_plan(transfer, maker, &maker->routes[r], i));
        phase->classes = mimo_plan_classes(transfer->plan);
        transfer->row_bytes = to->row_bytes;
        transfer->bytes = bytes_at(maker, maker->routes[r].to, i);
        transfer->dtype = to->view.dtype;
        MIMO_CHECK(phase->classes == 1 || mimo_dtype_can_add(transfer->dtype), MIMO_ERR_UNSUPPORTED,
                   "%s: %s can be moved, not summed over %" PRId64 " contributions",
                   mimo_op_text(call, maker->op), mimo_dtype_name(transfer->dtype), phase->classes);
        if (phase->classes > 1)
            MIMO_TRY(mimo_tile_check_addresses(&maker->call->pairs[i].src.view,
                                               &maker->call->pairs[i].dst.view));
    }
    return MIMO_OK;
}

/* ----------------------------------------- staging ------------------------------------------ */

/* Take `copies` times `bytes` bytes of staging, behind the *used bytes that are taken. */
static mimo_status take(mimo_place *out, int64_t *used, int64_t copies, int64_t bytes)
{
    int64_t all, end;
    MIMO_TRY(mimo_mul(&all, copies, bytes));
    MIMO_TRY(mimo_add(&end, *used, all));
    MIMO_TRY(mimo_add(&end, end, MIMO_STAGING_ALIGNMENT - 1));
    *out = (mimo_place){STAGING, *used};
    *used = end / MIMO_STAGING_ALIGNMENT * MIMO_STAGING_ALIGNMENT;
    return MIMO_OK;
}

static mimo_place place_at(const mimo_prepared_call *call, mimo_endpoint end, int i,
                           const mimo_place *shards)
{
    if (end == MIMO_AT_SHARDS)
        return *shards;
    if (call->fixed)
        return (mimo_place){ANYWHERE, (intptr_t)tile_at(call, end, i)->view.data};
    return (mimo_place){TILES + 2 * i + (end == MIMO_AT_DST), 0};
}

static bool pushes(const mimo_op *op)
{
    const mimo_bridge *bridge = mimo_bridge_of(op);
    return mimo_routed_of(bridge)->can_push &&
           mimo_executor_pushes(bridge->executor[op->call.backward]);
}

/* What the messages of an operation are staged through; NULL: they are not. */
static mimo_buffer *fifos_of(const mimo_op *op)
{
    const mimo_bridge *bridge = mimo_bridge_of(op);
    return mimo_executor_stages(bridge->executor[op->call.backward]) ? mimo_fifos_of(&bridge->fifos)
                                                                     : NULL;
}

mimo_buffer *mimo_pushed_buffer(const mimo_op *op, const mimo_tile *tile)
{
    if (!pushes(op))
        return NULL;
    return mimo_buffer_holding(op->mover->parent, tile->view.data, mimo_tile_bytes(tile));
}

/* The buffer that tensor i of an operation is pushed into. */
static mimo_buffer *target_buffer(const mimo_op *op, int i)
{
    return mimo_pushed_buffer(op, mimo_tile_of(&op->tensors.pairs[i], mimo_op_to(op)));
}

/* A buffer made anew may take the place of one that ended, in memory of this rank and not of its
 * peers. So a call remembers the serial. */
static uint64_t serial_of(const mimo_buffer *buffer)
{
    return buffer ? buffer->serial : 0;
}

/* Both ends of tensor i in each phase, and staging for the classes that are added to its target. */
static mimo_status set_tensor(const call_maker *maker, int i)
{
    mimo_prepared_call *call = maker->call;
    mimo_place shards = {0, 0};
    if (call->phase_count > 1)
        MIMO_TRY(take(&shards, &call->staging_bytes, 1, bytes_at(maker, MIMO_AT_SHARDS, i)));
    mimo_buffer *buffer = target_buffer(maker->op, i);
    call->buffers[i] = serial_of(buffer);
    for (int r = 0; r < call->phase_count; r++) {
        mimo_transfer *transfer = &call->phases[r].transfers[i];
        if (maker->routes[r].to != MIMO_AT_SHARDS)
            transfer->buffer = buffer;
        transfer->from = place_at(call, maker->routes[r].from, i, &shards);
        if (r > 0 && MIMO_MUTATED("part-for-sum"))
            transfer->from = call->phases[0].transfers[i].classes;
        transfer->to = place_at(call, maker->routes[r].to, i, &shards);
        MIMO_TRY(take(&transfer->classes, &call->staging_bytes, call->phases[r].classes - 1,
                      transfer->bytes));
    }
    return MIMO_OK;
}

static mimo_status set_tensors(const call_maker *maker)
{
    mimo_prepared_call *call = maker->call;
    MIMO_TRY(mimo_reserve(&call->buffers, call->count, sizeof *call->buffers));
    for (int i = 0; i < call->count; i++)
        MIMO_TRY(set_tensor(maker, i));
    return MIMO_OK;
}

/* ------------------------------------------ bases ------------------------------------------- */

static mimo_status reserve_bases(mimo_prepared_call *call, const mimo_comm_backend *backend)
{
    int most = backend->most_bases;
    MIMO_CHECK(call->count <= (INT_MAX - TILES) / 2, MIMO_ERR_OVERFLOW, "%d tensors in one call",
               call->count);
    call->bases.count = TILES + 2 * call->count;
    call->fixed = most > 0 && call->bases.count > most;
    if (call->fixed)
        call->bases.count = ANYWHERE + 1;
    return mimo_reserve(&call->bases.at, call->bases.count, sizeof(char *));
}

static void set_bases(const mimo_prepared_call *call, const mimo_op *op, char *staging)
{
    call->bases.at[STAGING] = staging;
    for (int i = 0; i < call->count && !call->fixed; i++) {
        if (call->bases.at[TILES + 2 * i] && MIMO_MUTATED("last-addresses"))
            continue;
        call->bases.at[TILES + 2 * i] = op->tensors.pairs[i].src.view.data;
        call->bases.at[TILES + 2 * i + 1] = op->tensors.pairs[i].dst.view.data;
    }
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
    set_bases(call, op, staging);
    for (int r = 0; r < call->phase_count; r++)
        MIMO_TRY(mimo_phase_bind(&call->phases[r], op->mover->comm, &call->bases,
                                 mimo_hash_int(sign_call(op), r)));
    return MIMO_OK;
}

/* ------------------------------------------ making ------------------------------------------ */

static void destroy_call(mimo_bridge *bridge, mimo_prepared_call *call)
{
    if (!call)
        return;
    for (int r = 0; r < MIMO_PHASES; r++)
        mimo_phase_release(&call->phases[r], bridge->mover.comm);
    mimo_release(call->pairs);
    mimo_release(call->buffers);
    mimo_release(call->bases.at);
    mimo_release(call);
}

/* The tiles that are written in the end: chunks have their samples. */
static mimo_status target_layout(mimo_layout **out, const call_maker *maker)
{
    mimo_side side = mimo_op_to(maker->op);
    mimo_layout_desc desc = mimo_routed_batch_of(maker->op)->layouts[side];
    desc.batch = maker->split->batch;
    desc.samples = maker->split->samples[side];
    desc.seq = maker->call->pairs[0].seq;
    return mimo_layout_create(out, &desc);
}

static mimo_status compile_phases(const call_maker *maker)
{
    mimo_prepared_call *call = maker->call;
    mimo_bridge *bridge = mimo_bridge_of(maker->op);
    const mimo_phase_context context = {bridge->mover.comm, &mimo_routed_of(bridge)->push_rule,
                                        call->fifos, &call->bases};
    mimo_layout *tiles = NULL;
    mimo_status status = call->chunks > 1 ? target_layout(&tiles, maker) : MIMO_OK;
    for (int r = 0; r < call->phase_count && status == MIMO_OK; r++)
        status = mimo_phase_compile(&call->phases[r], &context, tiles);
    mimo_layout_destroy(tiles);
    return status;
}

static mimo_status fill_call(call_maker *maker)
{
    mimo_op *op = maker->op;
    mimo_prepared_call *call = maker->call;
    MIMO_TRY(mimo_reserve(&call->pairs, op->tensors.count, sizeof *call->pairs));
    memcpy(call->pairs, op->tensors.pairs, (size_t)op->tensors.count * sizeof *call->pairs);
    call->count = op->tensors.count;
    MIMO_TRY(reserve_bases(call, op->mover->comm->backend));
    set_routes(maker);
    for (int r = 0; r < call->phase_count; r++)
        MIMO_TRY(plan_phase(maker, r));
    MIMO_TRY(set_tensors(maker));
    set_bases(call, op, NULL);
    return compile_phases(maker);
}

static mimo_status make_call(mimo_prepared_call **out, mimo_op *op, const mimo_batch_split *split)
{
    mimo_prepared_call *call;
    MIMO_TRY(mimo_reserve(&call, 1, sizeof *call));
    call->backward = op->call.backward;
    call->guarded = op->call.guarded;
    call->pushes = pushes(op);
    call->fifos = fifos_of(op);
    call->chunks = op->call.chunks;
    call->split = split->hash;
    call_maker maker = {.op = op, .split = split, .call = call};
    mimo_status status = fill_call(&maker);
    if (status == MIMO_OK)
        *out = call;
    else
        destroy_call(mimo_bridge_of(op), call);
    return status;
}

/* Where an empty tile lies decides nothing: NULL, say, or behind other tensors. */
static bool same_place(const mimo_tile *a, const mimo_tile *b, bool fixed)
{
    const void *at = a->view.data, *bt = b->view.data;
    if (mimo_tile_bytes(a) == 0)
        return true;
    return fixed ? at == bt : mimo_alignment_of(at) == mimo_alignment_of(bt);
}

static bool same_tile(const mimo_tile *a, const mimo_tile *b, bool fixed)
{
    return a->view.dtype == b->view.dtype && strcmp(a->view.letters, b->view.letters) == 0 &&
           a->batch == b->batch && a->seq == b->seq && a->row_bytes == b->row_bytes &&
           same_place(a, b, fixed);
}

/* ----------------------------------------- keeping ------------------------------------------ */

/* What a kept call must serve. */
typedef struct wanted_call {
    const mimo_op *op;
    uint64_t split;
} wanted_call;

static bool same_call(const mimo_prepared_call *call, const mimo_op *op, uint64_t split)
{
    return call->backward == op->call.backward && call->guarded == op->call.guarded &&
           call->chunks == op->call.chunks && call->pushes == pushes(op) &&
           call->fifos == fifos_of(op) && call->split == split && call->count == op->tensors.count;
}

static bool same_tensors(const mimo_prepared_call *call, const mimo_op *op)
{
    bool same = true;
    for (int i = 0; same && i < op->tensors.count; i++) {
        const mimo_tile_pair *a = &call->pairs[i], *b = &op->tensors.pairs[i];
        same = a->seq == b->seq && same_tile(&a->src, &b->src, call->fixed) &&
               same_tile(&a->dst, &b->dst, call->fixed) &&
               call->buffers[i] == serial_of(target_buffer(op, i));
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

/* A capture can make no call, so one that it may need stays. */
static bool is_needed(const mimo_recent_entry *entry)
{
    const mimo_prepared_call *call = (const mimo_prepared_call *)entry;
    return call->recorded || call->asked;
}

static void release_entry(mimo_recent_entry *entry, void *bridge)
{
    destroy_call(bridge, (mimo_prepared_call *)entry);
}

static const mimo_recent_kind call_kind = {is_needed, release_entry};

mimo_status mimo_prepared_call_get(mimo_op *op, const mimo_batch_split *split)
{
    mimo_routed_batch *own = mimo_routed_batch_of(op);
    const wanted_call wanted = {op, split->hash};
    mimo_prepared_call **call = &mimo_bridge_op_of(op)->prepared;
    void *staging;
    *call = (mimo_prepared_call *)mimo_recent_take(&own->prepared, serves, &wanted);
    if (!*call)
        MIMO_TRY(make_call(call, op, split));
    mimo_batch_splits_find(&own->splits, split->hash)->users++;
    MIMO_TRY(mimo_op_get_staging(&staging, op, MIMO_STAGING_CONTRIBUTIONS, (*call)->staging_bytes));
    return bind_call(op, staging);
}

void mimo_prepared_call_put_back(mimo_op *op)
{
    mimo_routed_batch *own = mimo_routed_batch_of(op);
    mimo_prepared_call *call = mimo_prepared_of(op);
    mimo_bridge_op_of(op)->prepared = NULL;
    if (!call)
        return;
    mimo_batch_splits_find(&own->splits, call->split)->users--;
    call->failed = op->progress.status != MIMO_OK; /* it may have been in flight */
    if (call->failed && !call->recorded) {
        destroy_call(mimo_bridge_of(op), call);
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
