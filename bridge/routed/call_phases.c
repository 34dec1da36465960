/*
 * The phases of a prepared call. One phase moves rows from where they are to where they are read.
 * Where the dst cp ranks hold contributions and many src ranks read the sum, one phase would send
 * all contributions to each of these. Then there are two: the first brings the contributions of
 * each row to one rank, as if a partition cut the dst tiles; the second moves the sums from there.
 */
#include <inttypes.h>

#include "bridge/routed/call_phases.h"
#include "core/dtype_kind.h"
#include "core/memory.h"

/* The plans of an operation's batch. */
static mimo_status get_cache(mimo_plan_cache **out, const mimo_op *op)
{
    const mimo_bridge *bridge = mimo_bridge_of(op);
    mimo_layout_desc layouts[MIMO_ENDPOINTS];
    mimo_routed_batch *own = mimo_routed_batch_of(mimo_bridge_batch_of(op));
    if (!own->plans) {
        mimo_routed_layouts(layouts, bridge, mimo_bridge_batch_of(op));
        MIMO_TRY(mimo_plan_cache_create(&own->plans, layouts, bridge->rank));
    }
    *out = own->plans;
    return MIMO_OK;
}

static mimo_status get_plan(mimo_transfer *transfer, const mimo_call_maker *maker,
                            const mimo_endpoints *ends, int i)
{
    const mimo_batch_split *split = maker->split;
    const int64_t *src = split->samples[MIMO_SRC], *dst = split->samples[MIMO_DST];
    const mimo_plan_key key = {
        .ends = *ends,
        .order = {mimo_tile_order(mimo_call_tile(maker->call, ends->from, i)),
                  mimo_tile_order(mimo_call_tile(maker->call, ends->to, i))},
        .batch = split->batch,
        .seq = maker->call->pairs[i].seq,
        .split = split->hash,
        .samples = {src, dst, dst}};
    mimo_plan_cache *plans;
    MIMO_TRY(get_cache(&plans, maker->op));
    return mimo_plan_cache_get(&transfer->plan, plans, &key);
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
bool mimo_routed_two_phases(const mimo_bridge *bridge, const mimo_bridge_batch *batch, int64_t seq)
{
    const mimo_routed *own = mimo_routed_of(bridge);
    int64_t src_dp = mimo_grid_dim_size(bridge->src, "dp");
    int64_t dst_dp = mimo_grid_dim_size(bridge->dst, "dp");
    bool possible = !batch->ragged && own->shards > 1 && seq % (2 * own->shards) == 0;
    return possible && src_dp < (own->shards - 1) * dst_dp;
}

static void set_phases(mimo_call_maker *maker)
{
    const mimo_op *op = maker->op;
    maker->call->phase_count = 1;
    maker->ends[0] =
        (mimo_endpoints){(mimo_endpoint)mimo_op_from(op), (mimo_endpoint)mimo_op_to(op)};
    if (op->call.backward && mimo_routed_two_phases(mimo_bridge_of(op), mimo_bridge_batch_of(op),
                                                    op->tensors.pairs[0].seq)) {
        maker->call->phase_count = 2;
        maker->ends[0].to = MIMO_AT_SHARDS;
        maker->ends[1] = (mimo_endpoints){MIMO_AT_SHARDS, MIMO_AT_SRC};
    }
}

static mimo_status plan_phase(const mimo_call_maker *maker, int r)
{
    char call[MIMO_CALL_TEXT];
    mimo_phase *phase = &maker->call->phases[r];
    int count = maker->call->common.count;
    MIMO_TRY(mimo_reserve(&phase->transfers, count, sizeof *phase->transfers));
    phase->count = count;
    phase->chunk_count = maker->call->chunks;
    phase->guarded = maker->call->guarded;
    for (int i = 0; i < count; i++) {
        const mimo_tile *to = mimo_call_tile(maker->call, maker->ends[r].to, i);
        mimo_transfer *transfer = &phase->transfers[i];
        MIMO_TRY(get_plan(transfer, maker, &maker->ends[r], i));
        phase->classes = mimo_plan_classes(transfer->plan);
        transfer->row_bytes = to->row_bytes;
        transfer->bytes = mimo_call_bytes(maker, maker->ends[r].to, i);
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

mimo_status mimo_call_plan(mimo_call_maker *maker)
{
    set_phases(maker);
    for (int r = 0; r < maker->call->phase_count; r++)
        MIMO_TRY(plan_phase(maker, r));
    return MIMO_OK;
}
