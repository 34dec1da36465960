/* NCCL results as statuses. */
#include <stdio.h>
#include <string.h>

#include "comm/nccl/nccl_state.h"
#include "comm/recorder.h"
#include "comm/waiter.h"

/* One of the family's own, not one that is being made. */
static nccl_shared_comm *find_shared(const nccl_comm *comm, ncclComm_t handle)
{
    nccl_shared_comm *shared = comm ? comm->family->shared : NULL;
    while (shared && shared->handle != handle)
        shared = shared->next;
    return shared;
}

/* The error stays, and every later call on the handle gives it. */
static bool has_lasting_error(ncclComm_t handle)
{
    ncclResult_t met = ncclSuccess;
    return ncclCommGetAsyncError(handle, &met) != ncclSuccess ||
           (met != ncclSuccess && met != ncclInProgress);
}

/* NCCL ends no kernel when it loses a peer, and those that wait for it wait for ever. So does all
 * that waits for the device, such as a call that frees its memory. An abort ends them. */
static mimo_status end_if_lasting(mimo_status status, nccl_comm *comm, ncclComm_t handle)
{
    nccl_shared_comm *shared = handle ? find_shared(comm, handle) : NULL;
    if (!shared)
        return status;
    shared->failed = true;
    return has_lasting_error(handle) ? mimo_family_fail(&comm->base, status) : status;
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
    mimo_record_wait_over(&waiter);
    if (code == ncclSuccess)
        return MIMO_OK;
    const char *last = ncclGetLastError(handle);
    mimo_status status = mimo_fail(MIMO_ERR_COMM, "%s: %s%s%s", name, ncclGetErrorString(code),
                                   last && *last ? ": " : "", last ? last : "");
    return end_if_lasting(status, comm, handle);
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

mimo_status mimo_nccl_check(nccl_comm *comm, const nccl_shared_comm *shared)
{
    ncclResult_t met = ncclSuccess;
    if (!shared)
        return MIMO_OK;
    MIMO_CHECK(shared->handle, MIMO_ERR_ABORTED, "the NCCL communicator was aborted");
    ncclResult_t polled = ncclCommGetAsyncError(shared->handle, &met);
    if (polled != ncclSuccess)
        met = polled;
    return met == ncclInProgress ? MIMO_OK
                                 : mimo_nccl_status(met, comm, shared->handle, "NCCL, earlier");
}
