/* Where the host waits for a peer in a call on a communicator. */
#include <sched.h>

#include "comm/comm_backend.h"
#include "core/check.h"

void mimo_pause(mimo_comm *comm)
{
    for (mimo_rider *rider = comm->riders; rider; rider = rider->next)
        rider->move(rider->context);
    sched_yield();
}

void mimo_ride(mimo_comm *comm, mimo_rider *rider)
{
    rider->next = comm->riders;
    comm->riders = rider;
}

void mimo_unride(mimo_comm *comm, mimo_rider *rider)
{
    mimo_rider **at = &comm->riders;
    while (*at && *at != rider)
        at = &(*at)->next;
    if (*at)
        *at = rider->next;
}

mimo_status mimo_test(mimo_comm *comm, mimo_request *request, bool *done)
{
    MIMO_TRY(mimo_comm_check(comm));
    return comm->backend->test(request, done);
}

mimo_status mimo_wait(mimo_comm *comm, mimo_request **request, const char *call)
{
    mimo_clock clock = {0, 0, 0};
    mimo_status status = MIMO_OK;
    bool done = *request == NULL;
    while (!done && status == MIMO_OK) {
        status = mimo_test(comm, *request, &done);
        if (done || status != MIMO_OK)
            break;
        mimo_pause(comm);
        status = mimo_watch(comm, &clock, call);
    }
    comm->backend->release(*request);
    *request = NULL;
    return status;
}
