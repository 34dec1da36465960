/* Waiting for a request, and the progress callbacks that run meanwhile. */
#include "comm/comm_backend.h"
#include "comm/waiter.h"
#include "core/check.h"

mimo_progress_callback **mimo_callbacks_of(mimo_comm *comm)
{
    return comm->family->parallel ? &comm->callbacks : &comm->family->callbacks;
}

void mimo_callback_add(mimo_comm *comm, mimo_progress_callback *callback)
{
    mimo_progress_callback **first = mimo_callbacks_of(comm);
    callback->comm = comm;
    pthread_mutex_lock(&comm->family->lock);
    callback->next = *first;
    *first = callback;
    pthread_mutex_unlock(&comm->family->lock);
}

void mimo_callback_remove(mimo_comm *comm, mimo_progress_callback *callback)
{
    pthread_mutex_lock(&comm->family->lock);
    mimo_progress_callback **at = mimo_callbacks_of(comm);
    while (*at && *at != callback)
        at = &(*at)->next;
    if (*at)
        *at = callback->next;
    pthread_mutex_unlock(&comm->family->lock);
}

mimo_status mimo_test(mimo_comm *comm, mimo_request *request, bool *done)
{
    MIMO_TRY(mimo_comm_check(comm));
    MIMO_TRY(comm->backend->test(request, done));
    comm->ended += *done;
    return MIMO_OK;
}

mimo_status mimo_wait(mimo_comm *comm, mimo_request **request, const char *call)
{
    mimo_waiter waiter = {.comm = comm, .call = call, .request = *request};
    mimo_status status = MIMO_OK;
    bool done = *request == NULL;
    while (!done && status == MIMO_OK) {
        status = mimo_test(comm, *request, &done);
        if (!done && status == MIMO_OK)
            status = mimo_waiter_step(&waiter, comm);
    }
    comm->backend->release(*request);
    *request = NULL;
    return status;
}
