/* A prepared call: made, and destroyed. */
#include <string.h>

#include "bridge/routed/call_maker.h"
#include "bridge/routed/call_phases.h"
#include "bridge/routed/call_places.h"
#include "bridge/routed/call_transport.h"
#include "core/memory.h"

void mimo_call_destroy(mimo_bridge *bridge, mimo_prepared_call *call)
{
    if (!call)
        return;
    for (int r = 0; r < MIMO_PHASES; r++)
        mimo_phase_release(&call->phases[r], bridge->mover.comm);
    mimo_release(call->pairs);
    mimo_release(call->keys);
    mimo_release(call->bases.at);
    mimo_release(call->bases.alignments);
    mimo_release(call);
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

static mimo_status fill_call(mimo_call_maker *maker)
{
    mimo_op *op = maker->op;
    mimo_prepared_call *call = maker->call;
    MIMO_TRY(mimo_reserve(&call->pairs, op->tensors.count, sizeof *call->pairs));
    memcpy(call->pairs, op->tensors.pairs, (size_t)op->tensors.count * sizeof *call->pairs);
    call->count = op->tensors.count;
    MIMO_TRY(mimo_call_reserve_bases(call, op->mover->comm->backend));
    MIMO_TRY(mimo_call_plan(maker));
    MIMO_TRY(mimo_call_place(maker));
    return compile_phases(maker);
}

mimo_status mimo_call_make(mimo_prepared_call **out, mimo_op *op, const mimo_batch_split *split)
{
    mimo_prepared_call *call;
    MIMO_TRY(mimo_reserve(&call, 1, sizeof *call));
    call->backward = op->call.backward;
    call->guarded = op->call.guarded;
    call->pushes = mimo_call_pushes(op);
    call->fifos = mimo_call_fifos(op);
    call->chunks = op->call.chunks;
    call->split = split->hash;
    mimo_call_maker maker = {.op = op, .split = split, .call = call};
    mimo_status status = fill_call(&maker);
    if (status == MIMO_OK)
        *out = call;
    else
        mimo_call_destroy(mimo_bridge_of(op), call);
    return status;
}
