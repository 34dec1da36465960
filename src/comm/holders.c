/* Who keeps a communicator: its owner until mimo_comm_destroy, what was made from it, and the calls
 * that are on it. The last of them releases it. */
#include "comm/recorder.h"
#include "comm/survivors_agree.h"
#include "core/memory.h"

void mimo_comm_retain(mimo_comm *comm)
{
    __atomic_fetch_add(&comm->holders, 1, __ATOMIC_RELAXED);
}

bool mimo_comm_may_still_move(const mimo_comm *comm)
{
    return comm->backend->guard_prepare && mimo_family_status(comm->family) != MIMO_OK;
}

void mimo_comm_release(mimo_comm *comm)
{
    if (__atomic_sub_fetch(&comm->holders, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    mimo_recorder_remove(comm);
    if (comm->words)
        mimo_comm_release(comm->words);
    mimo_survivors_release(comm->survivors);
    mimo_staging_release(&comm->staging);
    comm->backend->destroy(comm);
}

void mimo_comm_release_moved(const mimo_comm *comm, void *memory)
{
    if (mimo_comm_may_still_move(comm))
        mimo_abandon(memory);
    else
        comm->device->release(memory);
}
