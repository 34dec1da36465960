/* Where the host waits for a peer: every wait loop of the library goes through here. */
#include <sched.h>

#include "comm/comm_backend.h"

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

mimo_status mimo_wait(mimo_comm *comm, mimo_request **request)
{
    mimo_status status = MIMO_OK;
    bool done = *request == NULL;
    while (!done && status == MIMO_OK) {
        status = comm->backend->test(*request, &done);
        if (!done && status == MIMO_OK)
            mimo_pause(comm);
    }
    comm->backend->release(*request);
    *request = NULL;
    return status;
}
