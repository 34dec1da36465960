/* The executor of host memory, and of devices where another one can't: every rank has the ids of
 * all, and rows travel as messages, or in host memory straight into buffers of ranks that share it.
 * */
#include "comm/buffer_state.h"
#include "core/check.h"
#include "dispatch/dispatch_executor.h"
#include "dispatch/messages/dispatch_call.h"
#include "dispatch/messages/messages_route.h"

static bool moves(const mimo_comm *comm)
{
    return !comm->device->enqueues || comm->device->add_rows;
}

/* Rows are written into buffers under flags of the dispatch's own, as with bridges. Where ranks
 * share no memory there are no buffers. */
static mimo_status connect(mimo_dispatch *dispatch)
{
    if (dispatch->desc.transport == MIMO_TRANSPORT_P2P || dispatch->mover.comm->device->enqueues)
        return MIMO_OK;
    mimo_status status = mimo_buffer_create_internal(&dispatch->flags, dispatch->mover.comm, 0);
    bool needed = dispatch->desc.transport == MIMO_TRANSPORT_ZERO_COPY;
    return status == MIMO_ERR_UNSUPPORTED && !needed ? MIMO_OK : status;
}

const mimo_dispatch_executor mimo_messages_executor = {
    .name = "messages",
    .moves = moves,
    .connect = connect,
    .route_create = mimo_messages_route_create,
    .route_destroy = mimo_messages_route_destroy,
    .set_prepare = mimo_messages_set_prepare,
    .set = mimo_messages_set_steps,
    .ends = mimo_messages_ends,
    .read = mimo_messages_read,
    .prepare = mimo_dispatch_call_get,
    .rows = mimo_dispatch_rows_steps,
    .combine = mimo_dispatch_combine_steps,
    .finish = mimo_dispatch_call_put_back,
};
