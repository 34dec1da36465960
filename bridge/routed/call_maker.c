/* A prepared call: made, and emptied. */
#include <string.h>

#include "bridge/routed/call_maker.h"
#include "bridge/routed/call_phases.h"
#include "bridge/routed/call_places.h"
#include "bridge/routed/call_transport.h"
#include "core/memory.h"

void mimo_call_empty(mimo_prepared_call *prepared, mimo_comm *comm)
{
    mimo_routed_call *call = (mimo_routed_call *)prepared;
    for (int r = 0; r < MIMO_PHASES; r++)
        mimo_phase_release(&call->phases[r], comm);
    mimo_release(call->pairs);
}

/* The tiles that are written in the end: chunks have their samples. */
static mimo_status target_layout(mimo_layout **out, const mimo_call_maker *maker)
{
    mimo_side side = mimo_op_to(maker->op);
    mimo_layout_desc desc = mimo_bridge_batch_of(maker->op)->layouts[side];
    desc.batch = maker->split->batch;
    desc.samples = maker->split->samples[side];
    desc.seq = maker->call->pairs[0].seq;
    return mimo_layout_create(out, &desc);
}

static mimo_status compile_phases(const mimo_call_maker *maker)
{
    mimo_routed_call *call = maker->call;
    mimo_bridge *bridge = mimo_bridge_of(maker->op);
    const mimo_phase_context context = {bridge->mover.comm, &mimo_routed_of(bridge)->push_rule,
                                        call->fifos, &call->common.bases};
    mimo_layout *tiles = NULL;
    mimo_status status = call->chunks > 1 ? target_layout(&tiles, maker) : MIMO_OK;
    for (int r = 0; r < call->phase_count && status == MIMO_OK; r++)
        status = mimo_phase_compile(&call->phases[r], &context, tiles);
    mimo_layout_destroy(tiles);
    return status;
}

mimo_status mimo_call_fill(mimo_prepared_call *prepared, mimo_op *op, const void *wanted)
{
    const mimo_batch_split *split = wanted;
    mimo_routed_call *call = (mimo_routed_call *)prepared;
    mimo_call_maker maker = {.op = op, .split = split, .call = call};
    call->guarded = op->call.guarded;
    call->pushes = mimo_call_pushes(op);
    call->fifos = mimo_call_fifos(op);
    call->chunks = op->call.chunks;
    call->split = split->hash;
    MIMO_TRY(mimo_reserve(&call->pairs, prepared->count, sizeof *call->pairs));
    memcpy(call->pairs, op->tensors.pairs, (size_t)prepared->count * sizeof *call->pairs);
    MIMO_TRY(mimo_call_plan(&maker));
    MIMO_TRY(mimo_call_place(&maker));
    return compile_phases(&maker);
}
