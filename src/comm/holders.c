/* Who keeps a communicator: its owner until mimo_comm_destroy, what was made from it, and the calls
 * that are on it. The last of them releases it. */
#include "comm/comm_backend.h"

void mimo_comm_hold(mimo_comm *comm)
{
    __atomic_fetch_add(&comm->holders, 1, __ATOMIC_RELAXED);
}

void mimo_comm_drop(mimo_comm *comm)
{
    if (__atomic_sub_fetch(&comm->holders, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    mimo_staging_release(&comm->staging);
    comm->backend->destroy(comm);
}
