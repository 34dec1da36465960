/* The end of communicators: destroyed, aborted or forgotten, and what the family says of it. */
#include <inttypes.h>

#include "comm/buffer_state.h"
#include "comm/calls.h"
#include "device/profile.h"

/* Every bridge and dispatch has a progress callback on the communicator that it was made from. */
static mimo_status check_unused(mimo_comm *comm)
{
    int owners[MIMO_CALLBACK_OWNERS] = {0}, buffers = 0;
    pthread_mutex_lock(&comm->family->lock);
    for (const mimo_progress_callback *callback = *mimo_callbacks_of(comm); callback;
         callback = callback->next)
        owners[callback->owner] += callback->comm == comm;
    for (const mimo_buffer *buffer = comm->buffers; buffer; buffer = buffer->next)
        buffers += buffer != comm->fifos;
    pthread_mutex_unlock(&comm->family->lock);
    int bridges = owners[MIMO_CALLBACK_BRIDGE], dispatches = owners[MIMO_CALLBACK_DISPATCH];
    MIMO_CHECK(bridges + dispatches + buffers == 0, MIMO_ERR_STATE,
               "a communicator of %d ranks was destroyed before dispatches (%d), bridges (%d) or "
               "buffers (%d) that were made from it: the last of them releases it",
               comm->size, dispatches, bridges, buffers);
    return MIMO_OK;
}

void mimo_comm_destroy(mimo_comm *comm)
{
    MIMO_RANGE();
    MIMO_CALL_SCOPE(scope);
    if (!comm || !mimo_release_enter(&scope, comm))
        return;
    (void)check_unused(comm);
    if (!__atomic_exchange_n(&comm->destroyed, true, __ATOMIC_ACQ_REL))
        mimo_comm_release(comm);
}

/* ----------------------------------- the family's end ----------------------------------- */

mimo_status mimo_comm_abort(mimo_comm *comm, const char *why)
{
    MIMO_RANGE();
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "mimo_comm_abort: comm is NULL");
    MIMO_TRY(mimo_check_process(comm->family, "mimo_comm_abort"));
    if (mimo_family_status(comm->family) != MIMO_OK)
        return MIMO_OK;
    MIMO_TRY(mimo_check_open(comm->family, "mimo_comm_abort"));
    MIMO_ON_DEVICE_OF(comm);
    mimo_family_ask_end(comm->family, why ? why : "no reason given", false);
    mimo_family_try_end(comm->family);
    return MIMO_OK;
}

void mimo_comm_forget(mimo_comm *comm)
{
    MIMO_RANGE();
    if (!comm || mimo_check_process(comm->family, "mimo_comm_forget") != MIMO_OK)
        return;
    mimo_family *family = comm->family;
    MIMO_ON_DEVICE_OF(comm);
    mimo_family_retain(family);
    mimo_family_ask_end(family, "it was forgotten", true);
    __atomic_store_n(&family->forgotten, true, __ATOMIC_RELEASE);
    mimo_family_try_end(family);
    mimo_comm_destroy(comm);
    mimo_family_release(family);
}

mimo_status mimo_comm_state(const mimo_comm *comm)
{
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "mimo_comm_state: comm is NULL");
    MIMO_TRY(mimo_check_process(comm->family, "mimo_comm_state"));
    return mimo_family_state(comm->family);
}

/* --------------------------------------- deadline --------------------------------------- */

mimo_status mimo_comm_set_deadline(mimo_comm *comm, int64_t milliseconds)
{
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "mimo_comm_set_deadline: comm is NULL");
    MIMO_TRY(mimo_check_process(comm->family, "mimo_comm_set_deadline"));
    MIMO_CHECK(milliseconds >= 0 && milliseconds <= MIMO_DEADLINE_MOST, MIMO_ERR_ARGUMENT,
               "a deadline of %" PRId64 " ms is not in [0, %" PRId64 "]", milliseconds,
               (int64_t)MIMO_DEADLINE_MOST);
    __atomic_store_n(&comm->family->deadline, milliseconds, __ATOMIC_RELAXED);
    return MIMO_OK;
}

int64_t mimo_comm_deadline(const mimo_comm *comm)
{
    return __atomic_load_n(&comm->family->deadline, __ATOMIC_RELAXED);
}
