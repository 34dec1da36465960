/* The hooks that a dispatch gives its mover. */
#include "dispatch/dispatch_op.h"

#include <inttypes.h>

#include "core/check.h"
#include "core/hash.h"
#include "core/memory.h"
#include "dispatch/dispatch_executor.h"
#include "dispatch/dispatch_views.h"
#include "dispatch/route_state.h"

/* ------------------------------------- its life ------------------------------------- */

static mimo_status create(mimo_op **out)
{
    mimo_dispatch_op *own;
    MIMO_TRY(mimo_reserve(&own, 1, sizeof *own));
    own->op.own = own;
    *out = &own->op;
    return MIMO_OK;
}

static void destroy(mimo_op *op)
{
    mimo_release(op->own);
}

static const mimo_dispatch_executor *executor_of(const mimo_op *op)
{
    const mimo_dispatch *dispatch = op->mover->owner;
    return dispatch->executor;
}

/* It sets a route, and moves nothing. */
static bool sets(const mimo_op *op)
{
    return op->call.kind == MIMO_CALL_ROUTE_SET;
}

static const mimo_mover_step *steps_of(const mimo_op *op)
{
    const mimo_dispatch_executor *executor = executor_of(op);
    if (sets(op))
        return executor->set;
    return op->call.backward ? executor->combine : executor->rows;
}

/* An operation without a route is a refusal: it ends in the agreement. */
static void begin(mimo_op *op)
{
    static const mimo_mover_step none[] = {NULL};
    mimo_dispatch_op *own = mimo_dispatch_op_of(op);
    own->route = op->call.subject;
    if (own->route)
        ++*(sets(op) ? &own->route->setting : &own->route->moving);
    /* On the host it waits anyway. */
    op->claim.unsure = sets(op) && !op->mover->comm->device->enqueues;
    op->steps = (mimo_op_steps){{none, steps_of(op), none}, true};
}

static void finish(mimo_op *op)
{
    mimo_route *route = mimo_route_of(op);
    if (!route || sets(op))
        return;
    if (executor_of(op)->finish)
        executor_of(op)->finish(op);
    route->moving--;
    mimo_route_release_unused(route);
}

static void waited(mimo_op *op)
{
    if (sets(op) && mimo_route_of(op))
        mimo_route_end_set(mimo_route_of(op));
}

/* ---------------------------------- call in words ----------------------------------- */

/* Routes have the same numbers on all ranks. */
static uint64_t sign_call(uint64_t hash, const mimo_op *op)
{
    const mimo_route *route = mimo_route_of(op);
    return mimo_hash_int(hash, route ? route->number : 0);
}

static void describe(char call[MIMO_CALL_TEXT], const mimo_op *op)
{
    const mimo_route *route = mimo_route_of(op);
    if (route)
        mimo_call_append(call, sets(op) ? " set of route %" PRId64 : " by route %" PRId64,
                         route->number);
    else if (sets(op))
        mimo_call_append(call, " set of a route");
}

/* ------------------------------------- tensors -------------------------------------- */

static mimo_status read_tensors(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from, int n)
{
    MIMO_TRY(mimo_route_check_set(mimo_route_of(op)));
    MIMO_TRY(mimo_op_reserve_pairs(op, n));
    for (int i = 0; i < n; i++) {
        const mimo_tensor *src = op->call.backward ? &to[i] : &from[i];
        const mimo_tensor *dst = op->call.backward ? &from[i] : &to[i];
        MIMO_TRY(mimo_dispatch_read_pair(&op->tensors.pairs[i], op, src, dst));
    }
    return MIMO_OK;
}

/* The numbers of rows differ between ranks. */
static uint64_t sign(uint64_t hash, const mimo_op *op, int i)
{
    const mimo_tile_pair *pair = &op->tensors.pairs[i];
    hash = mimo_hash_int(mimo_hash_int(hash, mimo_dispatch_by_pair(pair)), pair->src.view.dtype);
    return mimo_hash_int(hash, pair->src.row_bytes);
}

static const mimo_buffer *target(int64_t *offset, const mimo_op *op, int i)
{
    const mimo_buffer *buffer = mimo_dispatch_target(op, i);
    const char *data = op->tensors.pairs[i].dst.view.data;
    *offset = buffer ? data - (char *)mimo_buffer_data(buffer) : -1;
    return buffer;
}

/* A rank finds the tiles of its peers by the offsets of its own. */
static mimo_status sign_targets(mimo_op *op)
{
    char text[MIMO_VIEW_TEXT];
    mimo_transport transport = mimo_route_of(op)->dispatch->desc.transport;
    for (int i = 0; i < op->call.n && !op->call.backward; i++) {
        int64_t offset;
        const mimo_buffer *buffer = target(&offset, op, i);
        const mimo_tensor *view = &op->tensors.pairs[i].dst.view;
        MIMO_CHECK(buffer || transport != MIMO_TRANSPORT_ZERO_COPY, MIMO_ERR_ARGUMENT,
                   "zero-copy: tensor %d, %s, is to be written at %p, and that is in no buffer of "
                   "the communicator that the dispatch was made from",
                   i, mimo_tensor_text(text, sizeof text, view), view->data);
        if (transport == MIMO_TRANSPORT_ZERO_COPY)
            mimo_mover_look_at_reach(op->mover, buffer);
        op->claim.signature = mimo_target_sign(op->claim.signature, buffer, offset);
    }
    return MIMO_OK;
}

static mimo_status prepare(mimo_op *op)
{
    MIMO_TRY(sign_targets(op));
    return executor_of(op)->prepare(op);
}

const mimo_mover_hooks mimo_dispatch_hooks = {
    .kind = MIMO_CALLBACK_DISPATCH,
    .on_parent = true,
    .pass = {"rows", "combine"},
    .op_create = create,
    .op_destroy = destroy,
    .begin = begin,
    .sign_call = sign_call,
    .describe = describe,
    .read = read_tensors,
    .sign = sign,
    .target = target,
    .prepare = prepare,
    .finish = finish,
    .waited = waited,
};
