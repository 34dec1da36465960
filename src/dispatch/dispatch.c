/* A dispatch: creation, report, and the caller's release. */
#include "comm/buffer_state.h"
#include "comm/calls.h"
#include "core/check.h"
#include "core/descriptor.h"
#include "core/hash.h"
#include "core/memory.h"
#include "device/profile.h"
#include "dispatch/dispatch_desc.h"
#include "dispatch/dispatch_end.h"
#include "dispatch/dispatch_executor.h"
#include "dispatch/dispatch_op.h"

MIMO_DEFINE_INIT(mimo_dispatch_counts, MIMO_DISPATCH_COUNTS_INIT)

/* ------------------------------------- creation ------------------------------------- */

static mimo_status connect(mimo_dispatch *dispatch, mimo_comm *comm, int64_t checks)
{
    MIMO_TRY(mimo_mover_connect(&dispatch->mover, comm, checks));
    return dispatch->executor->connect(dispatch);
}

static void name_dispatch(mimo_dispatch *dispatch, int64_t number, const char *name)
{
    uint64_t hash = mimo_signature_start(MIMO_CALL_DISPATCH_CREATE);
    mimo_write_title(dispatch->mover.title, "dispatch", name, number);
    dispatch->mover.id = mimo_hash_int(mimo_dispatch_hash_name(hash, name), number);
    dispatch->desc.name = NULL;
}

mimo_status mimo_dispatch_create(mimo_dispatch **out, mimo_comm *comm,
                                 const mimo_dispatch_desc *desc)
{
    MIMO_RANGE();
    mimo_dispatch *dispatch = NULL;
    mimo_dispatch_request own = {.desc = MIMO_DISPATCH_DESC_INIT};
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "dispatch: comm is NULL");
    MIMO_ENTER(comm, "dispatch");
    mimo_status local = mimo_dispatch_request_read(&own, comm, desc);
    if (local == MIMO_OK)
        local = mimo_reserve(&dispatch, 1, sizeof *dispatch);
    if (local == MIMO_OK)
        local = mimo_mover_create(&dispatch->mover, dispatch, &mimo_dispatch_hooks);
    if (local == MIMO_OK && !out)
        local = mimo_fail(MIMO_ERR_ARGUMENT, "dispatch: out is NULL");
    mimo_status status = mimo_dispatch_request_agree(comm, local, &own);
    if (status == MIMO_OK) {
        dispatch->desc = own.desc;
        dispatch->shape = own.shape;
        dispatch->executor = own.executor;
        status = mimo_comm_agree(comm, connect(dispatch, comm, own.checks));
    }
    if (status != MIMO_OK) {
        if (dispatch)
            mimo_dispatch_release(dispatch);
        return status;
    }
    name_dispatch(dispatch, ++comm->dispatches, own.desc.name);
    if (dispatch->flags)
        mimo_buffer_entitle(dispatch->flags, dispatch->mover.title);
    mimo_mover_open(&dispatch->mover, comm);
    *out = dispatch;
    return MIMO_OK;
}

/* -------------------------------------- release ------------------------------------- */

void mimo_dispatch_destroy(mimo_dispatch *dispatch)
{
    MIMO_RANGE();
    MIMO_CALL_SCOPE(scope);
    if (!dispatch || !mimo_release_enter(&scope, dispatch->mover.parent))
        return;
    dispatch->destroyed = true;
    dispatch->mover.idle = mimo_dispatch_release_unused;
    mimo_dispatch_release_unused(dispatch);
}

/* -------------------------------------- report -------------------------------------- */

mimo_status mimo_dispatch_report(mimo_dispatch_counts *out, mimo_dispatch *dispatch)
{
    MIMO_CHECK(out && dispatch, MIMO_ERR_ARGUMENT, "mimo_dispatch_report: %s is NULL",
               out ? "dispatch" : "out");
    MIMO_ON_DEVICE_OF(dispatch->mover.comm);
    mimo_dispatch_counts counts = dispatch->counts;
    if (dispatch->executor->report)
        MIMO_TRY(dispatch->executor->report(&counts, dispatch));
    counts.size = sizeof counts;
    MIMO_TRY(mimo_write_descriptor(out, &counts, sizeof counts, "dispatch counts"));
    dispatch->counts = (mimo_dispatch_counts)MIMO_DISPATCH_COUNTS_INIT;
    return MIMO_OK;
}
