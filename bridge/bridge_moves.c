/* The public calls that move tensors. */
#include <limits.h>

#include "bridge/bridge_op.h"
#include "bridge/bridge_types.h"
#include "comm/agreement.h"
#include "comm/calls.h"
#include "core/check.h"
#include "device/profile.h"
#include "move/op_types.h"

static const char *pass_of(bool backward)
{
    return mimo_bridge_hooks.pass[backward];
}

static mimo_status check_handles(mimo_op **out, const mimo_bridge *bridge, bool backward)
{
    MIMO_CHECK(out && bridge, MIMO_ERR_ARGUMENT, "bridge %s: %s is NULL", pass_of(backward),
               out ? "bridge" : "out");
    return MIMO_OK;
}

static mimo_status begin(mimo_op **out, mimo_bridge *bridge, const mimo_op_request *request)
{
    MIMO_TRY(check_handles(out, bridge, request->backward));
    return mimo_mover_start(out, &bridge->mover, request);
}

static mimo_status begin_chunked(mimo_op **out, mimo_bridge *bridge, bool backward,
                                 const mimo_move_desc *desc)
{
    const mimo_op_request request = {.backward = backward};
    MIMO_TRY(check_handles(out, bridge, backward));
    MIMO_ENTER(bridge->mover.comm, pass_of(backward));
    return mimo_mover_begin_described(out, &bridge->mover, &request, desc);
}

static mimo_status move(mimo_bridge *bridge, const mimo_op_request *request)
{
    MIMO_CHECK(bridge, MIMO_ERR_ARGUMENT, "bridge %s: bridge is NULL", pass_of(request->backward));
    return mimo_mover_move(&bridge->mover, request);
}

mimo_status mimo_bridge_refuse(mimo_bridge *bridge, bool backward, bool prepare, mimo_status local)
{
    MIMO_RANGE();
    mimo_op_request request = mimo_whole_pass(backward, NULL, NULL, 0, NULL);
    request.prepares = prepare;
    MIMO_CHECK(bridge, MIMO_ERR_ARGUMENT, "bridge refuse: bridge is NULL");
    return mimo_mover_refuse(&bridge->mover, &request, local, "bridge refuse");
}

mimo_status mimo_bridge_forward_start(mimo_op **out, mimo_bridge *bridge, const mimo_tensor *to,
                                      const mimo_tensor *from, int n, mimo_stream stream)
{
    MIMO_RANGE();
    const mimo_op_request request = mimo_whole_pass(false, to, from, n, stream);
    return begin(out, bridge, &request);
}

mimo_status mimo_bridge_backward_start(mimo_op **out, mimo_bridge *bridge, const mimo_tensor *to,
                                       const mimo_tensor *from, int n, mimo_stream stream)
{
    MIMO_RANGE();
    const mimo_op_request request = mimo_whole_pass(true, to, from, n, stream);
    return begin(out, bridge, &request);
}

mimo_status mimo_bridge_forward_start_chunked(mimo_op **out, mimo_bridge *bridge,
                                              const mimo_move_desc *desc)
{
    MIMO_RANGE();
    return begin_chunked(out, bridge, false, desc);
}

mimo_status mimo_bridge_backward_start_chunked(mimo_op **out, mimo_bridge *bridge,
                                               const mimo_move_desc *desc)
{
    MIMO_RANGE();
    return begin_chunked(out, bridge, true, desc);
}

mimo_status mimo_bridge_forward(mimo_bridge *bridge, const mimo_tensor *to, const mimo_tensor *from,
                                int n, mimo_stream stream)
{
    MIMO_RANGE();
    const mimo_op_request request = mimo_whole_pass(false, to, from, n, stream);
    return move(bridge, &request);
}

mimo_status mimo_bridge_backward(mimo_bridge *bridge, const mimo_tensor *to,
                                 const mimo_tensor *from, int n, mimo_stream stream)
{
    MIMO_RANGE();
    const mimo_op_request request = mimo_whole_pass(true, to, from, n, stream);
    return move(bridge, &request);
}

mimo_status mimo_bridge_prepare(mimo_bridge *bridge, bool backward, const mimo_move_desc *move)
{
    mimo_op *op;
    const mimo_op_request request = {.backward = backward, .prepares = true};
    MIMO_RANGE();
    MIMO_CHECK(bridge, MIMO_ERR_ARGUMENT, "bridge prepare: bridge is NULL");
    mimo_comm *comm = bridge->mover.comm;
    MIMO_ENTER(comm, "bridge prepare");
    MIMO_TRY(mimo_mover_begin_described(&op, &bridge->mover, &request, move));
    mimo_op_progress_to(op, INT_MAX);
    mimo_status finished = MIMO_OK;
    if (op->progress.status == MIMO_OK && comm->device->enqueues)
        finished = mimo_comm_synchronize(comm, op->call.stream);
    mimo_op_release_substitutes(op);
    mimo_status status = mimo_op_wait(&op);
    return status == MIMO_OK ? finished : status;
}
