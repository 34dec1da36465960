/* The end of a dispatch, whether the caller, a route or an operation was the last to need it. */
#include "dispatch/dispatch_end.h"

#include "comm/comm_backend.h"
#include "core/memory.h"
#include "dispatch/dispatch_executor.h"

void mimo_dispatch_release(mimo_dispatch *dispatch)
{
    mimo_buffer_destroy(dispatch->flags);
    if (dispatch->executor && dispatch->executor->disconnect)
        dispatch->executor->disconnect(dispatch);
    mimo_mover_release(&dispatch->mover);
    mimo_release(dispatch);
}

void mimo_dispatch_release_unused(void *owner)
{
    mimo_dispatch *dispatch = owner;
    if (dispatch->destroyed && dispatch->routes == 0 && dispatch->mover.unwaited == 0)
        mimo_dispatch_release(dispatch);
}
