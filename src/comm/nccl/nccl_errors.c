/* NCCL results as statuses. */
#include <stdio.h>
#include <string.h>

#include "comm/nccl/nccl_state.h"
#include "comm/waiter.h"

static void mark_failed(const nccl_comm *comm, ncclComm_t handle)
{
    nccl_shared_comm *shared = comm ? comm->family->shared : NULL;
    for (; shared; shared = shared->next)
        shared->failed = shared->failed || shared->handle == handle;
}

mimo_status mimo_nccl_status(ncclResult_t code, nccl_comm *comm, ncclComm_t handle,
                             const char *call)
{
    char name[64];
    mimo_waiter waiter = {.comm = comm ? &comm->base : NULL, .call = name};
    if (code == ncclSuccess)
        return MIMO_OK;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(call, "("), call);
    while (code == ncclInProgress && handle) {
        MIMO_TRY(mimo_waiter_pause(&waiter));
        ncclResult_t polled = ncclCommGetAsyncError(handle, &code);
        if (polled != ncclSuccess)
            code = polled;
    }
    if (code == ncclSuccess)
        return MIMO_OK;
    mark_failed(comm, handle);
    const char *last = ncclGetLastError(handle);
    return mimo_fail(MIMO_ERR_COMM, "%s: %s%s%s", name, ncclGetErrorString(code),
                     last && *last ? ": " : "", last ? last : "");
}

mimo_status mimo_nccl_settle(ncclResult_t code, nccl_comm *comm, ncclComm_t handle,
                             const char *call)
{
    return mimo_nccl_status(code == ncclSuccess ? ncclInProgress : code, comm, handle, call);
}

mimo_status mimo_nccl_end_group(nccl_comm *comm, ncclResult_t inside)
{
    ncclComm_t handle = comm->shared->handle;
    ncclResult_t ended = ncclGroupEnd();
    MIMO_TRY(mimo_nccl_status(inside, comm, handle, "ncclSend or ncclRecv"));
    return mimo_nccl_status(ended, comm, handle, "ncclGroupEnd");
}

mimo_status mimo_nccl_check(const nccl_shared_comm *shared)
{
    ncclResult_t met = ncclSuccess;
    MIMO_CHECK(shared->handle, MIMO_ERR_ABORTED, "the NCCL communicator was aborted");
    ncclResult_t polled = ncclCommGetAsyncError(shared->handle, &met);
    if (polled != ncclSuccess)
        met = polled;
    return met == ncclInProgress ? MIMO_OK
                                 : mimo_nccl_status(met, NULL, shared->handle, "NCCL, earlier");
}
