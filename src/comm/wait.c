/* Where the host waits for a peer: every wait loop of the library goes through here. */
#include <sched.h>

#include "comm/comm_backend.h"

void mimo_pause(mimo_comm *comm)
{
    (void)comm;
    sched_yield();
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
